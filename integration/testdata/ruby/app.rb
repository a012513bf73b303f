# Answers with the text of a gem, through nothing but Ruby's own library.
require "socket"
require "greeting"

$stdout.sync = true
server = TCPServer.new("0.0.0.0", ENV.fetch("PORT").to_i)
loop do
  Thread.new(server.accept) do |client|
    line = client.gets until line.to_s == "\r\n"
    body = "#{Greeting} in ruby #{RUBY_VERSION}"
    client.write "HTTP/1.1 200 OK\r\nContent-Length: #{body.bytesize}\r\nConnection: close\r\n\r\n#{body}"
    client.close
  end
end
