package edge

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// sent holds bytes that a client sends over one connection and their expected result:
// the requests that are served, with their bodies, and the statuses of all answers
// until the connection is closed.
type sent struct {
	name, bytes string
	served      []string
	statuses    []string
}

const (
	h10      = " HTTP/1.0\r\nHost: berth.test\r\nConnection: keep-alive\r\n"
	h11      = " HTTP/1.1\r\nHost: berth.test\r\n"
	coded    = "Transfer-Encoding: chunked\r\n"
	smuggled = "GET /smuggled" + h11 + "\r\n"
	last     = "GET /last" + h11 + "Connection: close\r\n\r\n"
)

// smuggling are requests whose end two readers may see in two places, alone and
// behind others on the same connection.
var smuggling = []sent{
	{"1.0 with both", "POST /a" + h10 + "Content-Length: 5\r\n" + coded + "\r\n0\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 with both, the other way round", "POST /a" + h10 + coded + "Content-Length: 5\r\n\r\n0\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 with chunks", "POST /a" + h10 + coded + "\r\n27\r\n" + smuggled + "\r\n0\r\n\r\n", nil, []string{"400"}},
	{"1.0 with an unknown coding", "POST /a" + h10 + "Transfer-Encoding: x\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 in small letters", "POST /a" + h10 + "transfer-encoding:chunked\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 in capitals", "POST /a" + h10 + "TRANSFER-ENCODING:\tchunked \r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 folded", "POST /a" + h10 + "Transfer-Encoding:\r\n chunked\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 behind a folded field", "POST /a" + h10 + "X-A: b\r\n c\r\n" + coded + "\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 with a space before the colon", "POST /a" + h10 + "Transfer-Encoding : chunked\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 with bare line feeds", "POST /a HTTP/1.0\nHost: berth.test\nConnection: keep-alive\nTransfer-Encoding: chunked\n\n" + smuggled, nil, []string{"400"}},
	{"1.0 without a value", "POST /a" + h10 + "Transfer-Encoding:\r\n\r\n" + smuggled, nil, []string{"400"}},
	{"1.0 that says the words elsewhere", "POST /a" + h10 + "X-A: b\r\n Transfer-Encoding: chunked\r\nX-Transfer-Encoding: chunked\r\nTransfer-Encoding-X: chunked\r\nContent-Length: 28\r\n\r\n" + coded + last, []string{"/a " + coded, "/last "}, []string{"200", "200"}},
	{"1.0 without a body", "GET /a" + h10 + "\r\n" + last, []string{"/a ", "/last "}, []string{"200", "200"}},
	{"1.0 behind a length", "POST /a" + h11 + "Content-Length: 3\r\n\r\nabcPOST /b" + h10 + coded + "\r\n" + smuggled, []string{"/a abc"}, []string{"200", "400"}},
	{"1.0 behind chunks", "POST /a" + h11 + coded + "\r\n3;x=y\r\nabc\r\n0\r\n\r\nPOST /b" + h10 + coded + "\r\n" + smuggled, []string{"/a abc"}, []string{"200", "400"}},
	{"1.0 behind trailers", "POST /a" + h11 + coded + "\r\n3\r\nabc\r\n0\r\nX-T: y\r\nX-U: z\r\n\r\nPOST /b" + h10 + coded + "\r\n" + smuggled, []string{"/a abc"}, []string{"200", "400"}},
	{"1.0 behind no body", "GET /a" + h11 + "\r\nGET /b" + h11 + "Content-Length: 0\r\n\r\nPOST /c" + h10 + coded + "\r\n" + smuggled, []string{"/a ", "/b "}, []string{"200", "200", "400"}},
	{"1.0 behind empty lines", "POST /a" + h11 + "Content-Length: 3\r\n\r\nabc\r\n\r\nPOST /b" + h10 + coded + "\r\n" + smuggled, []string{"/a abc"}, []string{"200", "400"}},
	{"length and chunks", "POST /a" + h11 + "Content-Length: 30\r\n" + coded + "\r\n3\r\nabc\r\n0\r\n\r\n" + smuggled, []string{"/a abc"}, []string{"200"}},
	{"chunks and length", "POST /a" + h11 + coded + "content-length: 0\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + smuggled, []string{"/a abc"}, []string{"200"}},
	{"length and chunks behind another", "POST /a" + h11 + coded + "\r\n3\r\nabc\r\n0\r\n\r\nPOST /b" + h11 + "Content-Length: 3\r\n" + coded + "\r\n0\r\n\r\n" + smuggled, []string{"/a abc", "/b "}, []string{"200", "200"}},
	{"length, then chunks", "POST /a" + h11 + "Content-Length: 3\r\n\r\nabcPOST /b" + h11 + coded + "\r\n3\r\nabc\r\n0\r\n\r\n" + last, []string{"/a abc", "/b abc", "/last "}, []string{"200", "200", "200"}},
}

// journal answers with 200 and records the requests with their bodies.
type journal struct {
	mu     sync.Mutex
	served []string
}

func (j *journal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	j.mu.Lock()
	j.served = append(j.served, r.URL.Path+" "+string(body))
	j.mu.Unlock()
	w.Header().Set("Content-Length", "0")
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	served := j.served
	j.served = nil
	return served
}

// statuses reads the answers on a connection to its end, and checks that those
// of the edge are JSON.
func statuses(t *testing.T, c net.Conn) (all []string) {
	t.Helper()
	for in := bufio.NewReader(c); ; {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return all
		}
		all = append(all, res.Status[:3])
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Error(err)
		}
		if _, overTLS := c.(*tls.Conn); res.StatusCode >= 400 && !overTLS && !strings.HasPrefix(string(body), `{"detail":"`) {
			t.Errorf("%s: %q", res.Status, body)
		}
	}
}

