// Package edge is the one public listener: a net/http server whose handler
// finds out who the caller is, gives every request an id, and splits requests
// by Host between the public URLs of services (package proxy) and the API and
// pages.
//
// The API's server listens in memory and is one more target of the same
// streaming proxy (see Inner). An answer that comes before the end of an
// upload stays readable: the connection is closed for writing, and a bounded
// rest of the upload is read and thrown away before it goes.
//
// An exchange with a service on which no byte moves is cut off: what moves is
// read from the sockets now and then, since a blocked write does not show whether
// a slow caller still takes something. The API is left alone.
//
// Its connections follow the framing of HTTP/1, in TLS after the decryption, to see
// each request's head as the caller sent it: what net/http hides from handlers is
// what smuggles requests (see framing).
//
// Every error of its own is a JSON object with the one field detail, also
// those which net/http writes by itself for requests that it cannot parse. Not
// reached are those on TLS connections, where the bytes pass encrypted, and
// the silence towards a caller that does not send its headers in time.
package edge
