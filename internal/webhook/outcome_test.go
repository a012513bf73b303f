package webhook

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// row is one line of the outcome table: a receiver, and the outcome of an event that is
// delivered to it.
type row struct {
	name     string
	url      func(t *testing.T) string
	attempts int
	status   int
	slow     bool // each attempt takes the whole timeout
	told     string
}

// Messages to the owner.
const (
	toldNothing = ""
	toldFinal   = ", which is final"
	toldServer  = "the receiver answered 5"
	toldNone    = "there was no answer; "
	toldLate    = "there was no complete answer within 5s"
)

// status is a receiver that answers with a status and a body.
func status(code int) func(*testing.T) string {
	return func(t *testing.T) string {
		return receive(t, func(w http.ResponseWriter, _ arrival) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
			if code != http.StatusNoContent && code != http.StatusNotModified {
				fmt.Fprintf(w, "said\n\t %d \x00\xff!", code)
			}
		}).url
	}
}

// raw is a receiver that does something on the bare connection once it has
// read the request.
func raw(do func(net.Conn)) func(*testing.T) string {
	return func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					if _, err := c.Read(make([]byte, 64<<10)); err == nil {
						do(c)
					}
				}()
			}
		}()
		return "http://" + l.Addr().String() + "/hook"
	}
}

// write is a receiver that writes something and waits for the other side.
func write(text string) func(*testing.T) string {
	return raw(func(c net.Conn) {
		io.WriteString(c, text)
		io.Copy(io.Discard, c)
	})
}

