// Command answer is the smallest program that a stack can run: it answers every
// request with 200 and takes next to no memory, so that the benchmarks can have
// a hundred of it.
package main

import (
	"fmt"
	"net"
	"os"
)

const reply = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n"

func main() {
	l, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	for err == nil {
		var conn net.Conn
		if conn, err = l.Accept(); err == nil {
			go answer(conn)
		}
	}
	fmt.Fprintln(os.Stderr, "answer:", err)
	os.Exit(1)
}

// answer replies to the request that arrives first; its head is taken to come
// in one piece.
func answer(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 4096)); err == nil {
		fmt.Fprint(conn, reply)
	}
}
