package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// load puts one stack under constant load and counts.
type load struct {
	h        *Host
	st       *Stack
	service  string       // that the program runs as
	below    string       // path of web's URL that leads to the program; "" for the URL itself
	conns    int          // that carry nothing but GETs; 0 for 4
	switched atomic.Int64 // the generation of which it is known that it serves
	requests atomic.Int64 // that were answered
	streams  atomic.Int64 // that were opened, of either kind
	messages atomic.Int64 // that a WebSocket sent back
	failed   atomic.Int64
	first    atomic.Pointer[error] // the first failure
}

// url is the URL of a path of the program.
func (l *load) url(path string) string { return l.st.url("web", l.below+path) }

func (l *load) fail(err error) {
	l.failed.Add(1)
	l.first.CompareAndSwap(nil, &err)
}

// constantly runs do until ctx ends.
func (l *load) constantly(ctx context.Context, all *sync.WaitGroup, do func(context.Context, *http.Client) error) {
	all.Go(func() {
		client := l.h.newClient()
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			if err := do(ctx, client); err != nil && ctx.Err() == nil {
				l.fail(err)
			}
		}
	})
}

// get is a GET on a connection that is kept. No earlier generation may answer it than the one
// that served before it was sent.
func (l *load) get(_ context.Context, client *http.Client) error {
	least := l.switched.Load()
	res, err := client.Get(l.url("/"))
	if err != nil {
		return err
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && string(body) != "hello from "+l.service {
		err = fmt.Errorf("GET: %s %s", res.Status, body)
	}
	if by, _ := strconv.ParseInt(res.Header.Get("Generation"), 10, 64); err == nil && by < least {
		err = fmt.Errorf("GET: generation %d answers after generation %d has", by, least)
	}
	l.requests.Add(1)
	return err
}

// post sends a body that has to arrive whole.
func (l *load) post(_ context.Context, client *http.Client) error {
	body := bytes.Repeat([]byte("0123456789abcdef"), 2048)
	sum := sha256.Sum256(body)
	res, err := client.Post(l.url("/digest"), "text/plain", bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err == nil && !strings.Contains(string(answer), hex.EncodeToString(sum[:])) {
		err = fmt.Errorf("POST: %s %s", res.Status, answer)
	}
	l.requests.Add(1)
	return err
}

// listen reads server-sent events until the stream is cut, which may not be
// before it has had the drain time.
func (l *load) listen(ctx context.Context, client *http.Client) error {
	client.Timeout = 0
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url("/sse"), nil)
	if err != nil {
		return err
	}
	opened := time.Now() // before the server has: a busy machine may read late
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	line, err := bufio.NewReader(res.Body).ReadString('\n')
	if err != nil || line != "data: open\n" {
		return fmt.Errorf("SSE: %s %q %w", res.Status, line, err)
	}
	l.streams.Add(1)
	_, _ = io.Copy(io.Discard, res.Body)
	if lived := time.Since(opened); lived < drainOfLoad-200*time.Millisecond {
		return fmt.Errorf("SSE: it was cut after %s", lived)
	}
	return nil
}

// talk has a WebSocket send back messages until it is closed with 1001.
func (l *load) talk(ctx context.Context, client *http.Client) error {
	client.Timeout = 0
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(l.url("/any"), "http"), &websocket.DialOptions{HTTPClient: client})
	if err != nil {
		return err
	}
	defer ws.CloseNow()
	l.streams.Add(1)
	for {
		err := ws.Write(ctx, websocket.MessageText, []byte("message"))
		if err == nil {
			_, _, err = ws.Read(ctx)
		} else if ctx.Err() == nil {
			_, _, err = ws.Read(ctx) // for why it was closed
		}
		if websocket.CloseStatus(err) == websocket.StatusGoingAway {
			return nil
		}
		if err != nil {
			return fmt.Errorf("WebSocket: %w", err)
		}
		l.messages.Add(1)
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// begin starts all of the load; stop ends it.
func (l *load) begin(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range cmp.Or(l.conns, 4) {
		l.constantly(ctx, &all, l.get)
	}
	for range 2 {
		l.constantly(ctx, &all, l.post)
	}
	l.constantly(ctx, &all, l.listen)
	l.constantly(ctx, &all, l.talk)
	return func() {
		cancel()
		all.Wait()
	}
}

const drainOfLoad = 2 * time.Second

// wanted is how many redeploys and requests a test of the switch makes, on how many connections:
// BERTH_TEST_REDEPLOYS=100, BERTH_TEST_REQUESTS=1000000 and BERTH_TEST_CONNS=64 for the full
// figure.
func wanted(t *testing.T, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

func TestSwitch_UnderLoadLosesNoRequest(t *testing.T) {
	t.Parallel()
	redeploys, requests := wanted(t, "BERTH_TEST_REDEPLOYS", 10), wanted(t, "BERTH_TEST_REQUESTS", 3000)
	opts := []Option{with("BERTH_DRAIN", drainOfLoad.String())}
	if redeploys > 10 {
		opts = append(opts, asShipped)
	}
	h := start(t, opts...)
	tree := program(t)
	l := &load{h: h, service: "web", st: h.live(t, tree, manifest(programManifest)), conns: wanted(t, "BERTH_TEST_CONNS", 0)}
	stop := l.begin(t)
	begun, generation := time.Now(), 1
	for generation <= redeploys || l.requests.Load() < int64(requests) {
		generation++
		// Every other one has to be built.
		now := h.redeploy(t, l.st, tree.plus(Tree{"n": fmt.Sprint(generation / 2)}), manifest(programManifest))
		require.Equal(t, generation, now.Generation, now.deployError())
		l.switched.Store(int64(generation))
	}
	stop()
	t.Logf("%d redeploys and %d requests, %d streams, %d messages in %s: %d failed",
		generation-1, l.requests.Load(), l.streams.Load(), l.messages.Load(), time.Since(begun).Round(time.Second), l.failed.Load())
	if first := l.first.Load(); first != nil {
		t.Errorf("%d failed; the first: %v", l.failed.Load(), *first)
	}
	require.Greater(t, l.streams.Load(), int64(2), "the streams were never cut")
	h.keeps(t, l.st, fmt.Sprintf("container web-g%d", generation), "image web", "volume web-data", fmt.Sprintf("network g%d", generation))
}
