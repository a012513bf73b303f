package edge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/wire"
)

// begin prepares the lane for an exchange.
func (l *lane) begin(id string) {
	l.id = id
	l.body = uploadBody{l: l, left: l.req.Length}
	l.last = l.req.Close
	l.begun, l.chunked, l.broken = false, false, false
	if l.req.Length == 0 {
		l.ahead.start()
	}
}

// finish ends the answer, and reports whether the connection may carry another request.
func (l *lane) finish() bool {
	if l.chunked && !l.broken {
		l.out = append(l.out, "0\r\n"...)
		for _, f := range l.trailers {
			l.out = appendField(l.out, f.Key, f.Value)
		}
		l.out = append(l.out, '\r', '\n')
	}
	l.Flush()
	if l.outBuf != nil {
		wire.Small.Put(l.outBuf)
	}
	l.out, l.outBuf, l.trailers, l.who.Watch, l.way = nil, nil, nil, nil, proxy.Way{}
	if l.body.left > 0 {
		l.c.unread.Store(true) // so the rest is read before the connection is closed
		return false
	}
	return !l.last && !l.broken
}

// Head implements exchange.Call, as do those below.
func (l *lane) Head() *wire.Request { return &l.req }

func (l *lane) Caller() *exchange.Caller { return &l.who }

func (l *lane) Context() context.Context { return l.ctx }

func (l *lane) OnLeave(abort func()) (stop func() bool) {
	l.mu.Lock()
	l.abort = abort
	left := l.left
	l.mu.Unlock()
	if left {
		abort()
	}
	return l.stop
}

func (l *lane) stopWatch() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abort = nil
	return !l.left
}

func (l *lane) Body() exchange.Body { return &l.body }

func (l *lane) Reply() exchange.Reply { return l }

// uploadBody is the body of a request, which has a length.
type uploadBody struct {
	l    *lane
	left int64 // bytes that have not been read
}

// Whole implements exchange.Body, as do those below.
func (b *uploadBody) Whole() []byte {
	if int64(len(b.l.have)) < b.left {
		return nil
	}
	whole := b.l.have[:b.left]
	b.Count(len(whole))
	b.l.have, b.left = b.l.have[len(whole):], 0
	b.l.ahead.start()
	return whole
}

func (b *uploadBody) Begin() { b.l.limit(time.Time{}) }

func (b *uploadBody) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), b.left)]
	if len(b.l.have) > 0 {
		n = copy(p, b.l.have)
		b.l.use(n)
	} else if n, err = b.l.nc.Read(p); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if b.left -= int64(n); b.left == 0 {
		err = nil // the end of a connection may come with the last bytes
		b.l.ahead.start()
	}
	return n, err
}

func (b *uploadBody) Trailers() []wire.Field { return nil }

func (b *uploadBody) SetReadDeadline(t time.Time) { b.l.limit(t) }

func (b *uploadBody) Count(n int) { b.l.way.Passed(n, 0) }

// Interim implements exchange.Reply, as do those below.
func (l *lane) Interim(status int, fields []wire.Field) {
	p := l.appendStatus(nil, status)
	p = l.appendFields(p, fields)
	p = append(p, '\r', '\n')
	if _, err := l.nc.Write(p); err != nil {
		l.broken = true
	}
}

func (l *lane) Begin(head *exchange.Head, last bool) {
	l.last = l.last || last
	l.chunked = head.Body && head.Length < 0
	p := l.beginHead(head.Status)
	p = l.appendFields(p, head.Fields)
	if !hasDate(head.Fields) {
		p = append(p, date()...)
	}
	p = appendLength(p, head.Length)
	if l.chunked {
		p = append(p, "Transfer-Encoding: chunked\r\n"...)
		for _, name := range head.Trailers {
			p = appendField(p, "Trailer", name)
		}
	}
	l.endHead(p)
}

// beginHead begins the head of an answer, which the caller appends to.
func (l *lane) beginHead(status int) []byte {
	l.way.Answered(status)
	l.begun = true
	l.outBuf = wire.Small.Get()
	return l.appendStatus((*l.outBuf)[:0], status)
}

// endHead ends the head, which is not sent yet.
func (l *lane) endHead(p []byte) {
	if l.last = l.last || l.srv.edge.leaving.Load() || l.srv.lanes.closing.Load(); l.last {
		p = append(p, "Connection: close\r\n"...)
	}
	l.out = append(p, '\r', '\n')
}

// appendLength appends Content-Length, unless the length is negative.
func appendLength(p []byte, length int64) []byte {
	if length < 0 {
		return p
	}
	p = append(p, "Content-Length: "...)
	p = strconv.AppendInt(p, length, 10)
	return append(p, '\r', '\n')
}

// sendReady sends an answer that is ready.
func (l *lane) sendReady(a *wire.Ready) {
	defer l.way.End()
	p := append(l.beginHead(a.Status), a.Head...)
	if a.NoIndex {
		p = append(p, "X-Robots-Tag: noindex\r\n"...)
	}
	p = append(p, date()...)
	l.endHead(appendLength(p, a.Length))
	if a.File == nil {
		_, _ = l.Write(a.Body) // an error ends the connection
		return
	}
	defer a.File.Close()
	if err := l.sendFile(&io.LimitedReader{R: a.File, N: a.Length}); err != nil {
		l.broken = true // what is there must not be taken for the whole
	}
}

