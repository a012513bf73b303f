// Package exchange carries requests to what answers them over HTTP/1.1: a process of a
// tenant, a server inside this process, or another node.
//
// A request is one exchange: it takes a connection from the upstream's pool, writes the
// request and reads the answer, all on the goroutine of the caller. Only a request with a
// body needs a second goroutine, so that an answer that comes before the end of the body
// reaches the caller at once. Bytes are passed on as they come: an exchange does not flush
// while it can read more without waiting, and holds nothing back while it waits.
//
// What a request comes from is a Call, which may belong to net/http or to a lane of the
// edge. The Watch of its Caller receives the line that carries the request, so that the
// edge can see whether bytes still move there.
//
// Code in this package touches connections to upstreams. It knows neither routes nor pages.
package exchange
