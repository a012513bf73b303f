// Package api is the JSON API: every route under /v0, and /healthz. It turns requests
// into calls on the store or the host, and errors into a status and {"detail": …}; it
// decides nothing about a stack's life itself.
//
// The API is a Fiber app behind the edge, over an in-memory listener (package
// appserver). Code around the app settles three things that fasthttp leaves to its
// user, so handlers can ignore them: it discards a body that a handler did not read to
// its end or ends the connection (middleware.go, body.go), notices when a caller hangs
// up while a handler waits (conn.go), and makes every error JSON, including the
// framework's own (errors.go). The middleware also answers OPTIONS, admits pages of any
// origin, and logs and counts each request.
//
// The handlers are methods of API. They use parts that do not know each other: gate
// finds out who calls and what they may do (access.go), quotas counts requests
// (quota.go), uploads reads, queues and unpacks uploads (upload.go, unpack.go), and
// receipts answers repeated requests with the same Idempotency-Key as one
// (idempotency.go). Only uploads touches the disk.
package api
