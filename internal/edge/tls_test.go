package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/wire"
)

func TestEdge_SpeaksTLSWithTheCertificatesItIsGiven(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	cfg := testConfig(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/early" {
			http.Error(w, "too much", http.StatusRequestEntityTooLarge)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, r.Proto, newEdge(Config{}).identify(r, nil).Proto, r.Header.Get(wire.HeaderCallerIP), n, err)
	}))
	cfg.BaseHost = "example.com" // the one that the certificate is for
	cfg.TLS = &tls.Config{Certificates: borrowed.TLS.Certificates}
	addr, _ := start(t, cfg)
	roots := x509.NewCertPool()
	roots.AddCert(borrowed.Certificate())
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		client := &http.Client{Transport: &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial("tcp", addr) },
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			ForceAttemptHTTP2: protocol == "HTTP/2.0",
		}}
		defer client.CloseIdleConnections()
		send := func(path string, size int) (int, string) {
			t.Helper()
			res, err := client.Post("https://example.com"+path, "text/plain", strings.NewReader(strings.Repeat("x", size)))
			if err != nil {
				t.Fatal(protocol, err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(protocol, err)
			}
			return res.StatusCode, string(body)
		}
		for range 2 {
			if _, body := send("/", 1<<20); body != protocol+" https 127.0.0.1 1048576 <nil>\n" {
				t.Errorf("%s: %q", protocol, body)
			}
		}
		if status, body := send("/early", 8<<20); status != http.StatusRequestEntityTooLarge || body != "too much\n" {
			t.Errorf("%s: an early answer to an upload: %d %q", protocol, status, body)
		}
	}
	if _, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, ServerName: "other.test"}); err == nil {
		t.Error("the certificate is for any name")
	}
}

// records returns how many records of TLS with application data begin in what came.
func records(came []byte) (n int) {
	for len(came) >= 5 {
		if came[0] == 23 {
			n++
		}
		came = came[min(len(came), 5+int(came[3])<<8+int(came[4])):]
	}
	return n
}

// lastRecord returns the length of the last record in what came.
func lastRecord(came []byte) (length int) {
	for len(came) >= 5 {
		length = int(came[3])<<8 + int(came[4])
		came = came[min(len(came), 5+length):]
	}
	return length
}

// kept is a connection that keeps what is read.
type kept struct {
	net.Conn
	came []byte
}

func (k *kept) Read(p []byte) (int, error) {
	n, err := k.Conn.Read(p)
	k.came = append(k.came, p[:n]...)
	return n, err
}

// A caller comes back with a ticket. A small answer is one record, and so one write; crypto/tls lets
// the first one on a connection be 1,186 bytes.
func TestLane_ResumesTLSAndAnswersInOneRecord(t *testing.T) {
	bodies := map[string]int{"/first": 900, "/later": 1 << 10}
	addr, counted := lanesOf(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(bodies[r.URL.Path]))
		w.Write(make([]byte, bodies[r.URL.Path]))
	}), certificate(t))
	cfg := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}, ServerName: "test", ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	for _, resumed := range []bool{false, true, true} {
		nc, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer nc.Close()
		raw := &kept{Conn: nc}
		c := tls.Client(raw, cfg)
		require.NoError(t, c.Handshake())
		require.Equal(t, resumed, c.ConnectionState().DidResume)
		require.EqualValues(t, tls.VersionTLS13, c.ConnectionState().Version)
		br := bufio.NewReader(c)
		for i, path := range []string{"/first", "/later", "/later"} {
			_, err = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+testService+"\r\n\r\n")
			require.NoError(t, err)
			res, err := http.ReadResponse(br, nil)
			require.NoError(t, err)
			n, err := io.Copy(io.Discard, res.Body)
			require.NoError(t, err)
			require.EqualValues(t, bodies[path], n)
			want := 1
			if i == 0 {
				want += 3 // extensions, the end of the handshake, and a ticket
				if !resumed {
					want += 2 // the certificate and its proof
				}
			}
			require.Equal(t, want, records(raw.came), path)
			raw.came = nil
		}
	}
	require.EqualValues(t, 3, counted(fast))
}
