package mcp

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/slowbody"
)

// sender is a client's end of a request, and the answer to it.
type sender struct {
	conn   net.Conn
	answer answer
}

// answer is written to a connection whose deadline can be set.
type answer struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (a answer) SetReadDeadline(t time.Time) error { return a.conn.SetReadDeadline(t) }

// networkOf returns the client network that send recorded.
func networkOf(r *http.Request) string { return r.RemoteAddr }

// send begins a request from a client network with a body of some length, -1
// for one that is not known.
func send(h http.Handler, running *sync.WaitGroup, network string, length int64) *sender {
	client, server := net.Pipe()
	s := &sender{client, answer{httptest.NewRecorder(), server}}
	var body io.Reader = server
	if length >= 0 {
		body = io.LimitReader(server, length)
	}
	r := httptest.NewRequest(http.MethodPost, "/mcp", body)
	r.ContentLength, r.RemoteAddr = length, network
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	running.Go(func() {
		h.ServeHTTP(s.answer, r)
		_ = server.Close() // as net/http does when a body was not read to its end
	})
	return s
}

// sendCall sends a whole call of the tools' list, made longer by some bytes.
func sendCall(h http.Handler, network string, padding int) *httptest.ResponseRecorder {
	text := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + strings.Repeat(" ", padding)
	var running sync.WaitGroup
	s := send(h, &running, network, int64(len(text)))
	_, _ = io.WriteString(s.conn, text)
	running.Wait()
	return s.answer.ResponseRecorder
}

func TestHandler_EndsCallsThatComeTooSlowly(t *testing.T) {
	for name, c := range map[string]struct {
		first  int // bytes at once
		then   int // bytes at a time
		every  time.Duration
		length int64
	}{
		"nothing":            {0, 0, time.Hour, 100},
		"one byte short":     {maxCall - 1, 0, time.Hour, maxCall},
		"in chunks":          {maxCall / 2, 0, time.Hour, -1},
		"a trickle":          {0, 1, 10 * time.Second, maxCall},
		"a trickle of lines": {smallCall, 100, time.Second, maxCall},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := Handler(Config{}, networkOf)
				begun := time.Now()
				var running sync.WaitGroup
				s := send(h, &running, "a", c.length)
				_, err := s.conn.Write(make([]byte, c.first))
				for err == nil {
					time.Sleep(c.every)
					_, err = s.conn.Write(make([]byte, c.then))
				}
				running.Wait()
				require.Equal(t, http.StatusBadRequest, s.answer.Code)
				require.Contains(t, s.answer.Body.String(), `{"detail":"the call stalled after`)
				require.Less(t, time.Since(begun), c.every+2*slowbody.Stall+time.Duration(c.first)*time.Second/slowbody.Least)
				require.Equal(t, http.StatusOK, sendCall(h, "a", 0).Code)
			})
		})
	}
}

func TestHandler_ReadsFewLargeCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := Handler(Config{}, networkOf)
		var running sync.WaitGroup
		var senders []*sender
		begin := func(network string) {
			s := send(h, &running, network, []int64{maxCall, -1}[len(senders)%2])
			_, err := s.conn.Write(make([]byte, 2*smallCall))
			require.NoError(t, err)
			senders = append(senders, s)
		}
		requireRefused := func(network, detail string) {
			t.Helper()
			synctest.Wait()
			refused := sendCall(h, network, 2*smallCall)
			require.Equal(t, http.StatusServiceUnavailable, refused.Code)
			require.Equal(t, busyRetry, refused.Header().Get("Retry-After"))
			require.Contains(t, refused.Body.String(), detail)
			small := sendCall(h, network, 100)
			require.Equal(t, http.StatusOK, small.Code, "small calls need no place: %s", small.Body)
		}
		for range ownPlaces {
			begin("a")
		}
		requireRefused("a", "4 large calls from your network")
		require.Equal(t, http.StatusOK, sendCall(h, "b", 2*smallCall).Code, "one network takes the places of another")
		for i := range largeCalls - ownPlaces {
			begin(strconv.Itoa(i / ownPlaces))
		}
		requireRefused("b", "too many large calls are being sent to this server at once; send this one again in a few seconds")

		for _, s := range senders {
			require.NoError(t, s.conn.Close())
		}
		running.Wait()
		require.Contains(t, senders[0].answer.Body.String(), "the call broke off after")
		for range 2 * largeCalls {
			require.Equal(t, http.StatusOK, sendCall(h, "a", 2*smallCall).Code)
		}
	})
}

func TestHandler_TellsHowLargeACallMayBe(t *testing.T) {
	h := Handler(Config{}, networkOf)
	require.Equal(t, http.StatusOK, sendCall(h, "a", maxCall-1000).Code)
	refused := sendCall(h, "a", maxCall)
	require.Equal(t, http.StatusRequestEntityTooLarge, refused.Code)
	require.Contains(t, refused.Body.String(), "larger than 4 MiB")
}

func TestHandler_TellsWhatACallLooksLike(t *testing.T) {
	for _, body := range []string{"", "[", "{", "tools/list", `{"jsonrpc":"2.0"} x`} {
		r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
		w := answer{httptest.NewRecorder(), nopConn{}}
		Handler(Config{}, networkOf).ServeHTTP(w, r)
		require.Equal(t, http.StatusBadRequest, w.Code, body)
		require.Contains(t, w.Body.String(), `{"detail":"the call is not JSON`, body)
	}
}

func TestHandler_RefusesTextThatItWouldAlter(t *testing.T) {
	for text, want := range map[string]string{"caf\xe9": "the call is not in UTF-8", `a\ud800b`: "the call has half of a surrogate pair"} {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"set_env","arguments":{"stack":"x","variables":{"KEY":"` + text + `"}}}}`
		w := answer{httptest.NewRecorder(), nopConn{}}
		Handler(Config{}, networkOf).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body)))
		require.Equal(t, http.StatusBadRequest, w.Code)
		require.Contains(t, w.Body.String(), want)
	}
}

// nopConn has a deadline that never comes.
type nopConn struct{ net.Conn }

func (nopConn) SetReadDeadline(time.Time) error { return nil }