// dribble is a receiver that sends a byte now and then.
func dribble(head string) func(*testing.T) string {
	return raw(func(c net.Conn) {
		for text := head; ; text = "x" {
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

func refused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func reset(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }

func untrusted(t *testing.T) string {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = quietLog()
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

// oldTLS speaks no version of TLS that is still in use.
func oldTLS(t *testing.T) string {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = quietLog()
	server.TLS = &tls.Config{MaxVersion: tls.VersionTLS10}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL
}

func plainAsTLS(t *testing.T) string { return strings.Replace(status(200)(t), "http:", "https:", 1) }

func noSuchName(*testing.T) string { return "http://none.invalid/hook" }

func denied(*testing.T) string { return "http://10.1.2.3/hook" }

var outcomes = []row{
	{"200", status(200), 1, 200, false, toldNothing},
	{"201", status(201), 1, 201, false, toldNothing},
	{"204", status(204), 1, 204, false, toldNothing},
	{"299", status(299), 1, 299, false, toldNothing},
	{"300", status(300), 1, 300, false, toldNothing},
	{"301 is not followed", status(301), 1, 301, false, toldNothing},
	{"302 is not followed", status(302), 1, 302, false, toldNothing},
	{"304", status(304), 1, 304, false, toldNothing},
	{"307 is not followed", status(307), 1, 307, false, toldNothing},
	{"308 is not followed", status(308), 1, 308, false, toldNothing},
	{"399", status(399), 1, 399, false, toldNothing},
	{"400", status(400), 1, 400, false, toldFinal},
	{"401", status(401), 1, 401, false, toldFinal},
	{"404", status(404), 1, 404, false, toldFinal},
	{"408", status(408), 1, 408, false, toldFinal},
	{"410", status(410), 1, 410, false, toldFinal},
	{"422", status(422), 1, 422, false, toldFinal},
	{"429", status(429), 1, 429, false, toldFinal},
	{"499", status(499), 1, 499, false, toldFinal},
	{"500", status(500), 4, 500, false, toldServer},
	{"502", status(502), 4, 502, false, toldServer},
	{"503", status(503), 4, 503, false, toldServer},
	{"599", status(599), 4, 599, false, toldServer},
	{"600", status(600), 4, 0, false, toldNone},
	{"a switch of protocols", write("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), 4, 0, false, toldNone},
	{"refused", refused, 4, 0, false, toldNone},
	{"reset", raw(reset), 4, 0, false, toldNone},
	{"closed", raw(func(net.Conn) {}), 4, 0, false, toldNone},
	{"a body that breaks off", raw(func(c net.Conn) { io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf") }), 4, 0, false, toldNone},
	{"no HTTP", raw(func(c net.Conn) { io.WriteString(c, "220 mail.example.com ESMTP\r\n") }), 4, 0, false, toldNone},
	{"a head without end", write("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 32<<10)), 4, 0, false, toldNone},
	{"no such name", noSuchName, 4, 0, false, toldNone},
	{"denied", denied, 4, 0, false, toldNone},
	{"a certificate that nobody trusts", untrusted, 4, 0, false, toldNone},
	{"an old version of TLS", oldTLS, 4, 0, false, toldNone},
	{"https to a port for http", plainAsTLS, 4, 0, false, toldNone},
	{"nothing", write(""), 4, 0, true, toldLate},
	{"half a head", write("HTTP/1.1 200 OK\r\n"), 4, 0, true, toldLate},
	{"a body that never comes", write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), 4, 0, true, toldLate},
	{"a byte now and then", dribble("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"), 4, 0, true, toldLate},
	{"a head byte by byte", dribble("HTTP/1.1 200 OK\r\nX: "), 4, 0, true, toldLate},
	{"interim answers only", raw(func(c net.Conn) {
		for {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}), 4, 0, true, toldLate},
}

func TestOutcomes(t *testing.T) {
	var quick, slow []row
	for _, row := range outcomes {
		if row.slow {
			slow = append(slow, row)
		} else {
			quick = append(quick, row)
		}
	}
	checkOutcomes(t, patience, quick)
	checkOutcomes(t, 5*time.Second, slow)
}

// checkOutcomes delivers an event to each receiver, with a time limit for each attempt.
func checkOutcomes(t *testing.T, limit time.Duration, rows []row) {
	t.Helper()
	s := openStore(t)
	c := config(s)
	c.Timeout = limit
	d := New(c)
	d.transport = newTransport(newGuard(loopback, pool), resolver(t, func(string) []string { return nil }))
	begin(t, d)
	stacks := make([]*stack.Stack, len(rows))
	for i, row := range rows {
		stacks[i] = hook(t, s, row.url(t))
		record(t, s, stacks[i], extended())
	}
	for i, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			found := attempts(t, s, stacks[i], row.attempts)
			checkGaps(t, d.cfg, row, found)
			for _, a := range found {
				checkAttempt(t, row, a)
			}
		})
	}
	eventually(t, "nothing is pending any more", func() bool { return pendingOf(d) == 0 })
}

func checkGaps(t *testing.T, c Config, row row, found []store.Delivery) {
	t.Helper()
	for i, a := range found {
		if a.Attempt != i+1 {
			t.Fatalf("attempt %d came as number %d", a.Attempt, i+1)
		}
		if i == 0 {
			continue
		}
		least := c.Retries[i-1]
		if row.slow {
			least += c.Timeout
		}
		if gap := a.At.Sub(found[i-1].At); gap < least || gap > least+time.Minute {
			t.Errorf("attempt %d came %s after the one before, want %s or little more", a.Attempt, gap, least)
		}
	}
}

func checkAttempt(t *testing.T, row row, a store.Delivery) {
	t.Helper()
	if a.Status != row.status || !strings.Contains(a.Error, row.told) || (row.told == "") != (a.Error == "") {
		t.Errorf("attempt %d: status %d, %q; want %d, %q", a.Attempt, a.Status, a.Error, row.status, row.told)
	}
	if (a.Duration > 0) != (row.status != 0) {
		t.Errorf("attempt %d took %s; only a whole answer has a duration", a.Attempt, a.Duration)
	}
	words := fmt.Sprintf("said %d �!", row.status)
	if row.status == 0 || row.status == 204 || row.status == 304 {
		words = ""
	}
	if a.Words != words {
		t.Errorf("attempt %d: words %q, want %q", a.Attempt, a.Words, words)
	}
}

// The owner must not learn from a message which addresses and ports are there.
func TestOutcomes_WithoutAnAnswerReadTheSame(t *testing.T) {
	told := map[string]string{}
	for _, row := range outcomes {
		if row.told != toldNone {
			continue
		}
		s := openStore(t)
		c := config(s)
		c.Retries = []time.Duration{time.Hour}
		d := New(c)
		d.transport = newTransport(newGuard(loopback, pool), resolver(t, func(string) []string { return nil }))
		begin(t, d)
		k := hook(t, s, row.url(t))
		record(t, s, k, extended())
		a := attempts(t, s, k, 1)[0]
		told[fmt.Sprintf("%q %d %s %q", a.Error, a.Status, a.Duration, a.Words)] += row.name + ", "
	}
	if len(told) != 1 {
		t.Errorf("these can be told apart: %v", told)
	}
}

func TestOutcomes_OfALongAnswerIsReadInPart(t *testing.T) {
	const offered = 64 << 20
	sent := make(chan int64, 1)
	url := raw(func(c net.Conn) {
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", offered)
		n, _ := io.Copy(c, io.LimitReader(letters{}, offered))
		sent <- n
	})(t)
	s := openStore(t)
	begin(t, New(config(s)))
	k := hook(t, s, url)
	record(t, s, k, extended())
	a := attempts(t, s, k, 1)[0]
	if a.Status != 200 || a.Error != "" || a.Words != strings.Repeat("x", maxWords-1)+"…" {
		t.Errorf("status %d, %q, words %q", a.Status, a.Error, a.Words)
	}
	if n := <-sent; n >= offered/2 {
		t.Errorf("%d bytes of the answer were taken", n)
	}
}

// letters is an endless body.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
