// Package wire reads and writes the bytes of HTTP/1 as a proxy must: heads of answers,
// header fields and which of them may pass, cookies, frames of WebSocket, and the buffers
// that bodies pass through.
//
// Its rules are those of both sides of a proxy, and stand here once. Code in this package
// knows no connection, no server and no route, and does not import net/http.
package wire
