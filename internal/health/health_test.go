package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBrief_SaysWhyARequestFailed(t *testing.T) {
	for cause, want := range map[error]string{
		context.DeadlineExceeded:                                 "it timed out",
		&net.OpError{Op: "read", Net: "tcp", Err: net.ErrClosed}: "it timed out", // the deadline met a read
		io.ErrUnexpectedEOF:                                      "the program closed the connection",
		fmt.Errorf("%w", http.ErrNotSupported):                   http.ErrNotSupported.Error(),
		errors.New("malformed HTTP response"):                    "malformed HTTP response",
	} {
		require.Equal(t, want, brief(&url.Error{Op: "Get", URL: "http://10.0.0.2:8080/", Err: cause}))
	}
}

// serve answers on a port of this machine, and returns its address.
func serve(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func TestWait_AsksAsThePublicWould(t *testing.T) {
	var asked *http.Request
	addr := serve(t, func(_ http.ResponseWriter, r *http.Request) { asked = r })
	require.Nil(t, Wait(t.Context(), Request{Addr: addr, Host: "web-x.apps.example", Scheme: "https", Path: "/up?deep=1"}))
	require.Equal(t, "/up?deep=1", asked.RequestURI)
	require.Equal(t, "web-x.apps.example", asked.Host)
	require.Equal(t, "web-x.apps.example", asked.Header.Get("X-Forwarded-Host"))
	require.Equal(t, "https", asked.Header.Get("X-Forwarded-Proto"))
}

func TestWait_TakesEveryAnswerUnlessAPathIsChosen(t *testing.T) {
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	require.Nil(t, Wait(t.Context(), Request{Addr: addr}))

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	failure := Wait(ctx, Request{Addr: addr, Path: "/up"})
	require.Equal(t, &Failure{Opened: true, Last: "GET /up answered 418 I'm a teapot; the health check passes with 2xx or 3xx"}, failure)
}

func TestWait_DoesNotAskItselfForAProgramWithoutAnAddress(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, port, err := net.SplitHostPort(serve(t, func(http.ResponseWriter, *http.Request) { t.Error("this host was asked") }))
	require.NoError(t, err)
	require.Equal(t, &Failure{}, Wait(ctx, Request{Addr: ":" + port}))
}

func TestWait_TellsWhatIsWrongSoFar(t *testing.T) {
	held, told := make(chan struct{}), make(chan Failure, 100)
	status := http.StatusInternalServerError
	addr := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		<-held
		w.WriteHeader(status)
		status = http.StatusOK
	})
	passed := make(chan *Failure)
	go func() {
		passed <- Wait(t.Context(), Request{Addr: addr, Path: "/up", Failing: func(f Failure) { told <- f }})
	}()
	require.Equal(t, Failure{Opened: true}, <-told, "before it answers")
	close(held)
	require.Equal(t, Failure{Opened: true, Last: "GET /up answered 500 Internal Server Error; the health check passes with 2xx or 3xx"}, <-told)
	require.Nil(t, <-passed)
}
