package server

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/wire"
)

// ask has a gate answer a request in the background.
func ask(g *gate, r *http.Request) (answered chan string) {
	answered = make(chan string, 1)
	go func() {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		answered <- w.Body.String()
	}()
	synctest.Wait()
	return answered
}

// says returns a handler that reads the whole body and answers with a text.
func says(text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, text)
	})
}

func get() *http.Request { return httptest.NewRequest(http.MethodGet, "/v0/stacks", nil) }

func post(body io.Reader) *http.Request {
	return httptest.NewRequest(http.MethodPost, "/v0/stacks", body)
}

func TestGate_HoldsRequestsBackUntilAnotherAnswersThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(says("here"))
		require.Equal(t, "here", <-ask(g, get()))
		g.hold(heldLong)
		require.Equal(t, "here", <-ask(g, get()))
		upload := ask(g, post(io.MultiReader(strings.NewReader("x")))) // of unknown length
		g.hold(heldAll)
		short := ask(g, get())
		leaving, leave := context.WithCancel(t.Context())
		left := ask(g, get().WithContext(leaving))
		require.Empty(t, upload)
		require.Empty(t, short)
		leave()
		require.Empty(t, <-left, "its sender has left")
		g.passOn(says("there"))
		require.Equal(t, "there", <-upload)
		require.Equal(t, "there", <-short)
		require.Equal(t, "there", <-ask(g, get()))
	})
}

func TestGate_LetsRequestsPassAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(says("here"))
		g.hold(heldAll)
		waits := ask(g, get())
		require.Empty(t, waits)
		g.hold(heldNone)
		require.Equal(t, "here", <-waits)
	})
}

// What follows from the arrival of an upload is the upload's own work, and only its answer may wait.
func TestGate_AwaitsUploadsAndAllRequests(t *testing.T) {
	for name, c := range map[string]struct{ id, held string }{"until they are answered": {"a", "b"}, "until their answers are held": {"a", "a"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				holding, end := make(chan struct{}), make(chan struct{})
				var g *gate
				g = newGate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					io.Copy(io.Discard, r.Body)
					<-holding
					g.rest(c.held)
					<-end
				}))
				r := post(strings.NewReader(strings.Repeat("x", smallBody+1)))
				r.Header.Set(wire.HeaderRequestID, c.id)
				ask(g, r)
				rested, empty := make(chan bool, 1), make(chan bool, 1)
				go func() { rested <- g.awaitRest(t.Context()) }()
				go func() { empty <- g.awaitEmpty(t.Context()) }()
				synctest.Wait()
				require.Empty(t, rested, "it has arrived and is not recorded yet")
				close(holding)
				synctest.Wait()
				require.Equal(t, c.id == c.held, len(rested) == 1)
				require.Empty(t, empty)
				soon, cancel := context.WithCancel(t.Context())
				cancel()
				require.False(t, g.awaitEmpty(soon))
				close(end)
				require.True(t, <-rested)
				require.True(t, <-empty)
			})
		})
	}
}

// A slow upload is waited for, and what comes beside it is neither held nor waited for.
func TestGate_AwaitsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(says("here"))
		require.True(t, g.awaitUnderWay(t.Context()))
		slow, end := io.Pipe()
		before := ask(g, post(slow))
		over := make(chan bool, 1)
		go func() { over <- g.awaitUnderWay(t.Context()) }()
		synctest.Wait()
		require.Equal(t, "here", <-ask(g, post(strings.NewReader("{}"))))
		later, endLater := io.Pipe()
		after := ask(g, post(later))
		require.Empty(t, over)
		soon, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, g.awaitUnderWay(soon))
		end.Close()
		require.True(t, <-over)
		require.Equal(t, "here", <-before)
		require.Empty(t, after)
		endLater.Close()
		require.Equal(t, "here", <-after)
	})
}

func TestIsLong(t *testing.T) {
	for path, want := range map[string]bool{
		"/v0/stacks": false, "/v0/stacks/stk_1/services/db/data": true, "/v0/stacks/stk_1/source": true,
		"/v0/stacks/stk_1/services/web/exec": true, "/v0/stacks/stk_1/events": false, "/account": false,
	} {
		require.Equal(t, want, isLong(httptest.NewRequest(http.MethodGet, path, nil)), path)
	}
	for path, want := range map[string]bool{
		"/v0/stacks": true, "/v0/stacks/stk_1/deploy": true, "/v0/validate": true, pathMCP: true, "/v0/stacks/stk_1/claim": false,
	} {
		require.Equal(t, want, isLong(httptest.NewRequest(http.MethodPost, path, strings.NewReader("{}"))), path)
	}
	require.True(t, isLong(httptest.NewRequest(http.MethodPost, "/account", strings.NewReader(strings.Repeat("x", smallBody+1)))))
}
