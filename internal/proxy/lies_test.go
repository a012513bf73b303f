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
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// tale is what a service sends for one request.
type tale struct {
	text  string
	junk  string // behind it
	right bool   // it is a right answer, whatever follows it
	close bool
}

// tell makes up an answer to a request with a token, right or wrong.
func tell(r *rand.Rand, method, token string) (t tale) {
	t.right = true
	for range r.IntN(3) {
		t.text += "HTTP/1.1 103 Early Hints\r\nLink: </" + token + ">\r\n\r\n"
	}
	if r.IntN(20) == 0 {
		t.text, t.right = strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 40), false
	}
	head, body := "HTTP/1.1 200 OK\r\nX-Token: "+token+"\r\n", token+strings.Repeat(".", r.IntN(3000))
	if method == http.MethodHead {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	switch kind := r.IntN(20); {
	case method == http.MethodHead && kind < 3: // with the body that it would have had
		t.text += head + "\r\nstray-" + token
	case method == http.MethodHead && kind < 5:
		t.text += "HTTP/1.1 200 OK\r\nX-Token: " + token + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nstray\r\n0\r\n\r\n"
	case method == http.MethodHead:
		t.text += head + "\r\n"
	case kind == 0:
		t.text += "HTTP/1.1 204 No Content\r\nX-Token: " + token + "\r\n\r\n"
	case kind == 1:
		t.text += "HTTP/1.1 304 Not Modified\r\nX-Token: " + token + "\r\nContent-Length: 9\r\n\r\n"
	case kind == 2: // it ends with the connection
		t.text, t.close = t.text+head+"\r\n"+body, true
	case kind == 3: // less than it says
		t.text, t.close, t.right = t.text+head+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)+100)+body, true, false
	case kind == 4: // more than it says
		t.text, t.right = t.text+head+fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)-3)+body, false
	case kind == 5:
		t.text, t.right = t.text+head+"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"+body, false
	case kind == 6:
		t.text, t.close, t.right = t.text+head+"Transfer-Encoding: chunked\r\n\r\nzz\r\n"+body, true, false
	case kind == 7:
		t.text, t.close, t.right = head[:1+r.IntN(len(head)-1)], true, false // without a byte it would be asked again
	case kind < 10:
		t.text += head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	default:
		t.text += head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	}
	switch junk := r.IntN(20); {
	case t.close:
	case junk == 0:
		t.junk = fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nstray-%s", len("stray-"+token), token)
	case junk == 1:
		t.junk = "\r\nstray-" + token
	case junk == 2:
		t.junk = "HTTP/1.1 200 OK\r\nX-Stray: stray-" + token + "\r\nContent-Len"
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
		for text := now.text; text != ""; {
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
	o.Status, o.Header, o.Body, o.Cut = res.StatusCode, res.Header, string(text), err != nil
	return o
}

// Whatever a service sends for a request, right or wrong, no later one gets any of it: each client
// gets what it gets from a proxy that closes the connection to the service after each request. Right
// answers arrive as they are.
func TestProxy_GivesNobodyWhatALyingServiceSent(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	s := &liars{told: make(chan tale, 1), arrived: make(chan struct{}, 1)}
	service := script(t, func(c net.Conn, br *bufio.Reader, head string) { s.talk(t, c, br, head) })
	closing := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var routes proxy.Routes
		target := proxy.NewUpstream(service, proxy.Options{Log: quiet})
		defer func() { _ = target.Drain(context.Background()) }()
		routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(map[string]*proxy.Target{"web": target})})
		routes.Serve(w, r, testHost)
	}))
	f := newFront(t, service, proxy.Options{})
	client, leaving := newClient(t), newClient(t)
	leaving.Transport.(*http.Transport).DisableKeepAlives = true
	methods := []string{http.MethodGet, http.MethodGet, http.MethodHead, http.MethodPost}
	const rounds, requests = 40, 10
	kept := int64(0) // requests on connections that were there
	for i := range rounds * requests {
		if i%requests == 0 { // a service that was caught is not trusted again
			target := proxy.NewUpstream(service, proxy.Options{Log: quiet})
			for _, old := range f.routes.Set(testHex, proxy.Entry{Status: stack.Live, Name: "shop", Hosts: hosts(map[string]*proxy.Target{"web": target})}) {
				require.NoError(t, old.Drain(t.Context()))
			}
		}
		token, method := fmt.Sprintf("t%d", i), methods[r.IntN(len(methods))]
		now := tell(r, method, token)
		before := s.conns.Load()
		got := s.hear(t, client, f.addr, method, token, now)
		kept += 1 - (s.conns.Load() - before)
		want := s.hear(t, leaving, closing, method, token, now)
		for _, found := range stray.FindAllString(fmt.Sprint(got.Header)+got.Body, -1) {
			require.Equal(t, "stray-"+token, found, "after %s", method)
		}
		if want.Cut && got.Cut { // how much of it has come is a matter of time
			want.Body, got.Body = "", ""
		}
		require.Equal(t, want, got, "%s %+v", method, now)
		if now.right {
			assert.Equal(t, token, got.Header.Get("X-Token"), "%s %+v: %d", method, now, got.Status)
			assert.False(t, got.Failed || got.Cut, "%s %+v", method, now)
			if got.Status == http.StatusOK && method != http.MethodHead {
				assert.True(t, strings.HasPrefix(got.Body, token) && strings.Trim(got.Body[len(token):], ".") == "", "%+v: %q", now, got.Body)
			}
		}
	}
	require.Greater(t, kept, int64(rounds/2), "hardly any connection was used again")
}
