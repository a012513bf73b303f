// Package edge is the one public listener: a net/http server whose handler identifies
// the caller, gives every request an id, and splits requests by Host between the public
// URLs of services (package proxy) and the API and pages.
//
// Connections begin in the first of two lanes: it serves plain requests for services (see
// wire.Scanner) on a goroutine of the connection, without net/http. The first request that is
// anything else hands its connection over to net/http for good, with the bytes as they came.
// Both lanes carry requests by package exchange, with the same rules.
//
// The API's server listens in memory and is another target of the same streaming proxy
// (see Inner). The caller can read an answer that comes before the end of its upload:
// the edge closes the connection for writing, then reads and discards a limited rest of
// the upload before it closes.
//
// The edge cuts off an exchange with a service on which no byte moves. It asks the
// sockets now and then how much has moved, since a blocked write does not show whether
// a slow caller still receives something. This does not apply to the API.
//
// Connections follow the framing of HTTP/1, in TLS after decryption, to see each
// request's head as the caller sent it: what net/http hides from handlers can smuggle
// requests (see framing).
//
// Beside a listener that speaks TLS there may be a plain one, which only answers
// certificate authorities and sends callers to https (see PlainServer).
//
// Every error of the edge is a JSON object with the single field detail, including
// the errors that net/http writes for requests that it cannot parse. There are two
// exceptions: such errors on TLS connections, where the bytes pass encrypted, and
// callers that do not send their headers in time, who get no answer.
//
// Code in this package touches connections and the heads of requests and answers. It
// knows no stack but what package proxy says of a host, and no row.
package edge
