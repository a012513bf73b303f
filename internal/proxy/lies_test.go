package proxy_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// tale is what a service sends for one request.
type tale struct {
	text  string
	piece int    // how much of it comes first; 0: one half after the other
	junk  string // behind it
	right bool   // it is a right answer, whatever follows it
	close bool
}

// story is what tales are made of.
type story struct {
	rand  *rand.Rand
	token string
	head  string // of an answer, without what frames its body, and without its end
	body  string
}

func newStory(r *rand.Rand, token string) *story {
	return &story{r, token, "HTTP/1.1 200 OK\r\nX-Token: " + token + "\r\n", token + strings.Repeat(".", r.IntN(3000))}
}

// with ends the head with fields.
func (s *story) with(fields ...string) string {
	return s.head + strings.Join(append(fields, "\r\n"), "\r\n")
}

// as is the story with another status line.
func (s *story) as(line string) *story {
	to := *s
	_, fields, _ := strings.Cut(s.head, "\r\n")
	to.head = line + "\r\n" + fields
	return &to
}

func (s *story) stray() string { return "stray-" + s.token }

func (s *story) length() string { return fmt.Sprintf("Content-Length: %d", len(s.body)) }

func (s *story) sized() string { return s.with(s.length()) + s.body }

func (s *story) chunk() string { return fmt.Sprintf("%x\r\n%s\r\n", len(s.body), s.body) }

const inChunks = "Transfer-Encoding: chunked"

// bodiless are the answers without a body, with one behind them, in each way in which it may be
// announced.
func (s *story) bodiless(line string) tale {
	to := s.as(line)
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(s.stray()), s.stray())
	return tale{right: true, text: []string{
		to.with() + s.stray(),
		to.with(s.length()) + s.stray(),
		to.with(fmt.Sprintf("Content-Length: %d", len(s.stray()))) + s.stray(),
		to.with(inChunks) + chunk,
		to.with(inChunks) + s.stray(),
	}[s.rand.IntN(5)]}
}

// some returns one of the texts.
func (s *story) some(texts ...string) string { return texts[s.rand.IntN(len(texts))] }

// anyTales are the kinds of answers to any request, and bodyTales to one that gets a body. Those
// that are right are many, so that connections are used again.
var (
	anyTales = []func(s *story) tale{
		func(s *story) tale { return tale{text: s.as("HTTP/1.1 204 No Content").with(), right: true} },
		func(s *story) tale {
			return tale{text: s.as("HTTP/1.1 304 Not Modified").with("Content-Length: 9"), right: true}
		},
		func(s *story) tale { return s.bodiless("HTTP/1.1 204 No Content") },
		func(s *story) tale { return s.bodiless("HTTP/1.1 304 Not Modified") },
		func(s *story) tale { // nobody has asked for it
			return tale{text: s.as("HTTP/1.1 101 Switching Protocols").with("Connection: Upgrade", "Upgrade: lines") + s.some("", s.stray())}
		},
		func(s *story) tale { // an interim answer has none
			return tale{text: "HTTP/1.1 103 Early Hints\r\n" + s.some("", s.length()+"\r\n", inChunks+"\r\n") + "\r\n" + s.stray() + s.with("Content-Length: 0")}
		},
		func(s *story) tale {
			return tale{text: s.with(s.length(), fmt.Sprintf("Content-Length: %d", len(s.body)+1-2*s.rand.IntN(2))) + s.body}
		},
		func(s *story) tale { return tale{text: s.with("Content-Length: 5", inChunks) + s.body} },
		func(s *story) tale {
			return tale{text: s.as("HTTP/1.0 200 OK").with(inChunks) + s.chunk() + "0\r\n\r\n"}
		},
		func(s *story) tale { // without a byte it would be asked again
			return tale{text: s.head[:1+s.rand.IntN(len(s.head)-1)], close: true}
		},
	}
	bodyTales = []func(s *story) tale{
		sizedTale, sizedTale, sizedTale, sizedTale, sizedTale, sizedTale,
		func(s *story) tale { return tale{text: s.with(inChunks) + s.chunk() + "0\r\n\r\n", right: true} },
		func(s *story) tale {
			return tale{text: s.with(inChunks, "Trailer: X-Sum") + s.chunk() + "0\r\nX-Sum: " + s.token + "\r\n\r\n", right: true}
		},
		func(s *story) tale { // in two pieces, wherever it is cut
			return tale{text: s.sized(), piece: 1 + s.rand.IntN(len(s.with(s.length()))+1), right: true}
		},
		func(s *story) tale { return tale{text: s.with(s.length(), s.length()) + s.body, right: true} },
		func(s *story) tale { return tale{text: s.with() + s.body, right: true, close: true} }, // it ends with the connection
		func(s *story) tale {
			return tale{text: s.as("HTTP/1.0 200 OK").with() + s.body, right: true, close: true}
		},
		func(s *story) tale { return tale{text: s.as("HTTP/1.0 200 OK").sized(), right: true} },
		func(s *story) tale {
			return tale{text: s.with(s.some("Connection: close", "Connection: x-a, Close"), s.length()) + s.body, right: true}
		},
		func(s *story) tale {
			return tale{text: s.with(fmt.Sprintf("Content-Length: %d", len(s.body)+100)) + s.body, close: true}
		},
		func(s *story) tale {
			return tale{text: s.with(fmt.Sprintf("Content-Length: %d", len(s.body)-3)) + s.body}
		},
		func(s *story) tale {
			return tale{text: s.with(inChunks) + s.some("zz\r\n", "-1\r\n", "\r\n", "5 x\r\n", "0x5\r\n") + s.body, close: true}
		},
		func(s *story) tale { // a chunk is longer than it says
			return tale{text: s.with(inChunks) + s.some("5\r\nabcde", s.chunk()+"5\r\nabcde") + s.some(s.stray(), "\n\n", "0\r\n") + "\r\n0\r\n\r\n"}
		},
		func(s *story) tale { return tale{text: s.with(inChunks) + s.chunk(), close: true} },
		func(s *story) tale {
			return tale{text: s.with(inChunks) + s.chunk() + "0\r\n" + s.some("X-Sum", ": a", "X Sum: a", "X-Sum: a\x00b", " folded: a") + "\r\n\r\n"}
		},
		func(s *story) tale {
			return tale{text: s.with(inChunks) + s.chunk() + "0\r\n" + s.some("", "X-Sum: a", "X-Sum: a\r\n"), close: true}
		},
	}
	headTales = []func(s *story) tale{ // to HEAD, which announces the body that there is not
		headTale, headTale, headTale, headTale, headTale, headTale, headTale, headTale,
		func(s *story) tale { return s.bodiless("HTTP/1.1 200 OK") },
		func(s *story) tale { return s.bodiless("HTTP/1.1 200 OK") },
		func(s *story) tale { return tale{text: s.as("HTTP/1.0 200 OK").with(s.length()), right: true} },
		func(s *story) tale {
			return tale{text: s.with(s.length()), piece: 1 + s.rand.IntN(len(s.head)), right: true}
		},
	}
)

