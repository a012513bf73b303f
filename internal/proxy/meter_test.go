package proxy_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// send makes a request through the front, and returns the status and the body.
func (f *front) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	res, err := newClient(t).Do(request(t, method, f.addr, path, strings.NewReader(body)))
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// counts waits for the open requests and returns what was counted for the service web.
func (f *front) counts(t *testing.T) *proxy.Counts {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, f.routes.Drain(ctx))
	return f.routes.Take()[testHex]["web"]
}

func TestTake_CountsStatusesBytesAndTimes(t *testing.T) {
	backend := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/slow":
			w.WriteHeader(http.StatusEarlyHints) // no answer yet
			time.Sleep(time.Second)
			io.WriteString(w, "at last")
		case "/big":
			w.Header().Set("Content-Length", "200000") // long enough for a splice
			w.Write(make([]byte, 200_000))
		case "/moved":
			http.Redirect(w, r, "/", http.StatusFound)
		case "/missing":
			http.Error(w, "none", http.StatusNotFound)
		case "/broken":
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	}))
	f := newFront(t, backend, proxy.Options{})
	for _, path := range []string{"/", "/slow", "/big", "/moved", "/missing", "/broken", "/broken"} {
		f.send(t, "POST", path, "12345")
	}
	got := f.counts(t)
	require.Equal(t, [6]uint64{2: 3, 3: 1, 4: 1, 5: 2}, got.Answers)
	require.EqualValues(t, 7*5, got.In)
	require.EqualValues(t, len("at last")+200_000+len("none\n")+2*len("broken\n"), got.Out)
	require.EqualValues(t, 7, got.First.Total())
	slowest, ok := got.First.Quantile(1)
	require.True(t, ok)
	require.Greater(t, slowest, 900*time.Millisecond)
	median, _ := got.First.Quantile(0.5)
	require.Less(t, median, 900*time.Millisecond)

	require.Equal(t, &proxy.Counts{}, f.routes.Take()[testHex]["web"], "it was taken")
}

func TestTake_CountsWhatTheProxyAnswersForTheService(t *testing.T) {
	f := newFront(t, serve(t, http.NotFoundHandler()), proxy.Options{})
	f.routes.Withdraw(testHex, f.target)
	status, body := f.send(t, "GET", "/", "")
	require.Equal(t, http.StatusBadGateway, status)
	got := f.counts(t)
	require.Equal(t, [6]uint64{5: 1}, got.Answers)
	require.EqualValues(t, len(body), got.Out)
}

func TestTake_CountsACallerWhoLeaves(t *testing.T) {
	arrived := make(chan struct{})
	f := newFront(t, serve(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})), proxy.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	_, err := newClient(t).Do(request(t, "GET", f.addr, "/", nil).WithContext(ctx))
	require.Error(t, err)
	// It is counted just after its target has let it go, which is what counts waits for.
	require.Eventually(t, func() bool { return f.counts(t).Answers == [6]uint64{0: 1} }, 10*time.Second, time.Millisecond)
}

func TestTake_CountsBothWaysOfAWebSocket(t *testing.T) {
	addr, ends := echoServer(t)
	f := newFront(t, addr, proxy.Options{})
	c := openSocket(t, f.addr)
	echo(t, c, "hello")
	require.NoError(t, c.CloseNow())
	<-ends
	got := f.counts(t)
	require.Equal(t, [6]uint64{1: 1}, got.Answers)
	require.GreaterOrEqual(t, got.In, uint64(len("hello")))
	require.GreaterOrEqual(t, got.Out, uint64(len("hello")))
}

func TestTake_CountsSitesAndGoesOnInTheNextGeneration(t *testing.T) {
	var routes proxy.Routes
	addr := serveRoutes(t, &routes)
	for range 2 {
		site := proxy.NewHandler(readyPage("page"))
		routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(map[string]*proxy.Target{"web": site})})
		ask(t, addr, testHost, "GET", "/")
	}
	got := routes.Take()[testHex]["web"]
	require.Equal(t, [6]uint64{2: 2}, got.Answers)
	require.EqualValues(t, 2*len("page"), got.Out)

	ask(t, addr, testHost, "GET", "/")
	routes.Remove(testHex)
	require.Equal(t, [6]uint64{2: 1}, routes.Take()[testHex]["web"].Answers, "the last requests of a stack that is gone")
	require.Empty(t, routes.Take())
}
