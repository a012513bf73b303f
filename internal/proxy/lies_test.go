package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
)

// tale is what a service sends for one request.
type tale struct {
	text  string
	right bool // it is a right answer, whatever follows it
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
		head, body = head+fmt.Sprintf("Content-Length: %d\r\n", len(body)), ""
	}
	switch kind := r.IntN(12); {
	case method == http.MethodHead:
		t.text += head + "\r\n" + body
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
		t.text, t.close, t.right = head[:r.IntN(len(head))], true, false
	case kind < 10:
		t.text += head + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	default:
		t.text += head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	}
	switch junk := r.IntN(6); {
	case t.close:
	case junk == 0:
		t.text += fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nstray-%s", len("stray-"+token), token)
	case junk == 1:
		t.text += "\r\nstray-" + token
	case junk == 2:
		t.text += "HTTP/1.1 200 OK\r\nX-Stray: stray-" + token + "\r\nContent-Len"
	}
	return t
}

var stray = regexp.MustCompile(`stray-t[0-9]+`)

// Whatever a service sends for a request, no later one gets any of it, and right answers
// arrive as they are.
func TestProxy_GivesNobodyWhatALyingServiceSent(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	told := make(chan tale, 1)
	arrived := make(chan struct{}, 1)
	backend := script(t, func(c net.Conn, br *bufio.Reader, head string) {
		for err := error(nil); err == nil; head, err = readHead(br) {
			if strings.Contains(head, "Content-Length: 4\r\n") {
				_, _ = io.CopyN(io.Discard, br, 4)
			}
			now := <-told
			for text := now.text; text != ""; {
				n := min(len(text), 1+len(text)/2)
				if _, err := io.WriteString(c, text[:n]); err != nil {
					break
				}
				text = text[n:]
			}
			awaitArrival(t, c)
			if now.close {
				c.Close() // so that no connection is reused whose end is on the way
			}
			arrived <- struct{}{}
			if now.close {
				return
			}
		}
	})
	f := newFront(t, backend, proxy.Options{})
	client := newClient(t)
	methods := []string{http.MethodGet, http.MethodGet, http.MethodHead, http.MethodPost}
	for i := range 400 {
		token, method := fmt.Sprintf("t%d", i), methods[r.IntN(len(methods))]
		var body io.Reader
		if method == http.MethodPost {
			body = strings.NewReader("data")
		}
		now := tell(r, method, token)
		told <- now
		res, err := client.Do(request(t, method, f.addr, "/"+token, body))
		status := 0
		if err == nil {
			status = res.StatusCode
		}
		within(t, fmt.Sprintf("the service's bytes for %s %s, status %d, %v", method, token, status, err), arrived)
		if err != nil {
			assert.False(t, now.right, "%s %q: %v", method, now.text, err)
			continue
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		for _, found := range stray.FindAllString(fmt.Sprint(res.Header)+string(text), -1) {
			require.Equal(t, "stray-"+token, found, "after %s", method)
		}
		if now.right {
			assert.NoError(t, err, "%s %q", method, now.text)
			assert.Equal(t, token, res.Header.Get("X-Token"), "%s %q: %d", method, now.text, res.StatusCode)
			if res.StatusCode == http.StatusOK && method != http.MethodHead {
				assert.True(t, strings.HasPrefix(string(text), token) && strings.Trim(string(text[len(token):]), ".") == "", "%q: %q", now.text, text)
			}
		}
	}
}