// sendFile sends a part of a file, without a copy through this process if possible.
func (l *lane) sendFile(part *io.LimitedReader) error {
	if to := l.Direct(); to != nil {
		_, err := to.ReadFrom(part)
		if err == nil && part.N > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	buf := wire.Large.Get()
	defer wire.Large.Put(buf)
	for part.N > 0 {
		n, err := part.Read(*buf)
		if _, failed := l.Write((*buf)[:n]); failed != nil {
			return failed
		}
		if err != nil && part.N > 0 {
			return err
		}
	}
	return nil
}

// appendStatus appends the status line, and the id of the request.
func (l *lane) appendStatus(p []byte, status int) []byte {
	p = append(p, "HTTP/1.1 "...)
	p = strconv.AppendInt(p, int64(status), 10)
	p = append(p, ' ')
	if text := http.StatusText(status); text != "" {
		p = append(p, text...)
	} else {
		p = append(p, "status code "...)
		p = strconv.AppendInt(p, int64(status), 10)
	}
	p = append(p, '\r', '\n')
	return appendField(p, wire.HeaderRequestID, l.id)
}

// appendFields appends the fields of an answer but for what the edge has set.
func (l *lane) appendFields(p []byte, fields []wire.Field) []byte {
	for i := range fields {
		if f := &fields[i]; f.Key != wire.HeaderRequestID {
			p = appendField(p, f.Key, f.Value)
		}
	}
	return p
}

func appendField(p []byte, key, value string) []byte {
	p = append(p, key...)
	p = append(p, ':', ' ')
	p = append(p, value...)
	return append(p, '\r', '\n')
}

func hasDate(fields []wire.Field) bool {
	for i := range fields {
		if fields[i].Key == "Date" {
			return true
		}
	}
	return false
}

// today is the field Date of a second.
type today struct {
	second int64
	field  []byte
}

var lastDate atomic.Pointer[today]

// date returns the field Date of now.
func date() []byte {
	now := time.Now()
	d := lastDate.Load()
	if d == nil || d.second != now.Unix() {
		d = &today{now.Unix(), appendField(nil, "Date", now.UTC().Format(http.TimeFormat))}
		lastDate.Store(d)
	}
	return d.field
}

func (l *lane) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if l.broken {
		return 0, net.ErrClosed
	}
	l.way.Passed(0, len(p))
	if l.chunked {
		l.out = strconv.AppendInt(l.out, int64(len(p)), 16)
		l.out = append(l.out, '\r', '\n')
	}
	if len(l.out)+len(p)+2 <= cap(l.out) {
		if l.out = append(l.out, p...); l.chunked {
			l.out = append(l.out, '\r', '\n')
		}
		return len(p), nil
	}
	var ending []byte
	if l.chunked {
		ending = crlf
	}
	if err := l.send(l.out, p, ending); err != nil {
		return 0, err
	}
	return len(p), nil
}

var crlf = []byte("\r\n")

// send writes parts at once, the first of which is out, to which the next part of the answer
// is appended from then on.
func (l *lane) send(parts ...[]byte) error {
	var err error
	if l.socket != nil {
		_, err = l.socket.WriteParts(parts...)
	} else {
		for i := 0; i < len(parts) && err == nil; i++ {
			_, err = l.nc.Write(parts[i])
		}
	}
	l.out = l.out[:0]
	if err != nil {
		l.broken = true
	}
	return err
}

func (l *lane) Direct() io.ReaderFrom {
	if l.socket == nil || l.chunked {
		return nil
	}
	return l
}

// ReadFrom lets the kernel move the bytes of r to the caller, if r is a socket or a file.
func (l *lane) ReadFrom(r io.Reader) (int64, error) {
	l.Flush()
	if l.broken {
		return 0, net.ErrClosed
	}
	n, err := l.c.TCPConn.ReadFrom(r)
	l.way.Passed(0, int(n))
	if err != nil {
		l.broken = true
	}
	return n, err
}

func (l *lane) Flush() {
	if len(l.out) == 0 || l.broken {
		return
	}
	if _, err := l.nc.Write(l.out); err != nil {
		l.broken = true
	}
	l.out = l.out[:0]
}

func (l *lane) Trailers(fields []wire.Field) { l.trailers = fields }

func (l *lane) Abort() {
	l.Flush()
	if !l.begun {
		l.way.Unanswered()
	}
	l.broken = true
}

var errNoSwitch = errors.New("this connection does not change its protocol")

func (l *lane) Switch([]wire.Field, string) (*exchange.Switched, error) { return nil, errNoSwitch }

// pageRequest is the request as a page of the proxy sees it.
func (l *lane) pageRequest() *http.Request {
	return &http.Request{Header: http.Header{"Accept": l.req.Values("Accept")}}
}

// pageWriter writes a page of the proxy, which comes in one piece.
type pageWriter struct {
	l      *lane
	header http.Header
}

func (w *pageWriter) Header() http.Header { return w.header }

func (w *pageWriter) WriteHeader(status int) {
	head := &exchange.Head{Status: status, Length: -1, Body: w.l.req.Method != http.MethodHead}
	for key, values := range w.header {
		for _, v := range values {
			if key == "Content-Length" {
				head.Length, _ = strconv.ParseInt(v, 10, 64)
				continue
			}
			head.Fields = append(head.Fields, wire.Field{Key: key, Value: v})
		}
	}
	w.l.Begin(head, false)
}

func (w *pageWriter) Write(p []byte) (int, error) {
	if w.l.req.Method == http.MethodHead {
		return len(p), nil
	}
	return w.l.Write(p)
}
