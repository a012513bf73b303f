package proxy

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestHead_RefusesWhatCanBeReadTwoWays(t *testing.T) {
	for name, text := range map[string]string{
		"two lengths":           "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
		"length and chunked":    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
		"chunked twice":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
		"unknown coding":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
		"chunked in 1.0":        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"signed length":         "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
		"list of lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
		"empty length":          "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
		"length past int64":     "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
		"space before colon":    "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
		"folded line":           "HTTP/1.1 200 OK\r\nX-A: b\r\n c\r\n\r\n",
		"no colon":              "HTTP/1.1 200 OK\r\nnonsense\r\n\r\n",
		"empty name":            "HTTP/1.1 200 OK\r\n: b\r\n\r\n",
		"bare CR in value":      "HTTP/1.1 200 OK\r\nX-A: b\rSet-Cookie: c=d\r\n\r\n",
		"NUL in value":          "HTTP/1.1 200 OK\r\nX-A: b\x00c\r\n\r\n",
		"HTTP/2":                "HTTP/2 200 OK\r\n\r\n",
		"HTTP/1.2":              "HTTP/1.2 200 OK\r\n\r\n",
		"status of two digits":  "HTTP/1.1 20 OK\r\n\r\n",
		"status of four digits": "HTTP/1.1 2000 OK\r\n\r\n",
		"status below 100":      "HTTP/1.1 099 No\r\n\r\n",
		"no status line":        "<html>\r\n\r\n",
		"an SSH server":         "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"too large":             "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", maxHead) + "\r\n\r\n",
	} {
		var h head
		if err := h.read(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: accepted as %+v", name, h)
		} else if _, ok := err.(badAnswer); !ok {
			t.Errorf("%s: error %v is not a badAnswer", name, err)
		}
	}
}

func TestHead_ReadsInWhateverPiecesItComes(t *testing.T) {
	text := "HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\nConnection: X-Secret, close\r\nKeep-Alive: timeout=5\r\nx-long: " +
		strings.Repeat("y", 9000) + "\r\n\r\nbody"
	for _, size := range []int{16, 100, 4096, 1 << 16} {
		br := bufio.NewReaderSize(iotestOneByte{strings.NewReader(text)}, size)
		var h head
		if err := h.read(br); err != nil {
			t.Fatal(err)
		}
		if h.status != 404 || h.length != 7 || !h.close || h.keepAlive.Seconds() != 4 || !slices.Equal(h.hop, []string{"X-Secret"}) {
			t.Errorf("buffer of %d: %+v", size, h)
		}
		if rest, _ := io.ReadAll(br); string(rest) != "body" {
			t.Errorf("buffer of %d: left %q", size, rest)
		}
	}
}

type iotestOneByte struct{ r io.Reader }

func (o iotestOneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }

// FuzzHead holds the parser against net/http's: what ours accepts, net/http
// reads the same way.
func FuzzHead(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
		"HTTP/1.0 302 \nLocation: /\n\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
		"HTTP/1.1 200 OK\r\nConnection: close, X-A\r\nX-A: 1\r\n\r\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var h head
		if err := h.read(bufio.NewReader(strings.NewReader(text))); err != nil {
			return
		}
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		if err != nil {
			t.Fatalf("accepted %q, which net/http refuses: %v", text, err)
		}
		if res.StatusCode != h.status {
			t.Fatalf("status %d, net/http %d", h.status, res.StatusCode)
		}
		if h.hasBody("GET") && (h.length != res.ContentLength || h.chunked != (res.TransferEncoding != nil)) {
			t.Fatalf("framing %d %t, net/http %d %v", h.length, h.chunked, res.ContentLength, res.TransferEncoding)
		}
		for _, field := range h.fields {
			switch field.key {
			case "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Pragma":
				continue
			}
			if !slices.Contains(res.Header[field.key], field.value) {
				t.Fatalf("header %s: %q, net/http %q", field.key, field.value, res.Header[field.key])
			}
		}
	})
}