func sizedTale(s *story) tale { return tale{text: s.sized(), right: true} }

func headTale(s *story) tale { return tale{text: s.with(s.length()), right: true} }

// tell makes up an answer to a request with a token, right or wrong.
func tell(r *rand.Rand, method, token string) tale {
	s, kinds := newStory(r, token), slices.Concat(anyTales, bodyTales)
	if method == http.MethodHead {
		kinds = slices.Concat(anyTales, headTales)
	}
	t := kinds[r.IntN(len(kinds))](s)
	if t.piece == 0 {
		for range r.IntN(3) {
			t.text = "HTTP/1.1 103 Early Hints\r\nLink: </" + token + ">\r\n\r\n" + t.text
		}
	}
	if r.IntN(20) == 0 {
		t.text, t.right = strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 40)+t.text, false
	}
	switch junk := r.IntN(20); {
	case t.close:
	case junk == 0:
		t.junk = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(s.stray()), s.stray())
	case junk == 1:
		t.junk = "\r\n" + s.stray()
	case junk == 2:
		t.junk = "HTTP/1.1 200 OK\r\nX-Stray: " + s.stray() + "\r\nContent-Len"
	}
	return t
}

var stray = regexp.MustCompile(`stray-t[0-9]+`)

// liars is a service that answers each request with the tale that it was told last.
type liars struct {
	told    chan tale
	arrived chan struct{} // once all of a tale is with the proxy
	conns   atomic.Int64
}

func (s *liars) talk(t *testing.T, c net.Conn, br *bufio.Reader, head string) {
	s.conns.Add(1)
	for err := error(nil); err == nil; head, err = readHead(br) {
		if strings.Contains(head, "Content-Length: 4\r\n") {
			_, _ = io.CopyN(io.Discard, br, 4)
		}
		now := <-s.told
		text := now.text
		if now.piece > 0 {
			_, _ = io.WriteString(c, text[:now.piece]) // the proxy may have closed it, here and below
			awaitArrival(t, c)
			text = text[now.piece:]
		}
		for text != "" {
			n := min(len(text), 1+len(text)/2)
			if _, err := io.WriteString(c, text[:n]); err != nil {
				break
			}
			text = text[n:]
		}
		awaitArrival(t, c)
		if now.junk != "" {
			_, _ = io.WriteString(c, now.junk)
			awaitArrival(t, c)
		}
		if now.close {
			c.Close() // so that no connection is reused whose end is on the way
		}
		s.arrived <- struct{}{}
		if now.close {
			return
		}
	}
}

// outcome is what a client got for a request.
type outcome struct {
	Failed  bool // there was no answer
	Status  int
	Interim []int
	Header  http.Header
	Body    string
	Trailer http.Header
	Cut     bool // Body is a part
}