// send sends w in the given pieces and checks the result.
func (w sent) send(t *testing.T, c net.Conn, j *journal, pieces ...string) {
	t.Helper()
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	for _, p := range pieces {
		io.WriteString(c, p) // the edge may have closed by now
	}
	if got := statuses(t, c); !slices.Equal(got, w.statuses) {
		t.Errorf("answers %q, want %q", got, w.statuses)
	}
	if got := j.take(); !slices.Equal(got, w.served) {
		t.Errorf("served %q, want %q", got, w.served)
	}
}

func TestEdge_LetsNoRequestBeSmuggled(t *testing.T) {
	j := &journal{}
	addr, _ := start(t, testConfig(j))
	for _, w := range smuggling {
		t.Run(w.name, func(t *testing.T) {
			for _, at := range []int{len(w.bytes), len(w.bytes) / 2, len(w.bytes) - len(smuggled)} {
				c, err := net.Dial("tcp", addr)
				if err != nil {
					t.Fatal(err)
				}
				w.send(t, c, j, w.bytes[:at], w.bytes[at:])
			}
		})
	}
}

func TestEdge_LetsNoRequestBeSmuggledInTLS(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	j := &journal{}
	cfg := testConfig(j)
	cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
	addr, _ := start(t, cfg)
	for _, w := range smuggling {
		t.Run(w.name, func(t *testing.T) {
			for _, protocols := range [][]string{nil, {"http/1.1"}} {
				c, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "example.com", NextProtos: protocols})
				if err != nil {
					t.Fatal(err)
				}
				w.send(t, c, j, w.bytes)
			}
		})
	}
}

// A request of ambiguous length is answered before its body arrives.
func TestEdge_RefusesWhatIsInDoubtAtOnce(t *testing.T) {
	addr, _ := start(t, testConfig(&journal{}))
	got := raw(t, addr, "POST /a"+h10+"Content-Length: 1000\r\n"+coded+"\r\nabc")
	if !strings.HasPrefix(got, "HTTP/1.0 400") || !strings.Contains(got, `{"detail":"the length of this request is ambiguous`) {
		t.Errorf("%q", got)
	}
}

// The next request does not begin within a body that net/http could not read.
func TestEdge_ServesNothingBehindABrokenBody(t *testing.T) {
	var served []string
	addr, _ := start(t, testConfig(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served = append(served, r.URL.Path)
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(io.Discard, r.Body)
	})))
	raw(t, addr, "POST /a"+h11+coded+"\r\n3 ;\r\n"+smuggled+last)
	if !slices.Equal(served, []string{"/a"}) {
		t.Errorf("served %q", served)
	}
}

