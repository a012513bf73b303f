package wire

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
		"too large":             "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", MaxAnswer) + "\r\n\r\n",
	} {
		var h Answer
		if err := h.Read(bufio.NewReader(strings.NewReader(text))); err == nil {
			t.Errorf("%s: accepted as %+v", name, h)
		} else if _, ok := err.(BadAnswer); !ok {
			t.Errorf("%s: error %v is not a BadAnswer", name, err)
		}
	}
}

func TestHead_ReadsInWhateverPiecesItComes(t *testing.T) {
	text := "HTTP/1.1 404 Not Found\r\ncontent-length: 7\r\nConnection: X-Secret, close\r\nKeep-Alive: timeout=5\r\nx-long: " +
		strings.Repeat("y", 9000) + "\r\n\r\nbody"
	for _, size := range []int{16, 100, 4096, 1 << 16} {
		br := bufio.NewReaderSize(iotestOneByte{strings.NewReader(text)}, size)
		var h Answer
		if err := h.Read(br); err != nil {
			t.Fatal(err)
		}
		if h.Status != 404 || h.Length != 7 || !h.Close || h.KeepAlive.Seconds() != 4 || !slices.Equal(h.hop, []string{"X-Secret"}) {
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
		var h Answer
		if err := h.Read(bufio.NewReader(strings.NewReader(text))); err != nil {
			return
		}
		res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
		if err != nil {
			t.Fatalf("accepted %q, which net/http refuses: %v", text, err)
		}
		if res.StatusCode != h.Status {
			t.Fatalf("status %d, net/http %d", h.Status, res.StatusCode)
		}
		if h.HasBody("GET") && (h.Length != res.ContentLength || h.Chunked != (res.TransferEncoding != nil)) {
			t.Fatalf("framing %d %t, net/http %d %v", h.Length, h.Chunked, res.ContentLength, res.TransferEncoding)
		}
		for _, field := range h.Fields {
			switch field.Key {
			case "Content-Length", "Transfer-Encoding", "Trailer", "Connection", "Pragma":
				continue
			}
			if !slices.Contains(res.Header[field.Key], field.Value) {
				t.Fatalf("header %s: %q, net/http %q", field.Key, field.Value, res.Header[field.Key])
			}
		}
	})
}