// hear tells the service a tale, and returns what a client got for a request to addr.
func (s *liars) hear(t *testing.T, client *http.Client, addr, method, token string, now tale) (o outcome) {
	t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("data")
	}
	s.told <- now
	r := request(t, method, addr, "/"+token, body)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			o.Interim = append(o.Interim, code)
			return nil
		},
	}))
	res, err := client.Do(r)
	within(t, fmt.Sprintf("the service's bytes for %s %s, %v", method, token, err), s.arrived)
	if err != nil {
		return outcome{Failed: true}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	for _, key := range []string{"Date", "Content-Length", "Connection", "X-Request-Id"} {
		res.Header.Del(key)
	}
	o.Status, o.Header, o.Body, o.Trailer, o.Cut = res.StatusCode, res.Header, string(text), res.Trailer, err != nil
	return o
}

// lied are a proxy, and one that closes the connection to the service after each request.
type lied struct {
	service         *liars
	at              string // the service's address
	f               *front
	closing         string // the address of the other proxy
	client, leaving *http.Client
}

func newLied(t *testing.T) *lied {
	s := &liars{told: make(chan tale, 1), arrived: make(chan struct{}, 1)}
	l := &lied{service: s, client: newClient(t), leaving: newClient(t)}
	l.at = script(t, func(c net.Conn, br *bufio.Reader, head string) { s.talk(t, c, br, head) })
	l.closing = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var routes proxy.Routes
		target := proxy.NewUpstream(l.at, proxy.Options{Log: quiet})
		defer func() { _ = target.Drain(context.Background()) }()
		routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(map[string]*proxy.Target{"web": target})})
		routes.Serve(w, r, testHost)
	}))
	l.f = newFront(t, l.at, proxy.Options{})
	l.leaving.Transport.(*http.Transport).DisableKeepAlives = true
	return l
}

// forgive makes the proxy trust the service again, which is not trusted once it was caught.
func (l *lied) forgive(t *testing.T) {
	target := proxy.NewUpstream(l.at, proxy.Options{Log: quiet})
	for _, old := range l.f.routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(map[string]*proxy.Target{"web": target})}) {
		require.NoError(t, old.Drain(t.Context()))
	}
}

// check compares what clients of both proxies get for a tale, and reports whether the first one has
// used a connection that was there.
func (l *lied) check(t *testing.T, method, token string, now tale) (kept bool) {
	t.Helper()
	before := l.service.conns.Load()
	got := l.service.hear(t, l.client, l.f.addr, method, token, now)
	kept = l.service.conns.Load() == before
	want := l.service.hear(t, l.leaving, l.closing, method, token, now)
	for _, found := range stray.FindAllString(fmt.Sprint(got.Header, got.Trailer)+got.Body, -1) {
		require.Equal(t, "stray-"+token, found, "after %s", method)
	}
	if want.Cut && got.Cut { // how much of it has come is a matter of time
		want.Body, got.Body = "", ""
		want.Trailer, got.Trailer = nil, nil
	}
	require.Equal(t, want, got, "%s %+v", method, now)
	if !now.right {
		return kept
	}
	require.Equal(t, token, got.Header.Get("X-Token"), "%s %+v: %d", method, now, got.Status)
	require.False(t, got.Failed || got.Cut, "%s %+v", method, now)
	if got.Status == http.StatusOK && method != http.MethodHead {
		require.True(t, strings.HasPrefix(got.Body, token) && strings.Trim(got.Body[len(token):], ".") == "", "%+v: %q", now, got.Body)
	}
	return kept
}

// Whatever a service sends for a request, right or wrong, no later one gets any of it: each client
// gets what it gets from a proxy that closes the connection to the service after each request. Right
// answers arrive as they are.
func TestProxy_GivesNobodyWhatALyingServiceSent(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	l := newLied(t)
	methods := []string{http.MethodGet, http.MethodGet, http.MethodHead, http.MethodPost}
	const rounds, requests = 60, 10
	kept := 0 // requests on connections that were there
	for i := range rounds * requests {
		if i%requests == 0 {
			l.forgive(t)
		}
		token, method := fmt.Sprintf("t%d", i), methods[r.IntN(len(methods))]
		if l.check(t, method, token, tell(r, method, token)) {
			kept++
		}
	}
	require.Greater(t, kept, rounds/2, "hardly any connection was used again")
	t.Logf("%d of %d requests on connections that were there", kept, rounds*requests)
}

// A head may come in two pieces, wherever it is cut, or end there, on a new connection and on one
// that was used before.
func TestProxy_ReadsHeadsOfAnswersInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	l := newLied(t)
	for cut := 1; cut < len(newStory(r, "t10000").with("Content-Length: 0")); cut++ {
		token := fmt.Sprintf("t%d", 10000+cut)
		for i, now := range []tale{{right: true}, {piece: cut, right: true}, {close: true}, {piece: cut, right: true}} {
			s := newStory(r, token)
			s.body = token
			if now.text = s.sized(); now.close {
				now.text = now.text[:cut]
			}
			kept := l.check(t, http.MethodGet, token, now)
			require.Equal(t, i == 1 || i == 2, kept, "cut at %d, request %d", cut, i)
		}
		l.forgive(t)
	}
}
