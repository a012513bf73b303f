package proxy

import (
	"bufio"
	"context"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/wire"
)

// call is a request of net/http, as an exchange takes it.
type call struct {
	w      http.ResponseWriter
	r      *http.Request
	head   wire.Request
	caller exchange.Caller
	count  *tally // counts what passes; nil if nobody does

	begun bool // the head of an answer is on its way
}

func newCall(w http.ResponseWriter, r *http.Request) *call {
	c := &call{w: w, r: r, caller: callerOf(r)}
	c.count, _ = w.(*tally)
	c.head = wire.Request{
		Method: r.Method, Target: requestTarget(r), Host: r.Host, Major: r.ProtoMajor, Minor: r.ProtoMinor,
		Fields: make([]wire.Field, 0, len(r.Header)+1), Sized: r.Header["Content-Length"] != nil,
	}
	for key, values := range r.Header {
		for _, v := range values {
			c.head.Fields = append(c.head.Fields, wire.Field{Key: key, Value: v})
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		c.head.Length = r.ContentLength
	}
	for name := range r.Trailer {
		c.head.Trailers = append(c.head.Trailers, name)
	}
	return c
}

// requestTarget returns the request's target in origin form, byte for byte as the
// caller sent it if it was in that form.
func requestTarget(r *http.Request) string {
	if strings.HasPrefix(r.RequestURI, "/") || r.RequestURI == "*" {
		return r.RequestURI
	}
	return r.URL.RequestURI()
}

// Head implements exchange.Call, as do those below.
func (c *call) Head() *wire.Request { return &c.head }

func (c *call) Caller() *exchange.Caller { return &c.caller }

func (c *call) Context() context.Context { return c.r.Context() }

func (c *call) OnLeave(abort func()) (stop func() bool) {
	return context.AfterFunc(c.r.Context(), abort)
}

func (c *call) Body() exchange.Body { return body{c} }

func (c *call) Reply() exchange.Reply { return c }

// body is the body of a call.
type body struct{ c *call }

// Whole implements exchange.Body, as do those below.
func (b body) Whole() []byte { return nil }

func (b body) Begin() {
	// Without it net/http reads the whole body before it sends the answer's head.
	_ = http.NewResponseController(b.c.w).EnableFullDuplex() // HTTP/2 is duplex by itself
}

func (b body) Read(p []byte) (int, error) { return b.c.r.Body.Read(p) }

func (b body) Trailers() (fields []wire.Field) {
	for key, values := range b.c.r.Trailer {
		for _, v := range values {
			fields = append(fields, wire.Field{Key: key, Value: v})
		}
	}
	return fields
}

func (b body) SetReadDeadline(t time.Time) {
	_ = http.NewResponseController(b.c.w).SetReadDeadline(t) // where it cannot be set, the next byte wakes a read
}

func (b body) Count(n int) { b.c.count.received().Add(uint64(n)) }

// Interim implements exchange.Reply, as do those below.
func (c *call) Interim(status int, fields []wire.Field) {
	if !c.r.ProtoAtLeast(1, 1) {
		return
	}
	header := c.w.Header()
	saved := header.Clone()
	addFields(header, fields)
	c.w.WriteHeader(status)
	clear(header)
	maps.Copy(header, saved)
}

func (c *call) Begin(head *exchange.Head, last bool) {
	c.begun = true
	to := c.w.Header()
	addFields(to, head.Fields)
	if head.Length >= 0 {
		to["Content-Length"] = []string{strconv.FormatInt(head.Length, 10)}
	}
	if to["Content-Type"] == nil {
		to["Content-Type"] = nil // keeps net/http from guessing one
	}
	if head.Trailers != nil {
		to["Trailer"] = head.Trailers
	}
	if last {
		closeAfter(c.w, c.r)
	}
	c.w.WriteHeader(head.Status)
}

// addFields adds an answer's fields to a header. An id of the request that is there stays.
func addFields(to http.Header, fields []wire.Field) {
	values := make([]string, len(fields))
	_, hasID := to[wire.HeaderRequestID]
	for i, f := range fields {
		if hasID && f.Key == wire.HeaderRequestID {
			continue
		}
		values[i] = f.Value
		if have := to[f.Key]; have != nil {
			to[f.Key] = append(have, f.Value)
		} else {
			to[f.Key] = values[i : i+1 : i+1]
		}
	}
}

// closeAfter makes the connection to the caller end with the answer.
func closeAfter(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
}

func (c *call) Write(p []byte) (int, error) { return c.w.Write(p) }

func (c *call) Direct() io.ReaderFrom {
	if c.r.ProtoMajor != 1 || c.r.TLS != nil {
		return nil
	}
	rf, _ := c.w.(io.ReaderFrom)
	return rf
}

func (c *call) Flush() {
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
}

func (c *call) Trailers(fields []wire.Field) {
	for _, f := range fields {
		c.w.Header().Add(http.TrailerPrefix+f.Key, f.Value)
	}
}

func (c *call) Abort() {
	if c.begun {
		c.Flush()
	}
	panic(http.ErrAbortHandler)
}

// maxSwitch is how long a caller may take to read the 101 answer.
const maxSwitch = 5 * time.Minute

func (c *call) Switch(fields []wire.Field, protocol string) (*exchange.Switched, error) {
	header := c.w.Header()
	addFields(header, fields)
	conn, buffered, err := http.NewResponseController(c.w).Hijack()
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(maxSwitch))
	if err := writeSwitch(conn, header, protocol); err != nil {
		conn.Close()
		return nil, nil
	}
	conn.SetDeadline(time.Time{})
	c.count.answer(http.StatusSwitchingProtocols)
	return &exchange.Switched{Conn: conn, Read: buffered.Reader, In: c.count.received(), Out: c.count.sent()}, nil
}

func writeSwitch(conn net.Conn, header http.Header, protocol string) error {
	bw := bufio.NewWriter(conn)
	bw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + protocol + "\r\n")
	if err := header.Write(bw); err != nil {
		return err
	}
	bw.WriteString("\r\n")
	return bw.Flush()
}
