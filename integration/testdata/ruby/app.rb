# Answers with the text of a gem, through nothing but Ruby's own library.
require "socket"
require "greeting"

$stdout.sync = true
server = TCPServer.new("0.0.0.0", ENV.fetch("PORT").to_i)
loop do
  Thread.new(server.accept) do |client|
    client.each_line { |line| break if line == "\r\n" } # or to its end, of a client that only looks
    body = "#{Greeting} in ruby #{RUBY_VERSION}"
    client.write "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}"
    client.close
  end
end
