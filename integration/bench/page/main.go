// Command page is a stack's program for the benchmarks of requests. It answers each request on
// kept connections with 1 KB, or with 100 KB at /100k.txt, and reads bodies that have a length.
// It does no more than that, since it shares a core with what sends the requests.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
)

var small, large = answer(1 << 10), answer(100 << 10)

// answer returns a whole answer with a body of so many bytes.
func answer(size int) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("0123456789abcde\n", size/16))
}

func main() {
	l, err := net.Listen("tcp", ":"+os.Getenv("PORT"))
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go serve(c)
		}
	}
	log.Fatal(err)
}

// serve answers the requests of a connection until it ends.
func serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReaderSize(c, 32<<10)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		reply := small
		if bytes.Contains(line, []byte(" /100k.txt ")) {
			reply = large
		}
		length, err := bodyLength(in)
		if err != nil {
			return
		}
		if _, err := in.Discard(length); err != nil {
			return
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

var contentLength = []byte("content-length:")

// bodyLength reads the fields of a head and returns its Content-Length.
func bodyLength(in *bufio.Reader) (length int, err error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return length, nil
		}
		if len(line) > len(contentLength) && bytes.EqualFold(line[:len(contentLength)], contentLength) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return 0, err
			}
		}
	}
}
