package edge

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/exchange"
	"github.com/berth-host/berth/internal/streams"
)

// anyPeer believes every caller, and has every connection carry streams.
type anyPeer struct{ answers http.Handler }

func (p anyPeer) Admit(*http.Request) (exchange.Caller, http.Handler) {
	return exchange.Caller{}, p.answers
}

func (anyPeer) Streams(string) bool { return true }

func TestServer_ShutdownAnswersWhatANodeHasBegunToSend(t *testing.T) {
	borrowed := httptest.NewTLSServer(nil)
	defer borrowed.Close()
	for name, streamFirst := range map[string]bool{
		"a connection whose handshake is under way": false,
		"a stream without its request":              true,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				if shutdownAnswers(t, streamFirst, borrowed.TLS.Certificates) {
					return
				}
			}
			t.Error("it never answers")
		})
	}
}

// shutdownAnswers checks that a server that shuts down answers the request on a stream, and
// reports false if there was no answer and leaveLimit had passed, as it may on a slow machine.
func shutdownAnswers(t *testing.T, streamFirst bool, certificates []tls.Certificate) bool {
	greeted, goOn := make(chan struct{}), make(chan struct{})
	cfg := testConfig(nil)
	cfg.Peers = anyPeer{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answered") })}
	cfg.TLS = &tls.Config{
		Certificates: certificates,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			close(greeted)
			if !streamFirst {
				<-goOn
			}
			return nil, nil
		},
	}
	addr, srv := start(t, cfg)
	answer := make(chan string, 1)
	go func() { answer <- askOverStream(addr, streamFirst, goOn) }()
	<-greeted
	if streamFirst {
		require.Eventually(t, func() bool { return srv.conns.Load() == 1 }, 10*time.Second, time.Millisecond)
	}
	begun := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Shutdown(context.Background()) }()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 10*time.Second, time.Millisecond, "the server still listens")
	time.Sleep(50 * time.Millisecond) // in which it would stop
	close(goOn)
	got := <-answer
	if got != "answered" && time.Since(begun) >= leaveLimit {
		<-stopped
		return false
	}
	assert.True(t, got == "answered" || got == notOpened && !streamFirst, got)
	assert.NoError(t, <-stopped)
	return true
}

// notOpened is what askOverStream returns if the server has asked for no more streams by then.
const notOpened = "not opened"

// askOverStream sends a request over a stream, which it opens before goOn is closed if
// streamFirst says so, and returns the body of the answer, or why there is none.
func askOverStream(addr string, streamFirst bool, goOn <-chan struct{}) string {
	c, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	stream, err := streams.Client(c).Open()
	if err != nil {
		return notOpened
	}
	defer stream.Close()
	if streamFirst {
		<-goOn
	}
	io.WriteString(stream, "GET / HTTP/1.1\r\nHost: berth.test\r\n\r\n")
	res, err := http.ReadResponse(bufio.NewReader(stream), nil)
	if err != nil {
		return err.Error()
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}
