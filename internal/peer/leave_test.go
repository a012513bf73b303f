package peer_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/peer"
)

// A server that stops ends what other nodes have asked it, whichever version they speak.
func TestForward_EndsWhatIsUnderWayWhenTheOwnersServerStops(t *testing.T) {
	for version := 1; version <= peer.Protocol; version++ {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			const requests = 10
			begun, goOn := make(chan struct{}, requests), make(chan struct{})
			letGo := sync.OnceFunc(func() { close(goOn) })
			w := newWorld(t)
			w.give(theStack, "n2")
			first, second := w.joinAt(version, "n1", noAPI("n1")), w.joinAt(version, "n2", noAPI("n2"))
			second.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "begun, ")
				http.NewResponseController(w).Flush()
				begun <- struct{}{}
				<-goOn
				io.WriteString(w, "ended")
			}))
			for _, n := range []*node{first, second} {
				if err := n.table.Load(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			client := newClient(t)
			var asked sync.WaitGroup
			defer asked.Wait()
			defer letGo()
			for range requests {
				asked.Go(func() {
					if text, err := first.post(client, "/", ""); err != nil || text != "begun, ended" {
						t.Errorf("%q %v", text, err)
					}
				})
			}
			for range requests {
				within(t, "all requests begin", begun)
			}
			stopped := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
				defer cancel()
				stopped <- second.peers.Shutdown(ctx)
			}()
			select {
			case err := <-stopped:
				t.Fatalf("the server stopped before its requests had ended: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
			letGo()
			asked.Wait()
			if err := <-stopped; err != nil {
				t.Errorf("the server stopped with %v", err)
			}
		})
	}
}

// A node that stands still keeps its connections open and answers nothing. What it was asked ends
// all the same, and when it goes on it is asked again.
func TestPing_BreaksOffWhatANodeThatStandsStillWasAsked(t *testing.T) {
	w, first, _ := pair(t, echo, noAPI)
	w.mu.Lock()
	way := newWay(t, w.addrs["n2"])
	w.addrs["n2"] = way.addr
	w.mu.Unlock()
	ping := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), silence/2)
		defer cancel()
		_, err := first.pool.Ping(ctx, "n2")
		return err
	}
	ask := func() (int, string) {
		res, text := first.ask(t, "POST", theHost, "/", strings.NewReader(strings.Repeat("x", atLeast)), nil)
		return res.StatusCode, text
	}
	if status, text := ask(); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	way.block()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if status, text := ask(); status != 502 || !strings.Contains(text, "broke off before it answered") {
			t.Errorf("%d %s", status, text)
		}
	}()
	within(t, "the request is on the connection that was there before", way.stuck)
	for over := false; !over; {
		if err := ping(); err == nil {
			t.Fatal("a node that stands still answers a ping")
		}
		select {
		case <-answered:
			over = true
		default:
		}
	}
	way.unblock()
	if status, text := ask(); status != 200 {
		t.Errorf("once it goes on: %d %s", status, text)
	}
}

// way is the way to a server, on which nothing passes while it is blocked.
type way struct {
	addr  string
	open  sync.RWMutex  // locked while it is blocked
	stuck chan struct{} // has a value once atLeast bytes wait, which came the same way
}

// atLeast is more than is said on a connection beside requests.
const atLeast = 4 << 10

func newWay(t *testing.T, to string) *way {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	w := &way{addr: l.Addr().String(), stuck: make(chan struct{}, 1)}
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			c, err := net.Dial("tcp", to)
			if err != nil {
				from.Close()
				continue
			}
			go w.pass(c, from)
			go w.pass(from, c)
		}
	}()
	return w
}

func (w *way) block()   { w.open.Lock() }
func (w *way) unblock() { w.open.Unlock() }

// pass passes what arrives on one connection to another until either ends.
func (w *way) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if !w.open.TryRLock() {
			for n < atLeast {
				more, err := from.Read(buf[n:])
				if err != nil {
					return
				}
				n += more
			}
			select {
			case w.stuck <- struct{}{}:
			default:
			}
			w.open.RLock()
		}
		_, err = to.Write(buf[:n])
		w.open.RUnlock()
		if err != nil {
			return
		}
	}
}
