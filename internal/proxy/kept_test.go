package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-host/berth/internal/proxy"
)

const strayAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstray"

// liar answers every request with its path. After its first answer, which may have an
// odd form, it sends bytes that belong to no request, and closes lied once they have
// arrived.
type liar struct {
	answer string // the first one; "" for one like the others
	stray  string

	first atomic.Bool
	lied  chan struct{}
	conns atomic.Int32
}

func (l *liar) talk(t *testing.T, c net.Conn, br *bufio.Reader, head string) {
	l.conns.Add(1)
	for {
		_, path, _ := strings.Cut(head, " ")
		path, _, _ = strings.Cut(path, " ")
		answer, lie := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path), l.first.CompareAndSwap(false, true)
		if lie && l.answer != "" {
			answer = l.answer
		}
		io.WriteString(c, answer)
		if lie {
			<-l.lied // the answer has been read
			io.WriteString(c, l.stray)
			awaitArrival(t, c)
			l.lied <- struct{}{}
		}
		var err error
		if head, err = readHead(br); err != nil {
			return
		}
	}
}

func readHead(br *bufio.Reader) (string, error) {
	var head strings.Builder
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return "", err
		}
		if head.WriteString(line); line == "\r\n" {
			return head.String(), nil
		}
	}
}

// awaitArrival returns once the peer's kernel has all that was written to c, or
// has closed the connection.
func awaitArrival(t *testing.T, c net.Conn) {
	const closed = 7 // TCP_CLOSE
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	for {
		var info *unix.TCPInfo
		var failed error
		if err := raw.Control(func(fd uintptr) { info, failed = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO) }); err != nil || failed != nil {
			t.Error(err, failed)
			return
		}
		if info.State == closed || info.Unacked == 0 && info.Notsent_bytes == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestProxy_GivesEachClientItsOwnAnswer has a service lie once, and lets its
// bytes arrive before the next of 100 clients asks.
func TestProxy_GivesEachClientItsOwnAnswer(t *testing.T) {
	for name, c := range map[string]struct{ method, answer, stray string }{
		"late body after HEAD":       {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n", strayAnswer},
		"late body after 204":        {"GET", "HTTP/1.1 204 No Content\r\n\r\n", strayAnswer},
		"announced body of a 204":    {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 60\r\n\r\n", strayAnswer},
		"body that comes with a 204": {"GET", "HTTP/1.1 204 No Content\r\nContent-Length: 60\r\n\r\n" + strayAnswer, ""},
		"late body after 304":        {"GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 60\r\n\r\n", strayAnswer},
		"bytes beyond the length":    {"GET", "", strayAnswer},
		"bytes beyond the chunks":    {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n/\r\n0\r\n\r\n", strayAnswer},
		"a single byte":              {"GET", "", "\n"},
		"408 on idle":                {"GET", "", "HTTP/1.1 408 Request Timeout\r\nContent-Length: 5\r\nConnection: close\r\n\r\nstray"},
	} {
		for _, next := range []string{"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "POST", "PATCH"} {
			t.Run(name+", then "+next, func(t *testing.T) {
				t.Parallel()
				l := &liar{answer: c.answer, stray: c.stray, lied: make(chan struct{})}
				f := newFront(t, script(t, func(c net.Conn, br *bufio.Reader, head string) { l.talk(t, c, br, head) }), proxy.Options{})
				client := newClient(t)
				ask := func(method, path string) (int, string) {
					t.Helper()
					res, err := client.Do(request(t, method, f.addr, path, nil))
					if err != nil {
						t.Fatal(err)
					}
					defer res.Body.Close()
					body, err := io.ReadAll(res.Body)
					if err != nil {
						t.Fatal(err)
					}
					return res.StatusCode, string(body)
				}
				ask(c.method, "/")
				l.lied <- struct{}{}
				within(t, "the stray bytes", l.lied)
				clients := 100
				if next != "GET" {
					clients = 3
				}
				for i := range clients {
					own := fmt.Sprintf("/%d", i)
					if next == "HEAD" {
						if status, _ := ask(next, own); status != 200 {
							t.Fatalf("client %d: status %d", i, status)
						}
						continue
					}
					if status, body := ask(next, own); status != http.StatusBadGateway && body != own {
						t.Fatalf("client %d: status %d, body %q", i, status, body)
					}
				}
				if caught := name != "announced body of a 204"; caught && int(l.conns.Load()) != clients+1 {
					t.Errorf("%d connections for %d requests: those of a service that was caught are used again", l.conns.Load(), clients+1)
				}
			})
		}
	}
}

// crowd is a service that answers every request with its path. It gives its first
// answers once pool requests have come, each on a connection of its own; on some of
// these it then sends bytes that belong to no request.
type crowd struct {
	pool, liars int32

	come atomic.Int32
	full chan struct{} // closed when the pool is full
	lie  chan struct{} // closed when the answers have been read
	lied sync.WaitGroup
}

func (s *crowd) talk(t *testing.T, c net.Conn, br *bufio.Reader, head string) {
	for place := s.come.Add(1); ; place = 0 {
		if place == s.pool {
			close(s.full)
		}
		<-s.full
		_, path, _ := strings.Cut(head, " ")
		path, _, _ = strings.Cut(path, " ")
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
		if 0 < place && place <= s.liars {
			<-s.lie
			io.WriteString(c, strayAnswer)
			awaitArrival(t, c)
			s.lied.Done()
		}
		var err error
		if head, err = readHead(br); err != nil {
			return
		}
	}
}

// TestProxy_GivesClientsAtOnceTheirOwnAnswers fills the pool before the service lies
// on some of its connections, and has 100 clients ask at the same time.
func TestProxy_GivesClientsAtOnceTheirOwnAnswers(t *testing.T) {
	const pool, clients = 10, 100
	for _, liars := range []int32{1, pool / 2, pool} {
		for _, method := range []string{"GET", "PUT", "DELETE", "POST"} {
			t.Run(fmt.Sprintf("%d of %d lie, then %s", liars, pool, method), func(t *testing.T) {
				t.Parallel()
				s := &crowd{pool: pool, liars: liars, full: make(chan struct{}), lie: make(chan struct{})}
				s.lied.Add(int(liars))
				f := newFront(t, script(t, func(c net.Conn, br *bufio.Reader, head string) { s.talk(t, c, br, head) }), proxy.Options{})
				atOnce := func(n int, method string) {
					var all sync.WaitGroup
					for i := range n {
						r := request(t, method, f.addr, fmt.Sprintf("/%s/%d", method, i), nil)
						client := newClient(t)
						all.Go(func() {
							res, err := client.Do(r)
							if err != nil {
								t.Error(err)
								return
							}
							defer res.Body.Close()
							body, err := io.ReadAll(res.Body)
							if err != nil || res.StatusCode != http.StatusBadGateway && string(body) != r.URL.Path {
								t.Errorf("%s: status %d, body %q, %v", r.URL.Path, res.StatusCode, body, err)
							}
						})
					}
					all.Wait()
				}
				atOnce(pool, "GET")
				close(s.lie)
				s.lied.Wait()
				atOnce(clients, method)
			})
		}
	}
}
