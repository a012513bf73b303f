// Package api is the JSON API: every route under /v0, and /healthz. It turns a
// request into a call on the store or the host and an error into a status and
// {"detail": …}; it decides nothing about a stack's life itself.
//
// It is Fiber behind the edge, over an in-memory listener (package appserver). Three
// things that fasthttp leaves to its user are settled once, around the Fiber app, so
// that no handler has to think of them: a body that a handler did not read to its
// end is discarded or ends the connection (middleware.go, body.go), a caller that
// hangs up while a handler waits is noticed (conn.go), and every error, the
// framework's own included, is JSON (errors.go). The middleware also answers OPTIONS,
// lets pages of any origin ask, and logs and counts each request.
//
// The handlers are methods of API. What they stand on has walls of its own: the gate
// says who calls and what they may do (access.go), quotas count (quota.go), uploads
// reads, queues and unpacks (upload.go, unpack.go), receipts make one of the requests
// with the same Idempotency-Key (idempotency.go). Only uploads touches the disk.
package api
