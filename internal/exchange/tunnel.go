package exchange

import (
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/wire"
)

// tunnel is an upgraded connection; it carries bytes both ways until both sides are
// done.
type tunnel struct {
	conn     *conn
	down, up *direction   // to the caller, to the upstream
	moved    atomic.Int64 // when bytes last came, in Unix nanoseconds
	silence  atomic.Pointer[time.Timer]
}

// direction is one direction of a tunnel.
type direction struct {
	from   io.Reader
	source net.Conn // what from reads
	moved  *atomic.Int64
	bytes  *atomic.Uint64

	mu     sync.Mutex // held while writing to
	to     net.Conn
	frames *wire.Frames // where WebSocket frames begin; nil for other protocols
	closed bool         // a close frame was sent in the peer's name: the rest is dropped
}

const (
	// farewell is how long both sides have to answer a close frame.
	farewell = 2 * time.Second
	// maxSilence ends a tunnel through which no byte comes either way.
	maxSilence = time.Hour
)

// tunnel switches protocols: it passes the 101 to the caller and copies both ways. If
// it fails, the caller has seen nothing yet.
func (x *exchange) tunnel() error {
	token := x.c.head.Get("Upgrade")
	if x.upgrade == "" || !wire.HasToken([]string{x.upgrade}, token) {
		return wire.BadAnswer("it switches to a protocol that was not asked for")
	}
	caller, err := x.reply.Switch(x.passedFields(), token)
	if err != nil {
		return err
	}
	x.stop()
	c := x.c
	defer x.u.discard(c)
	x.c = nil
	if caller == nil {
		return nil
	}
	defer caller.Conn.Close()
	c.SetDeadline(time.Time{})
	t := newTunnel(c, caller, strings.EqualFold(token, "websocket"))
	if !x.u.enter(t) {
		t.goAway()
		return nil
	}
	defer x.u.leave(t)
	t.copyBoth()
	return nil
}

func newTunnel(c *conn, caller *Switched, websocket bool) *tunnel {
	t := &tunnel{conn: c}
	t.moved.Store(time.Now().UnixNano())
	t.down = &direction{from: c.br, source: c, to: caller.Conn, moved: &t.moved, bytes: caller.Out}
	t.up = &direction{from: caller.Read, source: caller.Conn, to: c.Conn, moved: &t.moved, bytes: caller.In}
	if websocket {
		t.down.frames, t.up.frames = &wire.Frames{}, &wire.Frames{}
	}
	return t
}

// enter adds t to the tunnels that a drain closes; it returns false once the drain is
// over.
func (u *Upstream) enter(t *tunnel) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return false
	}
	u.tunnels[t] = struct{}{}
	return true
}

func (u *Upstream) leave(t *tunnel) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.tunnels, t)
}

// copyBoth copies until both directions have ended, or no byte has come for too long.
func (t *tunnel) copyBoth() {
	t.silence.Store(time.AfterFunc(maxSilence, t.endSilence))
	defer func() { t.silence.Load().Stop() }()
	var up sync.WaitGroup
	up.Go(t.up.copy)
	t.down.copy()
	up.Wait()
}

// endSilence ends the tunnel if no byte has come for too long, and otherwise schedules
// the next check.
func (t *tunnel) endSilence() {
	if rest := maxSilence - time.Since(time.Unix(0, t.moved.Load())); rest > 0 {
		t.silence.Load().Reset(rest)
		return
	}
	t.goAway()
}

// copy copies one direction. It passes on the end of the stream; the other direction
// may go on.
func (d *direction) copy() {
	err := d.copyBytes()
	if err != nil && !errors.Is(err, io.EOF) {
		d.to.Close()
		d.source.Close()
		return
	}
	d.closeWrite()
}

func (d *direction) copyBytes() error {
	buf := wire.Small.Get()
	defer wire.Small.Put(buf)
	for {
		n, err := d.from.Read(*buf)
		if n > 0 {
			d.moved.Store(time.Now().UnixNano())
			d.bytes.Add(uint64(n))
			if werr := d.write((*buf)[:n]); werr != nil {
				return werr
			}
		}
		if err != nil {
			return err
		}
	}
}

func (d *direction) write(p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	if d.frames != nil {
		d.frames.Advance(p)
	}
	_, err := d.to.Write(p)
	return err
}

// closeWrite passes on the end of the stream.
func (d *direction) closeWrite() {
	if cw, ok := d.to.(interface{ CloseWrite() error }); ok {
		cw.CloseWrite()
		return
	}
	d.to.Close()
}

// goAway ends a tunnel that is silent or whose upstream is about to stop. WebSocket
// peers get a close frame with code 1001 and a moment to answer it; if a frame is half
// written, there is no room for one, and the connection just ends.
func (t *tunnel) goAway() {
	end := time.Now().Add(farewell)
	for _, d := range []*direction{t.down, t.up} {
		d.to.SetWriteDeadline(end) // frees a write to a peer that does not read
		if d.frames == nil || !d.sendClose(d == t.up) {
			d.to.Close()
			continue
		}
		d.to.SetReadDeadline(end)
	}
}

// sendClose writes a close frame unless another frame is half written, and reports
// whether it did. Frames to the upstream are masked.
func (d *direction) sendClose(masked bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.frames.Between() {
		return false
	}
	d.closed = true
	const goingAway = 1001
	frame := []byte{0x88, 2, goingAway >> 8, goingAway & 0xff}
	if masked {
		frame = []byte{0x88, 0x80 | 2, 0, 0, 0, 0, goingAway >> 8, goingAway & 0xff} // a mask of zeros changes nothing
	}
	_, err := d.to.Write(frame)
	return err == nil
}
