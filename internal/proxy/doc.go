// Package proxy carries requests for public URLs to the processes and sites of
// stacks.
//
// Routes maps a host name to a Target without a lock: the table leads from the host to
// its stack, whose entry has the target. Set replaces the entry of a stack in one step
// and returns the targets no longer in use; the caller drains these before it stops
// their processes.
//
// A request to a process is one exchange (package exchange).
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
// Code in this package touches requests and answers as net/http has them. It starts and
// stops nothing, and knows neither the database nor the engine.
package proxy
