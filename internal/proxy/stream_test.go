package proxy_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/proxy"
)

// TestProxy_HandsOnEachEventAsItComes lets the service send an event only when
// the client has read the one before: one byte kept back and nothing moves.
func TestProxy_HandsOnEachEventAsItComes(t *testing.T) {
	for name, head := range map[string]string{
		"chunked":     "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
		"until close": "HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
		"length":      "HTTP/1.1 200 OK\r\nContent-Length: 80\r\n\r\n",
		"long length": "HTTP/1.1 200 OK\r\nContent-Length: 1000080\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next := make(chan int)
			backend := script(t, func(c net.Conn, _ *bufio.Reader, _ string) {
				io.WriteString(c, head)
				for i := range next {
					if name == "chunked" {
						fmt.Fprintf(c, "8\r\ndata: %d\n\r\n", i)
					} else {
						fmt.Fprintf(c, "data: %d\n", i)
					}
				}
				if name == "chunked" {
					io.WriteString(c, "0\r\n\r\n")
				}
			})
			f := newFront(t, backend, proxy.Options{})
			res, err := newClient(t).Do(request(t, "GET", f.addr, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			br := bufio.NewReader(res.Body)
			for i := range 10 {
				next <- i
				if line, err := br.ReadString('\n'); line != fmt.Sprintf("data: %d\n", i) || err != nil {
					t.Fatalf("event %d: %q, %v", i, line, err)
				}
			}
			close(next)
			if rest, err := io.ReadAll(br); len(rest) > 0 || (err != nil) != (name == "long length") {
				t.Errorf("the end: %q, %v", rest, err)
			}
		})
	}
}

// TestProxy_RunsBothWaysAtOnce sends a line only when the echo of the one
// before has arrived.
func TestProxy_RunsBothWaysAtOnce(t *testing.T) {
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		rc.EnableFullDuplex()
		rc.Flush()
		br := bufio.NewReader(r.Body)
		for {
			line, err := br.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "echo "+line)
			rc.Flush()
		}
	}))
	f := newFront(t, backend, proxy.Options{})
	pr, pw := io.Pipe()
	res, err := newClient(t).Do(request(t, "POST", f.addr, "/", pr))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	br := bufio.NewReader(res.Body)
	for i := range 5 {
		fmt.Fprintln(pw, i)
		if line, err := br.ReadString('\n'); line != fmt.Sprintf("echo %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	pw.Close()
	if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
		t.Errorf("the end: %q, %v", rest, err)
	}
}

func TestProxy_Carries64MBUpWhole(t *testing.T) {
	const size = 64 << 20
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(w, "%d %x %v %d", n, h.Sum(nil), err, r.ContentLength)
	}))
	f := newFront(t, backend, proxy.Options{})
	for _, length := range []int64{size, -1} {
		h := sha256.New()
		body := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{1}), size), h)
		r := request(t, "PUT", f.addr, "/", body).WithContext(t.Context())
		r.ContentLength = length
		_, got := send(t, r)
		if want := fmt.Sprintf("%d %x <nil> %d", size, h.Sum(nil), length); got != want {
			t.Errorf("length %d: %s, want %s", length, got, want)
		}
	}
}

// TestProxy_HandsOnAnAnswerBeforeTheBodysEnd refuses an upload whose client
// goes on only after it has seen the answer.
func TestProxy_HandsOnAnAnswerBeforeTheBodysEnd(t *testing.T) {
	for _, framing := range []string{"Content-Length: 1000000", "Transfer-Encoding: chunked"} {
		backend := says(t, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\nConnection: close\r\n\r\ntoo big")
		f := newFront(t, backend, proxy.Options{})
		c := dial(t, f.addr)
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+testHost+"\r\n"+framing+"\r\n\r\n5\r\nfirst")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != 413 || string(body) != "too big" || err != nil || !res.Close {
			t.Errorf("%s: %d %q %v, close %t", framing, res.StatusCode, body, err, res.Close)
		}
	}
}

// TestProxy_SendsTheRestToAServiceThatAnsweredEarly: an answer of success does
// not end the upload, for the service may go on reading behind it.
func TestProxy_SendsTheRestToAServiceThatAnsweredEarly(t *testing.T) {
	rest := make(chan string, 1)
	backend := script(t, func(c net.Conn, br *bufio.Reader, _ string) {
		io.WriteString(c, "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok")
		b := make([]byte, 10)
		io.ReadFull(br, b)
		rest <- string(b)
	})
	f := newFront(t, backend, proxy.Options{})
	c := dial(t, f.addr)
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: "+testHost+"\r\nContent-Length: 10\r\n\r\nfirst")
	br := bufio.NewReader(c)
	if line, err := br.ReadString('\n'); !strings.Contains(line, "202") {
		t.Fatal(line, err)
	}
	io.WriteString(c, "-last")
	if got := within(t, "the rest", rest); got != "first-last" {
		t.Errorf("the service read %q", got)
	}
}

func TestProxy_RefusesABodyThatIsNotFramedRight(t *testing.T) {
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadAll(r.Body); err == nil {
			t.Error("the service took a broken body for a whole one")
		}
	}))
	f := newFront(t, backend, proxy.Options{})
	got := raw(t, f.addr, "POST / HTTP/1.1\r\nHost: "+testHost+"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 400 ") || !strings.Contains(got, `{"detail":`) {
		t.Errorf("answer %q", got)
	}
}

// TestProxy_StreamsInFlatMemory moves 500 MB down and then up, and samples the
// heap of this process, backend and client included, on the way.
func TestProxy_StreamsInFlatMemory(t *testing.T) {
	const size, limit = 500_000_000, 24 << 20
	block := make([]byte, 64<<10)
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			io.Copy(io.Discard, r.Body)
			return
		}
		for left := size; left > 0; left -= len(block) {
			if _, err := w.Write(block[:min(left, len(block))]); err != nil {
				return
			}
		}
	}))
	f := newFront(t, backend, proxy.Options{})
	runtime.GC()
	start, peak := heap(), uint64(0)
	meter := meterFunc(func(n int) { peak = max(peak, heap()) })
	res, err := newClient(t).Do(request(t, "GET", f.addr, "/", nil).WithContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(&sampler{meter: meter}, res.Body)
	res.Body.Close()
	if n != size || err != nil {
		t.Fatalf("down: %d bytes, %v", n, err)
	}
	up := request(t, "PUT", f.addr, "/", io.TeeReader(io.LimitReader(zeros{}, size), &sampler{meter: meter})).WithContext(t.Context())
	up.ContentLength = size
	if res, body := send(t, up); res.StatusCode != 200 {
		t.Fatal(res.Status, body)
	}
	t.Logf("heap %d KB before, at most %d KB during 1 GB", start>>10, peak>>10)
	if peak > start+limit {
		t.Errorf("the heap grew by %d MB", (peak-start)>>20)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

type meterFunc func(n int)

// sampler calls its meter every 16 MB.
type sampler struct {
	meter meterFunc
	since int
}

func (s *sampler) Write(p []byte) (int, error) {
	if s.since += len(p); s.since > 16<<20 {
		s.meter(s.since)
		s.since = 0
	}
	return len(p), nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
