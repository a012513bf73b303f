// Command answer is the smallest program that a stack can run: it answers every request
// with 200 and uses very little memory, so that the benchmarks can run a hundred of it.
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

// answer replies to the first request; it assumes that the head arrives in one piece.
func answer(conn net.Conn) {
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 4096)); err == nil {
		fmt.Fprint(conn, reply)
	}
}
