package hello;

class Greeting {
    static String text() {
        return "hello from a class in java " + Runtime.version().feature();
    }
}