func TestCookies_OfTheDashboardStayFromTenants(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a=1; b=2", "a=1; b=2"},
		{"a=1; __Host-berth_session=s; b=2", "a=1; b=2"},
		{"berth_session=s", ""},
		{"berth_visitor=s;a=1", "a=1"},
		{"__Host-berth_visitor=s; __Host-mine=1; berth_=x", "__Host-mine=1"},
		{"berths=mine; x=berth", "berths=mine; x=berth"},
	} {
		if got := tenantCookies([]string{c.in}); got != c.want {
			t.Errorf("%q passes as %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCookies_OfATenantReachNobodyElse(t *testing.T) {
	const host = "web-0123456789ab.apps.example.com"
	for value, widens := range map[string]bool{
		"a=1":                                          false,
		"a=1; Path=/; HttpOnly":                        false,
		"a=1; Domain=" + host:                          false,
		"a=1; Domain=." + host:                         false,
		"a=1; Domain=apps.example.com":                 true,
		"a=1; domain=.Apps.Example.com":                true,
		"a=1; DOMAIN = example.com ; Secure":           true,
		"a=1; Domain=com":                              true,
		"a=1; Domain=example.com.":                     true,
		"a=1; Domain=" + host + "; Domain=example.com": true,
		"a=1; Domain=other.net":                        false, // browsers refuse it
		"a=Domain=example.com":                         false,
		"a=1; Domain=":                                 false,
	} {
		if got := widensCookie(value, tenant{host: host}); got != widens {
			t.Errorf("%q: widens %t, want %t", value, got, widens)
		}
		if got := refusedCookie(value, tenant{host: host}); got != widens {
			t.Errorf("%q: refused %t, want %t", value, got, widens)
		}
	}
	for value, refused := range map[string]bool{
		"berth_session=x":                 true,
		"berth_session=x; Domain=" + host: true,
		" berth_visitor = x":              true,
		"__Host-berth_session=x; Secure":  true,
		"=berth_session=x":                true, // browsers send it back as berth_session=x
		"berth=x":                         false,
		"__Host-mine=x; Secure; Path=/":   false,
		"session=berth_session":           false,
	} {
		if got := refusedCookie(value, tenant{host: host}); got != refused {
			t.Errorf("%q: refused %t, want %t", value, got, refused)
		}
	}
}

func TestCookies_OfADomainNameThatHostOnly(t *testing.T) {
	for value, refused := range map[string]bool{
		"a=1":                              false,
		"a=1; Domain=www.example.com":      false,
		"a=1; Domain=.WWW.example.com":     false,
		"a=1; Domain=example.com":          true,
		"a=1; Domain=com":                  true,
		"a=1; Domain=a.www.example.com":    true,
		"a=1; Domain=berth.test":           true,
		"__Host-berth_session=x; Secure":   true,
		"a=1; Domain=www.example.com; B=c": false,
	} {
		if got := refusedCookie(value, tenant{host: "www.example.com", domain: true}); got != refused {
			t.Errorf("%q: refused %t, want %t", value, got, refused)
		}
	}
}

func TestOwnedByProxy_KnowsDisguises(t *testing.T) {
	for key, owned := range map[string]bool{
		"X-Forwarded-For": true, "X_forwarded_for": true, "X_forwarded-Host": true, "X-Forwarded-Anything": true,
		"Forwarded": true, "X_real_ip": true, "Transfer_encoding": true,
		"X_custom": false, "Accept": false, "Authorization": false, "X-Forward": false,
	} {
		if got := ownedByProxy(key); got != owned {
			t.Errorf("%s: %t, want %t", key, got, owned)
		}
	}
}

func TestFrames_KnowsWhereFramesEnd(t *testing.T) {
	short := []byte{0x81, 0x85, 1, 2, 3, 4, 'h', 'e', 'l', 'l', 'o'}
	medium := append([]byte{0x82, 126, 1, 0}, make([]byte, 256)...)
	large := append([]byte{0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0}, make([]byte, 1<<16)...)
	stream := slices.Concat(short, medium, []byte{0x89, 0}, large, short)
	ends := map[int]bool{0: true}
	at := 0
	for _, f := range [][]byte{short, medium, {0x89, 0}, large, short} {
		at += len(f)
		ends[at] = true
	}
	for _, step := range []int{1, 3, 7, 4096, len(stream)} {
		var f frames
		for i := 0; i < len(stream); i += step {
			end := min(i+step, len(stream))
			f.advance(stream[i:end])
			if f.between() != ends[end] {
				t.Fatalf("step %d: at byte %d between is %t", step, end, f.between())
			}
		}
	}
}
