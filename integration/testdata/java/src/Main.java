package hello;

import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;

/** Answers every request with the text of another class. */
public class Main {
    public static void main(String[] args) throws Exception {
        var address = new InetSocketAddress(Integer.parseInt(System.getenv("PORT")));
        var server = HttpServer.create(address, 0);
        server.createContext("/", exchange -> {
            byte[] body = Greeting.text().getBytes();
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
