package exchange

import (
	"slices"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/wire"
)

// appendHead appends the head of the request as it is sent.
func (x *exchange) appendHead(p []byte) []byte {
	p = append(p, x.r.Method...)
	p = append(p, ' ')
	p = append(p, x.r.Target...)
	p = append(p, " HTTP/1.1\r\n"...)
	p = appendField(p, "Host", x.r.Host)
	p = x.appendPassed(p)
	p = x.appendOwn(p)
	p = x.appendFraming(p)
	return append(p, '\r', '\n')
}

// appendPassed appends the headers that pass unchanged.
func (x *exchange) appendPassed(p []byte) []byte {
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
		case x.u.kind == Node && wire.Internal(f.Key): // appendOwn appends it
		default:
			p = appendField(p, f.Key, f.Value)
		}
	}
	if cookies == nil {
		return p
	}
	if x.u.kind != Service {
		return appendField(p, "Cookie", strings.Join(cookies, "; "))
	}
	if kept := wire.TenantCookies(cookies); kept != "" {
		p = appendField(p, "Cookie", kept)
	}
	return p
}

// appendOwn appends the headers that the proxy itself sets.
func (x *exchange) appendOwn(p []byte) []byte {
	p = x.appendCaller(p, x.call.Caller())
	trailers := x.r.Has("Te", "trailers")
	if trailers {
		p = appendField(p, "Te", "trailers")
	}
	if x.expect {
		p = appendField(p, "Expect", "100-continue")
	}
	if x.upgrade != "" {
		p = appendField(p, "Connection", "Upgrade")
		p = appendField(p, "Upgrade", x.upgrade)
	} else if x.u.kind == Inner {
		p = appendField(p, "Connection", "close")
	}
	if trailers {
		p = appendField(p, "Connection", "TE") // or an intermediary may pass it on (RFC 9110, 10.1.4)
	}
	return p
}

// appendCaller appends what the upstream is told of the caller. The node that serves the
// request tells the service.
func (x *exchange) appendCaller(p []byte, caller *Caller) []byte {
	if x.u.kind == Node {
		p = appendField(p, wire.HeaderProtocol, strconv.Itoa(x.u.protocol()))
		p = appendField(p, wire.HeaderHops, strconv.Itoa(caller.Hops+1))
		p = appendField(p, wire.HeaderCallerIP, caller.IP)
		return appendField(p, wire.HeaderCallerProto, caller.Proto)
	}
	p = appendField(p, "X-Forwarded-For", caller.IP)
	p = appendField(p, "X-Real-Ip", caller.IP)
	p = appendField(p, "X-Forwarded-Proto", caller.Proto)
	p = appendField(p, "X-Forwarded-Host", x.r.Host)
	if x.of.Prefix != "" {
		p = appendField(p, wire.HeaderPrefix, x.of.Prefix)
	}
	return p
}

// appendFraming appends the headers that give the length of the body.
func (x *exchange) appendFraming(p []byte) []byte {
	switch r := x.r; {
	case r.Length > 0:
		p = append(p, "Content-Length: "...)
		p = strconv.AppendInt(p, r.Length, 10)
		p = append(p, '\r', '\n')
	case r.Length < 0:
		p = appendField(p, "Transfer-Encoding", "chunked")
		if names := trailerNames(r.Trailers); names != "" {
			p = appendField(p, "Trailer", names)
		}
	case r.Sized:
		p = appendField(p, "Content-Length", "0")
	}
	return p
}

// trailerNames returns the announced trailers that may pass.
func trailerNames(announced []string) string {
	names := slices.Sorted(slices.Values(announced))
	names = slices.DeleteFunc(names, func(name string) bool { return !wire.TrailerAllowed(name) })
	return strings.Join(names, ", ")
}

func appendField(p []byte, key, value string) []byte {
	p = append(p, key...)
	p = append(p, ':', ' ')
	p = append(p, value...)
	return append(p, '\r', '\n')
}
