package proxy

import (
	"bufio"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// writeHead writes the request's head into the connection's buffer.
func (x *exchange) writeHead() {
	bw, r := x.c.bw, x.r
	bw.WriteString(r.Method)
	bw.WriteByte(' ')
	bw.WriteString(requestTarget(r))
	bw.WriteString(" HTTP/1.1\r\n")
	writeField(bw, "Host", r.Host)
	x.writePassed()
	x.writeOwn()
	x.writeFraming()
	bw.WriteString("\r\n")
}

// requestTarget returns the request's target in origin form, byte for byte as the
// caller sent it if it was in that form.
func requestTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// writePassed writes the headers that pass unchanged.
func (x *exchange) writePassed() {
	hop, _ := connectionOptions(nil, x.r.Header["Connection"])
	for key, values := range x.r.Header {
		if ownedByProxy(key) || slices.Contains(hop, key) && !setByEdge(key) {
			continue
		}
		if x.u.kind == node && Internal(key) {
			continue // writeOwn writes it
		}
		for _, v := range values {
			writeField(x.c.bw, key, v)
		}
	}
	if cookies := x.r.Header["Cookie"]; cookies != nil {
		if x.u.kind != service {
			writeField(x.c.bw, "Cookie", strings.Join(cookies, "; "))
		} else if kept := tenantCookies(cookies); kept != "" {
			writeField(x.c.bw, "Cookie", kept)
		}
	}
}

// writeOwn writes the headers that the proxy itself sets.
func (x *exchange) writeOwn() {
	bw := x.c.bw
	x.writeCaller(callerOf(x.r))
	if te := x.r.Header["Te"]; te != nil && hasToken(te, "trailers") {
		writeField(bw, "Te", "trailers")
	}
	if x.expect {
		writeField(bw, "Expect", "100-continue")
	}
	switch {
	case x.upgrade != "":
		writeField(bw, "Connection", "Upgrade")
		writeField(bw, "Upgrade", x.upgrade)
	case x.u.kind == inner:
		writeField(bw, "Connection", "close")
	}
}

// writeCaller writes what the upstream is told of the caller. The node that serves the
// request tells the service.
func (x *exchange) writeCaller(caller Caller) {
	bw := x.c.bw
	if x.u.kind == node {
		writeField(bw, HeaderProtocol, strconv.Itoa(x.u.protocol()))
		writeField(bw, HeaderHops, strconv.Itoa(caller.Hops+1))
		writeField(bw, HeaderCallerIP, caller.IP)
		writeField(bw, HeaderCallerProto, caller.Proto)
		return
	}
	writeField(bw, "X-Forwarded-For", caller.IP)
	writeField(bw, "X-Real-Ip", caller.IP)
	writeField(bw, "X-Forwarded-Proto", caller.Proto)
	writeField(bw, "X-Forwarded-Host", x.r.Host)
	if x.of.prefix != "" {
		writeField(bw, headerPrefix, x.of.prefix)
	}
}

// writeFraming writes the headers that give the length of the body.
func (x *exchange) writeFraming() {
	bw, r := x.c.bw, x.r
	switch {
	case x.hasBody && r.ContentLength > 0:
		writeField(bw, "Content-Length", strconv.FormatInt(r.ContentLength, 10))
	case x.hasBody:
		writeField(bw, "Transfer-Encoding", "chunked")
		if names := trailerNames(r.Trailer); names != "" {
			writeField(bw, "Trailer", names)
		}
	case r.Header["Content-Length"] != nil:
		writeField(bw, "Content-Length", "0")
	}
}

// trailerNames returns the announced trailers that may pass.
func trailerNames(trailer http.Header) string {
	names := slices.Sorted(maps.Keys(trailer))
	names = slices.DeleteFunc(names, func(name string) bool { return !trailerAllowed(name) })
	return strings.Join(names, ", ")
}

func writeField(bw *bufio.Writer, key, value string) {
	bw.WriteString(key)
	bw.WriteString(": ")
	bw.WriteString(value)
	bw.WriteString("\r\n")
}
