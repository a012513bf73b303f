// Command page answers every request with 1 KB on kept connections: a stack's program for the
// benchmarks of requests.
package main

import (
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	text := []byte(strings.Repeat("0123456789abcde\n", 64))
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write(text) //nolint:errcheck // the client has gone
	})))
}
