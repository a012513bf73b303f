package exchange

import (
	"bufio"
	"slices"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/wire"
)

// writeHead writes the request's head into the connection's buffer.
func (x *exchange) writeHead() {
	bw, r := x.c.bw, x.r
	bw.WriteString(r.Method)
	bw.WriteByte(' ')
	bw.WriteString(r.Target)
	bw.WriteString(" HTTP/1.1\r\n")
	writeField(bw, "Host", r.Host)
	x.writePassed()
	x.writeOwn()
	x.writeFraming()
	bw.WriteString("\r\n")
}

// writePassed writes the headers that pass unchanged.
func (x *exchange) writePassed() {
	var hop, cookies []string
	for i := range x.r.Fields {
		if f := &x.r.Fields[i]; f.Key == "Connection" {
			hop, _ = wire.ConnectionOptions(hop, []string{f.Value})
		}
	}
	for i := range x.r.Fields {
		f := &x.r.Fields[i]
		switch {
		case f.Key == "Cookie":
			cookies = append(cookies, f.Value)
		case wire.OwnedByProxy(f.Key), hop != nil && slices.Contains(hop, f.Key) && !wire.SetByEdge(f.Key):
		case x.u.kind == Node && wire.Internal(f.Key): // writeOwn writes it
		default:
			writeField(x.c.bw, f.Key, f.Value)
		}
	}
	if cookies == nil {
		return
	}
	if x.u.kind != Service {
		writeField(x.c.bw, "Cookie", strings.Join(cookies, "; "))
	} else if kept := wire.TenantCookies(cookies); kept != "" {
		writeField(x.c.bw, "Cookie", kept)
	}
}

// writeOwn writes the headers that the proxy itself sets.
func (x *exchange) writeOwn() {
	bw := x.c.bw
	x.writeCaller(x.call.Caller())
	if x.r.Has("Te", "trailers") {
		writeField(bw, "Te", "trailers")
	}
	if x.expect {
		writeField(bw, "Expect", "100-continue")
	}
	switch {
	case x.upgrade != "":
		writeField(bw, "Connection", "Upgrade")
		writeField(bw, "Upgrade", x.upgrade)
	case x.u.kind == Inner:
		writeField(bw, "Connection", "close")
	}
}

// writeCaller writes what the upstream is told of the caller. The node that serves the
// request tells the service.
func (x *exchange) writeCaller(caller *Caller) {
	bw := x.c.bw
	if x.u.kind == Node {
		writeField(bw, wire.HeaderProtocol, strconv.Itoa(x.u.protocol()))
		writeField(bw, wire.HeaderHops, strconv.Itoa(caller.Hops+1))
		writeField(bw, wire.HeaderCallerIP, caller.IP)
		writeField(bw, wire.HeaderCallerProto, caller.Proto)
		return
	}
	writeField(bw, "X-Forwarded-For", caller.IP)
	writeField(bw, "X-Real-Ip", caller.IP)
	writeField(bw, "X-Forwarded-Proto", caller.Proto)
	writeField(bw, "X-Forwarded-Host", x.r.Host)
	if x.of.Prefix != "" {
		writeField(bw, wire.HeaderPrefix, x.of.Prefix)
	}
}

// writeFraming writes the headers that give the length of the body.
func (x *exchange) writeFraming() {
	bw, r := x.c.bw, x.r
	switch {
	case r.Length > 0:
		writeField(bw, "Content-Length", strconv.FormatInt(r.Length, 10))
	case r.Length < 0:
		writeField(bw, "Transfer-Encoding", "chunked")
		if names := trailerNames(r.Trailers); names != "" {
			writeField(bw, "Trailer", names)
		}
	case r.Sized:
		writeField(bw, "Content-Length", "0")
	}
}

// trailerNames returns the announced trailers that may pass.
func trailerNames(announced []string) string {
	names := slices.Sorted(slices.Values(announced))
	names = slices.DeleteFunc(names, func(name string) bool { return !wire.TrailerAllowed(name) })
	return strings.Join(names, ", ")
}

func writeField(bw *bufio.Writer, key, value string) {
	bw.WriteString(key)
	bw.WriteString(": ")
	bw.WriteString(value)
	bw.WriteString("\r\n")
}
