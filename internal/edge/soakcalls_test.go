package edge

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// soakService is what all callers of the soak call. Its paths name what it does, and how much.
func soakService(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	what, much, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	n, _ := strconv.Atoi(much)
	switch what {
	case "length":
		w.Header().Set("Content-Length", much)
		writeSoakBytes(w, n)
	case "chunked":
		rc.Flush()
		writeSoakBytes(w, n)
	case "digest":
		h := sha256.New()
		io.Copy(h, r.Body)
		fmt.Fprintf(w, "%x", h.Sum(nil))
	case "think":
		wait(r.Context(), time.Duration(n)*time.Millisecond)
		io.WriteString(w, "thought")
	case "hang":
		<-r.Context().Done()
	case "events":
		for i := range n {
			fmt.Fprintf(w, "data: %d\n\n", i)
			rc.Flush()
			wait(r.Context(), 3*time.Millisecond)
		}
	case "refuse":
		http.Error(w, "too much", http.StatusRequestEntityTooLarge)
	case "abort":
		w.Header().Set("Content-Length", "100000")
		io.WriteString(w, "a part")
		rc.Flush()
		panic(http.ErrAbortHandler)
	case "echo":
		c, in, err := rc.Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		for line := ""; line != "bye\n"; io.WriteString(c, line) {
			if line, err = in.ReadString('\n'); err != nil {
				return
			}
		}
	}
}

// wait waits for a time, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var soakBlock = bytes.Repeat([]byte("0123456789abcdef"), 2048)

func writeSoakBytes(w io.Writer, n int) {
	for n > 0 {
		m, err := w.Write(soakBlock[:min(n, len(soakBlock))])
		if n -= m; err != nil {
			return
		}
	}
}

// soakCaller calls one server, one call after the other.
type soakCaller struct {
	side   *soakSide
	rand   *rand.Rand
	client *http.Client // of one kind of calls; nil before the first
}

func (c *soakCaller) leave() {
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

// soakCall is a time that no call should need, on a busy machine either.
const soakCall = 5 * time.Minute

// dial connects.
func (c *soakCaller) dial(protocol string) (net.Conn, error) {
	nc, err := net.Dial("tcp", c.side.addr)
	if err != nil {
		return nil, err
	}
	if !c.side.secure {
		return nc, nil
	}
	s := tls.Client(nc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}) // the certificate is not what is tested
	if err := s.Handshake(); err != nil {
		nc.Close()
		return nil, err
	}
	return s, nil
}

// do sends a request by the caller's client, and returns its answer.
func (c *soakCaller) do(method, path string, body io.Reader) (*http.Response, error) {
	return c.doBy("http/1.1", method, path, body)
}

func (c *soakCaller) doBy(protocol, method, path string, body io.Reader) (*http.Response, error) {
	scheme := "http"
	if c.side.secure {
		scheme = "https"
	}
	if c.client == nil {
		dial := func(context.Context, string, string) (net.Conn, error) { return c.dial(protocol) }
		c.client = &http.Client{Timeout: soakCall, Transport: &http.Transport{DialContext: dial, DialTLSContext: dial, DisableCompression: true, ForceAttemptHTTP2: protocol == "h2"}}
	}
	r, err := http.NewRequest(method, scheme+"://"+testService+path, body)
	if err != nil {
		return nil, err
	}
	return c.client.Do(r)
}

// get asks for so many bytes from a path, and takes them in pieces with pauses.
func (c *soakCaller) get(path string, n int, pause time.Duration) error {
	res, err := c.do("GET", path+strconv.Itoa(n), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	to := &soakCheck{pause: pause}
	_, err = io.CopyBuffer(to, struct{ io.Reader }{res.Body}, make([]byte, 32<<10))
	if err != nil || to.read != n || res.StatusCode != 200 {
		return fmt.Errorf("%s, %d of %d bytes, %w", res.Status, to.read, n, err)
	}
	return nil
}

// soakCheck takes what writeSoakBytes writes, and nothing else.
type soakCheck struct {
	read  int
	pause time.Duration
}

func (s *soakCheck) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		want := soakBlock[s.read%len(soakBlock):]
		n := min(len(rest), len(want))
		if !bytes.Equal(rest[:n], want[:n]) {
			return 0, fmt.Errorf("wrong bytes behind %d", s.read)
		}
		rest, s.read = rest[n:], s.read+n
	}
	time.Sleep(s.pause)
	return len(p), nil
}

