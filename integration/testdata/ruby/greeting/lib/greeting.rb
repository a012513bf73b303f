Greeting = "hello from a gem"
