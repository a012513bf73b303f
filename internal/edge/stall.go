package edge

import (
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/exchange"
)

// looks is how many times within the limit stalls looks at each exchange.
const looks = 20

// stalls ends the exchanges with services on which no byte moves for limit. It asks the
// sockets now and then, which costs a request nothing.
type stalls struct {
	limit time.Duration
	log   *slog.Logger

	mu      sync.Mutex
	watches map[*watch]struct{}
	timer   *time.Timer // runs while there are watches
}

// watch watches the exchanges of an HTTP/1 connection, one after the other, or a single
// exchange of HTTP/2.
type watch struct {
	stalls *stalls
	caller func() (bytes uint64, waiting bool) // as exchange.Line.Traffic
	cut    func(waiting bool)                  // ends the exchange; waiting: with bytes that the caller does not take

	mu      sync.Mutex
	open    bool          // there is an exchange
	service exchange.Line // nil: no process or node has the request
	bytes   uint64        // that had moved at the last look
	quiet   int           // looks since then
}

// Service is that of exchange.Watch.
func (w *watch) Service(line exchange.Line) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.service = line
}

// beginExchange starts watching an exchange.
func (w *watch) beginExchange() {
	w.mu.Lock()
	w.open, w.quiet = true, 0
	w.mu.Unlock()
}

// endExchange stops watching; afterwards the exchange is not cut off.
func (w *watch) endExchange() {
	w.mu.Lock()
	w.open, w.service = false, nil
	w.mu.Unlock()
}

// follow ends the watch when net/http is done with a request or a connection.
func (w *watch) follow(state http.ConnState) {
	switch state {
	case http.StateIdle:
		w.endExchange()
	case http.StateHijacked, http.StateClosed:
		w.endExchange()
		w.stalls.removeWatch(w)
	}
}

// look cuts the exchange off if nothing has moved for too long. While bytes wait for
// the caller, bytes that the service sends do not count.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.open {
		return
	}
	bytes, waiting := w.caller()
	if !waiting && w.service != nil {
		n, _ := w.service.Traffic()
		bytes += n
	}
	w.quiet++
	if bytes != w.bytes {
		w.bytes, w.quiet = bytes, 0
	}
	// A few more looks give the proxy time to say what is wrong.
	if w.quiet > looks+2 {
		w.open = false
		w.stalls.log.Info("an exchange between a client and a service was idle for too long; closed", "client_takes_nothing", waiting)
		w.cut(waiting)
	}
}

func (s *stalls) addWatch(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = struct{}{}
	if s.timer == nil {
		s.timer = time.AfterFunc(s.limit/looks, s.look)
	}
}

func (s *stalls) removeWatch(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// look looks at every exchange, as long as there are any.
func (s *stalls) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.watches {
		w.look()
	}
	if len(s.watches) == 0 {
		s.timer = nil
		return
	}
	s.timer.Reset(s.limit / looks)
}

// watch watches a request for a service. The handler must use the returned writer, and
// call end when it returns.
func (s *stalls) watch(w http.ResponseWriter, r *http.Request, c *conn) (watched http.ResponseWriter, _ exchange.Watch, end func()) {
	if r.ProtoMajor == 1 {
		return w, s.watchConn(c), func() {}
	}
	return s.watchStream(w, r)
}

// watchConn watches the request that c carries until the last byte of its answer is
// written, as connState notices.
func (s *stalls) watchConn(c *conn) *watch {
	if c.watch == nil {
		c.watch = &watch{stalls: s, caller: c.lineOf().Traffic, cut: c.cutOff}
		s.addWatch(c.watch)
	}
	c.watch.beginExchange()
	return c.watch
}

// lineOf returns the line of the connection.
func (c *conn) lineOf() exchange.Line {
	if c.stream != nil {
		return c.stream
	}
	return exchange.NewSocket(c.TCPConn)
}

// cutOff closes the connection. What the caller does not receive is dropped.
func (c *conn) cutOff(waiting bool) {
	if c.stream != nil {
		c.stream.Close()
		return
	}
	if waiting {
		c.TCPConn.SetLinger(0)
	}
	c.closeNow()
	if c.cutting != nil {
		c.cutting()
	}
}

// stream counts the bytes of a stream of HTTP/2, which shares its socket with others.
type stream struct {
	http.ResponseWriter
	bytes   atomic.Uint64
	waiting atomic.Bool // for the caller to take a write
}

// watchStream watches over one stream; see watch.
func (s *stalls) watchStream(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *watch, func()) {
	st := &stream{ResponseWriter: w}
	rc := http.NewResponseController(w)
	watched := &watch{
		stalls: s,
		caller: func() (uint64, bool) { return st.bytes.Load(), st.waiting.Load() },
		cut: func(bool) {
			past := time.Unix(1, 0)
			_ = rc.SetReadDeadline(past) // a stream has both deadlines
			_ = rc.SetWriteDeadline(past)
		},
	}
	if r.Body != http.NoBody {
		r.Body = &streamBody{r.Body, st}
	}
	watched.beginExchange()
	s.addWatch(watched)
	return st, watched, func() {
		watched.endExchange() // rc is not to be used after the handler
		s.removeWatch(watched)
		_ = rc.SetWriteDeadline(time.Now().Add(s.limit)) // for what is still to be written
	}
}

// writePiece is how many bytes a write passes on at a time, so that a slow caller's
// progress shows.
const writePiece = 16 << 10

// Write passes p on in pieces.
func (s *stream) Write(p []byte) (int, error) {
	defer s.wait()()
	written := 0
	for {
		piece := p[written:min(len(p), written+writePiece)]
		n, err := s.ResponseWriter.Write(piece)
		s.bytes.Add(uint64(n))
		if written += n; err != nil || written == len(p) {
			return written, err
		}
	}
}

// Flush passes on what is buffered.
func (s *stream) Flush() {
	defer s.wait()()
	s.ResponseWriter.(http.Flusher).Flush()
}

// Unwrap returns the writer inside, for http.ResponseController.
func (s *stream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// wait records that the caller has to receive something until done is called.
func (s *stream) wait() (done func()) {
	s.waiting.Store(true)
	return func() { s.waiting.Store(false) }
}

// streamBody counts what the caller sends.
type streamBody struct {
	io.ReadCloser
	stream *stream
}

// Read reads the body and counts the bytes.
func (b *streamBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.stream.bytes.Add(uint64(n))
	return n, err
}