// text sends a request whose answer must be a text.
func (c *soakCaller) text(method, path string, body io.Reader, want string) error {
	res, err := c.do(method, path, body)
	if err != nil {
		return err
	}
	return expect(res, want)
}

// expect reads an answer, which must be a text.
func expect(res *http.Response, want string) error {
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || string(text) != want {
		return fmt.Errorf("%s %.100q, %w", res.Status, text, err)
	}
	return nil
}

// soakHead is the beginning of a head by hand, without its last line.
func soakHead(line string) string { return line + " HTTP/1.1\r\nHost: " + testService + "\r\n" }

// byHand sends text over a connection of its own in pieces, and then has talk go on.
func (c *soakCaller) byHand(text string, piece int, talk func(nc net.Conn, br *bufio.Reader) error) error {
	nc, err := c.dial("http/1.1")
	if err != nil {
		return err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(soakCall))
	for text != "" {
		n := min(len(text), piece)
		if _, err := io.WriteString(nc, text[:n]); err != nil {
			return err
		}
		if text = text[n:]; text != "" {
			time.Sleep(time.Millisecond)
		}
	}
	return talk(nc, bufio.NewReader(nc))
}

// goAway ends a connection in one of the ways in which callers do.
func (c *soakCaller) goAway(nc net.Conn) {
	below := nc
	if s, ok := nc.(*tls.Conn); ok {
		below = s.NetConn()
	}
	switch c.rand.IntN(4) {
	case 0:
		nc.Close()
	case 1:
		below.Close() // without a farewell in TLS
	case 2:
		below.(*net.TCPConn).SetLinger(0) // a reset
		below.Close()
	case 3:
		nc.(interface{ CloseWrite() error }).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	}
}

// leaves sends text, and goes away after so many bytes of an answer or a short time.
func (c *soakCaller) leaves(text string, after int64) error {
	return c.byHand(text, len(text), func(nc net.Conn, br *bufio.Reader) error {
		if after > 0 {
			if _, err := io.CopyN(io.Discard, br, after); err != nil {
				return err
			}
		} else {
			time.Sleep(time.Duration(c.rand.IntN(100)) * time.Millisecond)
		}
		c.goAway(nc)
		return nil
	})
}

