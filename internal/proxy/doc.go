// Package proxy carries requests for public URLs to the processes and sites of
// stacks.
//
// Routes maps a host name to a Target without a lock: the table leads from the host to
// its stack, whose entry has the target. Set replaces the entry of a stack in one step
// and returns the targets no longer in use; the caller drains these before it stops
// their processes.
//
// A request to a process is one exchange: it takes a connection from the target's pool,
// writes the request and reads the answer, all on net/http's goroutine for the caller.
// Only a request with a body needs a second goroutine, so that an answer that comes
// before the end of the body reaches the caller at once. Bytes are passed on as they
// come: the proxy does not flush while it can read more without waiting, and holds
// nothing back while it waits.
//
// The Watch of a request's Caller receives the socket that carries the request, so that
// the edge can see whether bytes still move there.
//
// A stack of another node has a single entry for all its hosts, which names the node
// (Peer). The request is forwarded over a pool of connections as it is, with what the
// edge knows of its caller in internal headers, and the owner decides about all else. A
// stack that moves has an entry that holds: requests wait for the next one.
//
// A service may have paths that lead to other services of its stack. They belong to the
// service, whichever of its hosts a request has come to, and to the entry, so they switch
// with the targets.
//
// If no target can answer, the proxy answers itself: with HTML for a browser, and with
// a JSON object that has the single field detail for all others.
//
// Code in this package touches connections, in both directions, and the heads of
// requests and answers. It starts and stops nothing, and knows neither the database nor
// the engine.
package proxy