// follow reads stream as the edge's server does, and describes what net/http and the
// framing make of each request; it stops at what net/http refuses.
func follow(t *testing.T, stream io.Reader) (requests []string) {
	t.Helper()
	f := &framing{}
	var head bytes.Buffer // what net/http was given of the head, or of the body that is under way
	br := bufio.NewReader(readFunc(func(p []byte) (int, error) {
		if f.part == requestLine && f.lineN == 0 {
			head.Reset()
		}
		n, err := f.read(stream, p)
		head.Write(p[:n])
		return n, err
	}))
	for method := ""; ; {
		if method == "POST" {
			skipped, _ := br.Peek(4)
			br.Discard(len(skipped) - len(bytes.TrimLeft(skipped, "\r\n")))
		}
		r, err := http.ReadRequest(br)
		if err != nil {
			return requests
		}
		method = r.Method
		if f.ended {
			checkHead(t, f, r, head.Bytes(), br.Buffered())
		}
		trusted, last := f.begin(r)
		if !trusted {
			return append(requests, "refused")
		}
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.RequestURI+" "+string(body))
		if last {
			return append(requests, "closed")
		}
	}
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// checkHead compares what the framing saw of the head of r with what net/http
// read, which ends where the framing says.
func checkHead(t *testing.T, f *framing, r *http.Request, head []byte, behind int) {
	t.Helper()
	if behind > 0 {
		t.Fatalf("net/http has %d bytes behind the head %q", behind, head)
	}
	text := textproto.NewReader(bufio.NewReader(bytes.NewReader(bytes.TrimLeft(head, "\r\n"))))
	line, _ := text.ReadLine()
	fields, err := text.ReadMIMEHeader()
	if err != nil || line != r.Method+" "+r.RequestURI+" "+r.Proto {
		t.Fatalf("the head %q was read as %s %s (%v)", head, r.Method, r.RequestURI, err)
	}
	if coding, declared := fields["Transfer-Encoding"] != nil, fields["Content-Length"] != nil; f.coding != coding || f.declared != declared {
		t.Fatalf("%q: coding %v, declared %v", head, f.coding, f.declared)
	}
}

func TestFraming_SeesHeadsInPieces(t *testing.T) {
	for _, w := range smuggling {
		whole := follow(t, strings.NewReader(w.bytes))
		if got := follow(t, iotest.OneByteReader(strings.NewReader(w.bytes))); !slices.Equal(got, whole) {
			t.Errorf("%s, byte by byte: %q, want %q", w.name, got, whole)
		}
		for at := range len(w.bytes) {
			pieces := io.MultiReader(strings.NewReader(w.bytes[:at]), strings.NewReader(w.bytes[at:]))
			if got := follow(t, pieces); !slices.Equal(got, whole) {
				t.Errorf("%s, in two at %d: %q, want %q", w.name, at, got, whole)
			}
		}
	}
}

// FuzzFraming checks that the framing and net/http agree about every head.
func FuzzFraming(f *testing.F) {
	for _, w := range smuggling {
		f.Add(w.bytes)
	}
	for _, chunks := range []string{"3 ;\r\n", "+3\r\nabc\r\n", "0003\r\nabc\r\n00;\r\n\r\n", "FFFFFFFFFFFFFFFF\r\n", "fffffffffffffffff\r\n", "0\r\n X: y\r\n\r\n", "0\n\n", "0\r\n\n\r\n\r\n", "3\r\nabcd\r\n", "0\r\nX: y\n\r\n", "0\r\nX\nX: y\n\r\n0\r\n\r\n"} {
		f.Add("POST /a" + h11 + coded + "\r\n" + chunks + smuggled)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		whole := follow(t, strings.NewReader(stream))
		if pieces := follow(t, iotest.HalfReader(strings.NewReader(stream))); !slices.Equal(pieces, whole) {
			t.Fatalf("%q in pieces: %q, want %q", stream, pieces, whole)
		}
	})
}