// soakKinds are the ways of calling. An error is one that the caller of a working server does not
// meet.
var soakKinds = map[string]func(*soakCaller) error{
	"small":         func(c *soakCaller) error { return c.get("/length/", 1<<10, 0) },
	"large":         func(c *soakCaller) error { return c.get("/length/", 1<<20, 0) },
	"large chunked": func(c *soakCaller) error { return c.get("/chunked/", 1<<19, 0) },
	"slow reader":   func(c *soakCaller) error { return c.get("/length/", 1<<19, 2*time.Millisecond) },
	"thinking": func(c *soakCaller) error {
		return c.text("GET", fmt.Sprint("/think/", c.rand.IntN(200)), nil, "thought")
	},
	"upload": func(c *soakCaller) error {
		p := soakBlock[:c.rand.IntN(len(soakBlock))]
		return c.text("POST", "/digest", bytes.NewReader(p), fmt.Sprintf("%x", sha256.Sum256(p)))
	},
	"upload chunked": func(c *soakCaller) error {
		p := bytes.Repeat(soakBlock, 1+c.rand.IntN(10))
		return c.text("POST", "/digest", struct{ io.Reader }{bytes.NewReader(p)}, fmt.Sprintf("%x", sha256.Sum256(p)))
	},
	"events": func(c *soakCaller) error {
		var want strings.Builder
		for i := range 20 {
			fmt.Fprintf(&want, "data: %d\n\n", i)
		}
		return c.text("GET", "/events/20", nil, want.String())
	},
	"HTTP/2": func(c *soakCaller) error {
		if !c.side.secure {
			return c.get("/length/", 100, time.Millisecond)
		}
		res, err := c.doBy("h2", "POST", "/digest", bytes.NewReader(soakBlock))
		if err == nil && res.ProtoMajor != 2 {
			err = errors.New("it is " + res.Proto)
		}
		if err != nil {
			return err
		}
		return expect(res, fmt.Sprintf("%x", sha256.Sum256(soakBlock)))
	},
	"slow writer": func(c *soakCaller) error {
		text := soakHead("POST /digest") + "Content-Length: 500\r\n\r\n" + string(soakBlock[:500])
		return c.byHand(text, 20+c.rand.IntN(100), func(_ net.Conn, br *bufio.Reader) error {
			return expectNext(br, fmt.Sprintf("%x", sha256.Sum256(soakBlock[:500])))
		})
	},
	"pipelined": func(c *soakCaller) error {
		text := strings.Repeat(soakHead("GET /think/1")+"\r\n", 10)
		return c.byHand(text, len(text), func(_ net.Conn, br *bufio.Reader) error {
			for range 10 {
				if err := expectNext(br, "thought"); err != nil {
					return err
				}
			}
			return nil
		})
	},
	"handed over": func(c *soakCaller) error {
		text := soakHead("GET /think/1") + "\r\n" + soakHead("GET /think/1") + "Expect: nothing\r\n\r\n"
		return c.byHand(text, len(text), func(_ net.Conn, br *bufio.Reader) error {
			if err := expectNext(br, "thought"); err != nil {
				return err
			}
			return wantStatus(br, 417)
		})
	},
	"nonsense": func(c *soakCaller) error {
		return c.byHand("nonsense\r\n\r\n", 100, func(_ net.Conn, br *bufio.Reader) error { return wantStatus(br, 400) })
	},
	"early answer": func(c *soakCaller) error {
		text := soakHead("POST /refuse") + "Content-Length: 1000000\r\n\r\n" + string(soakBlock)
		return c.byHand(text, len(text), func(_ net.Conn, br *bufio.Reader) error { return wantStatus(br, 413) })
	},
	"broken off by the service": func(c *soakCaller) error {
		res, err := c.do("GET", "/abort", nil)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if text, err := io.ReadAll(res.Body); err == nil {
			return fmt.Errorf("a part is taken for the whole: %d bytes", len(text))
		}
		return nil
	},
	"upgraded": func(c *soakCaller) error {
		text := soakHead("GET /echo") + "Connection: Upgrade\r\nUpgrade: echo\r\n\r\n"
		return c.byHand(text, len(text), func(nc net.Conn, br *bufio.Reader) error {
			res, err := http.ReadResponse(br, nil)
			if err != nil || res.StatusCode != 101 {
				return fmt.Errorf("the answer is %v, %w", res, err)
			}
			for i := range 10 {
				said := fmt.Sprintf("%d\n", i)
				if _, err := io.WriteString(nc, said); err != nil {
					return err
				}
				if heard, err := br.ReadString('\n'); heard != said {
					return fmt.Errorf("the echo of %q is %q, %w", said, heard, err)
				}
			}
			if c.rand.IntN(2) == 0 {
				io.WriteString(nc, "bye\n")
				_, err := io.Copy(io.Discard, br)
				return err
			}
			c.goAway(nc)
			return nil
		})
	},
	"silent":              func(c *soakCaller) error { return c.leaves("", 0) },
	"aborted in the head": func(c *soakCaller) error { return c.leaves("GET / HT", 0) },
	"aborted in the body": func(c *soakCaller) error {
		return c.leaves(soakHead("POST /digest")+"Content-Length: 500\r\n\r\nabc", 0)
	},
	"aborted in a chunk": func(c *soakCaller) error {
		return c.leaves(soakHead("POST /digest")+"Transfer-Encoding: chunked\r\n\r\n5\r\nabc", 0)
	},
	"aborted before the answer":   func(c *soakCaller) error { return c.leaves(soakHead("GET /hang")+"\r\n", 0) },
	"aborted in a long answer":    func(c *soakCaller) error { return c.leaves(soakHead("GET /length/3000000")+"\r\n", 100_000) },
	"aborted in a chunked answer": func(c *soakCaller) error { return c.leaves(soakHead("GET /chunked/3000000")+"\r\n", 100_000) },
	"aborted with a request behind": func(c *soakCaller) error {
		return c.leaves(strings.Repeat(soakHead("GET /think/150")+"\r\n", 2), 0) // which net/http waits for
	},
}

// expectNext reads an answer behind others, which must be a text.
func expectNext(br *bufio.Reader, want string) error {
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return err
	}
	return expect(res, want)
}

// wantStatus reads an answer, which must have a status.
func wantStatus(br *bufio.Reader, status int) error {
	res, err := http.ReadResponse(br, nil)
	if err == nil && res.StatusCode != status {
		err = errors.New(res.Status)
	}
	return err
}
