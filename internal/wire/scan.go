package wire

import (
	"bytes"
	"net/textproto"
	"strings"
)

// Verdict is what Scan makes of bytes.
type Verdict int

const (
	Partial Verdict = iota // the head has not ended
	Plain                  // a request that Scan reads
	Other                  // one that it does not, or none at all
)

// maxFields limits the fields of a head that Scan reads.
const maxFields = 100

// span is a part of a head.
type span struct{ from, to int }

// line is a field of a head: its name and its value.
type line struct{ name, value span }

// Scanner reads the heads of plain requests: of HTTP/1.1, for a path, with one Host, at most
// one Content-Length, nothing else that frames a body, changes the protocol or asks for an
// answer before the body, and no byte that two programs could read in two ways. Every head
// that it reads it reads as net/http does; of others it says so.
type Scanner struct {
	lines []line
}

// keptFields is for how many fields Rest keeps room; few requests have more.
const keptFields = 16

// Rest has s and r, which Scan has filled, hold on to no head, nor to the room that only one with
// many fields needs.
func (s *Scanner) Rest(r *Request) {
	if cap(s.lines) > keptFields {
		s.lines = nil
	}
	fields := r.Fields[:0]
	if cap(fields) > keptFields {
		fields = nil
	}
	clear(fields[:cap(fields)])
	*r = Request{Fields: fields}
}

// Scan reads the head of a request into r from the beginning of p, which it does not keep.
// It returns the length of the head, or what it is instead of a plain one.
func (s *Scanner) Scan(r *Request, p []byte) (n int, v Verdict) {
	s.lines = s.lines[:0]
	first, n := cutPlain(p, 0)
	if n <= 0 {
		return 0, Verdict(-n)
	}
	method, target, ok := scanRequestLine(p[:first])
	if !ok {
		return 0, Other
	}
	for {
		end, next := cutPlain(p, n)
		if next <= 0 {
			return 0, Verdict(-next)
		}
		if end == n {
			n = next
			break
		}
		l, ok := scanField(p, n, end)
		if !ok || len(s.lines) == maxFields {
			return 0, Other
		}
		s.lines = append(s.lines, l)
		n = next
	}
	text := string(p[:n])
	*r = Request{
		Method: text[:method], Target: text[target.from:target.to], Major: 1, Minor: 1,
		Fields: r.Fields[:0],
	}
	if !s.fill(r, text) {
		return 0, Other
	}
	return n, Plain
}

// cutPlain returns where the line that begins at from ends, and where the next one begins.
// That is 0 if the line has no end yet, and -Other if it does not end in CRLF.
func cutPlain(p []byte, from int) (end, next int) {
	lf := bytes.IndexByte(p[from:], '\n')
	if lf < 0 {
		return 0, -int(Partial)
	}
	lf += from
	if lf == from || p[lf-1] != '\r' {
		return 0, -int(Other)
	}
	return lf - 1, lf + 1
}

// scanRequestLine returns the end of the method, and the target.
func scanRequestLine(p []byte) (method int, target span, ok bool) {
	const version = " HTTP/1.1"
	end := len(p) - len(version)
	if end < 0 || string(p[end:]) != version {
		return 0, span{}, false
	}
	for method < end && 'A' <= p[method] && p[method] <= 'Z' {
		method++
	}
	if method == 0 || method+1 >= end || p[method] != ' ' || p[method+1] != '/' || string(p[:method]) == "CONNECT" {
		return 0, span{}, false
	}
	target = span{method + 1, end}
	if method+2 < end && p[method+2] == '/' {
		return 0, span{}, false // the name of a host, for some
	}
	return method, target, plainTarget(p[target.from:end])
}

// plainTarget reports whether a target has only bytes that may stand in one, and escapes
// only what can be unescaped.
func plainTarget(p []byte) bool {
	for i := 0; i < len(p); i++ {
		switch {
		case p[i] == '%':
			if i+2 >= len(p) || !isHex(p[i+1]) || !isHex(p[i+2]) {
				return false
			}
		case !targetBytes[p[i]]:
			return false
		}
	}
	return true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// targetBytes may stand in a target (RFC 3986, 3.3 and 3.4), nameBytes in the name of a field
// (RFC 9110, 5.6.2), but for the underscore, and hostBytes in a Host that is a name or an
// IPv4 address with an optional port.
var (
	targetBytes = among("-._~!$&'()*+,;=:@/?")
	nameBytes   = among("!#$%&'*+-.^`|~")
	hostBytes   = among("-._:")
)

// among returns which bytes are letters, digits or others.
func among(others string) (in [256]bool) {
	for c := range in {
		b := byte(c)
		in[c] = '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || strings.IndexByte(others, b) >= 0
	}
	return in
}

// scanField returns the parts of a field that is on the line from..end.
func scanField(p []byte, from, end int) (l line, ok bool) {
	colon := from
	for colon < end && nameBytes[p[colon]] {
		colon++
	}
	if colon == from || colon == end || p[colon] != ':' {
		return line{}, false
	}
	value := span{colon + 1, end}
	for value.from < value.to && isBlank(p[value.from]) {
		value.from++
	}
	for value.to > value.from && isBlank(p[value.to-1]) {
		value.to--
	}
	for _, c := range p[value.from:value.to] {
		if c < ' ' && c != '\t' || c > '~' {
			return line{}, false
		}
	}
	return line{span{from, colon}, value}, true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// fill gives r its fields from the text of a head, and reports whether it is a plain request.
func (s *Scanner) fill(r *Request, text string) bool {
	var seen struct{ host, connection, id, pragma, cache bool }
	for _, l := range s.lines {
		f := Field{textproto.CanonicalMIMEHeaderKey(text[l.name.from:l.name.to]), text[l.value.from:l.value.to]}
		ok := true
		switch f.Key {
		case "Host":
			ok = !seen.host && plainHost(f.Value)
			r.Host, seen.host = f.Value, true
		case "Content-Length":
			ok = !r.Sized && r.takeLength(f.Value)
			r.Sized = true
		case "Connection":
			ok = !seen.connection && r.takeConnection(f.Value)
			seen.connection = true
		case HeaderRequestID:
			ok, seen.id = !seen.id, true
		case "Pragma":
			seen.pragma = true
		case "Cache-Control":
			seen.cache = true
		case "Transfer-Encoding", "Te", "Trailer", "Upgrade", "Expect", "Http2-Settings":
			return false
		}
		if !ok || Internal(f.Key) {
			return false
		}
		if f.Key != "Host" {
			r.Fields = append(r.Fields, f)
		}
	}
	return seen.host && (!seen.pragma || seen.cache) // net/http adds Cache-Control to a Pragma
}

func plainHost(host string) bool {
	for i := range len(host) {
		if !hostBytes[host[i]] {
			return false
		}
	}
	return host != ""
}

// takeLength reads a Content-Length.
func (r *Request) takeLength(value string) bool {
	if value == "" || len(value) > 18 {
		return false
	}
	for i := range len(value) {
		if value[i] < '0' || value[i] > '9' {
			return false
		}
		r.Length = r.Length*10 + int64(value[i]-'0')
	}
	return true
}

// takeConnection reads a Connection that says only whether the connection ends.
func (r *Request) takeConnection(value string) bool {
	r.Close = strings.EqualFold(value, "close")
	return r.Close || strings.EqualFold(value, "keep-alive")
}
