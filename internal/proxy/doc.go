// Package proxy carries requests for public URLs to the processes and sites of
// stacks.
//
// Routes maps a host name to a Target with one lock-free read; Set exchanges
// everything that a stack has in one step and returns the targets that nobody
// points to any more, which the caller drains before it stops their processes.
//
// A request to a process is one exchange: it takes a connection from the
// target's pool, writes the request and reads the answer on the goroutine that
// net/http serves the caller with. Only a request with a body needs a second
// goroutine, so that an answer which comes before the body's end reaches the
// caller at once. Bytes are handed on as they come: nothing is flushed while
// more can be read at once, and nothing is kept back while waiting for more.
//
// The Watch of a request's Caller is told which socket carries the request, so
// that the edge can see whether bytes still move there.
//
// What cannot be answered by a target gets a page: HTML for a browser, a JSON
// object with the one field detail for everything else.
package proxy
