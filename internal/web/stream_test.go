package web

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
)

// follower reads a stream event by event.
type follower struct {
	t   *testing.T
	in  *bufio.Reader
	res *http.Response
}

// follow opens a stream, which ends after a minute: then what waits for its next event fails.
func (b *visitor) follow(path string) *follower {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	b.t.Cleanup(cancel)
	res := b.send(b.request(http.MethodGet, path, nil).WithContext(ctx))
	b.t.Cleanup(func() { res.Body.Close() })
	require.Equal(b.t, 200, res.StatusCode)
	require.Equal(b.t, "text/event-stream", res.Header.Get("Content-Type"))
	return &follower{b.t, bufio.NewReader(res.Body), res}
}

// next is the next event and its data.
func (f *follower) next() (event, data string) {
	f.t.Helper()
	for {
		line, err := f.in.ReadString('\n')
		require.NoError(f.t, err)
		switch name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); {
		case name == "event":
			event = value
		case name == "data":
			return event, value
		}
	}
}

// part waits for a part of the page that says something.
func (f *follower) part(id, text string) {
	f.t.Helper()
	for {
		event, data := f.next()
		if event != "part" {
			continue
		}
		var part struct{ ID, HTML string }
		require.NoError(f.t, json.Unmarshal([]byte(data), &part))
		if part.ID == id && strings.Contains(part.HTML, text) {
			return
		}
	}
}

// log waits for lines of the log.
func (f *follower) log() (got logBatch) {
	f.t.Helper()
	for {
		if event, data := f.next(); event == "log" {
			require.NoError(f.t, json.Unmarshal([]byte(data), &got))
			return got
		}
	}
}

// lines waits for lines of the log, wherever those before them are.
func (f *follower) lines() logBatch {
	f.t.Helper()
	got := f.log()
	got.Older = ""
	return got
}

func TestStream_TellsThePartsThatChange(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	f := b.follow("/dashboard/stacks/" + id + "/stream?service=api&kind=run")
	f.part("status", "live")
	f.part("head", id)
	f.part("services", "restart/api")
	f.part("events", "stack.live")
	r := b.post("/dashboard/stacks/"+id+"/restart/api", nil)
	require.Equal(t, 303, r.status)
	f.part("services", "restarting")
	require.Equal(t, []string{id + " api"}, e.host.restarts)
}

func TestStream_TellsTheLinesOfALog(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	f := b.follow("/dashboard/stacks/" + id + "/stream?service=api&kind=run")
	require.Equal(t, logBatch{HTML: "from the run log of api\n", Anew: true}, f.lines(), "the first lines replace what the page came with")
	e.host.lines <- []string{"\x1b[31mone\x1b[0m", `C:\<two>`}
	require.Equal(t, logBatch{HTML: "one\nC:\\&lt;two&gt;\n"}, f.lines())
	e.host.lines <- []string{"three"}
	require.Equal(t, logBatch{HTML: "three\n"}, f.lines())
}

func TestStream_LeadsAwayFromAStackThatIsGone(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	list := b.follow("/dashboard/stream")
	list.part("stacks", "guestbook")
	f := b.follow("/dashboard/stacks/" + id + "/stream")
	require.Equal(t, 303, b.post("/dashboard/stacks/"+id+"/delete", nil).status)
	for {
		event, data := f.next()
		if event == "go" {
			require.Equal(t, `"/dashboard"`, data)
			break
		}
	}
	_, err := io.ReadAll(f.in)
	require.NoError(t, err, "it ends there")
	list.part("stacks", "No stacks yet")
}

func TestStream_EndsWithTheServer(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	f := b.follow("/dashboard/stacks/" + id + "/claimed/stream")
	f.part("progress", "guestbook is yours")
	e.web.server.Release()
	_, err := io.ReadAll(f.in)
	require.NoError(t, err)
}

func TestStream_IsForTheOwner(t *testing.T) {
	e := newEnv(t)
	b, other := e.signedUp(ana), e.signedUp(bob)
	id := e.owned(b, "guestbook")
	for _, path := range []string{"/stream", "/claimed/stream"} {
		require.Equal(t, 404, other.get("/dashboard/stacks/"+id+path).status)
		require.Equal(t, "/signin", e.visitor().get("/dashboard/stacks/"+id+path).header.Get("Location"))
	}
	require.Equal(t, 404, b.get("/dashboard/stacks/"+id+"/stream?service=nothing").status)
}

func TestStream_AnAccountHasSoManyAndThenMoreOnceTheyEnd(t *testing.T) {
	e := newEnv(t)
	b, other := e.signedUp(ana), e.signedUp(bob)
	id := e.owned(b, "guestbook")
	const list = "/dashboard/stream"
	for i := range sse.MostOpen {
		b.follow([]string{list, "/dashboard/stacks/" + id + "/stream"}[i%2])
	}
	r := b.get(list)
	require.Equal(t, 429, r.status)
	require.Equal(t, "60", r.header.Get("Retry-After"))
	require.Contains(t, r.body, "64 pages of this account are open already")
	other.follow(list).part("stacks", "")
	e.web.server.Release()
	require.Eventually(t, func() bool { return b.get(list).status == 200 }, time.Minute, time.Millisecond)
}

func TestStream_HeadHasNoBody(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	for range 3 { // the connection stays in step
		r := b.do(b.request(http.MethodHead, "/dashboard/stream", nil))
		require.Equal(t, 200, r.status)
		require.Equal(t, "text/event-stream", r.header.Get("Content-Type"))
		require.Equal(t, 200, b.get("/dashboard").status)
	}
	require.NotContains(t, e.logged.String(), "error")
}

// A beat ends the stream of a session that was signed out elsewhere.
func TestStream_EndsWithTheSession(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	s := &streamer{web: e.web, token: b.cookies[sessionCookie], out: sse.NewWriter(bufio.NewWriter(io.Discard)), sent: map[string]string{}}
	require.NoError(t, s.beat())
	require.Equal(t, 303, b.post("/signout", nil).status)
	require.ErrorIs(t, s.beat(), sse.ErrLeft)
}

func TestStream_SendsOnlyWhatChanged(t *testing.T) {
	var out strings.Builder
	s := &streamer{web: newPages(Config{URLs: stack.URLs{Base: &url.URL{}}}), out: sse.NewWriter(bufio.NewWriter(&out)), sent: map[string]string{}}
	restoring := stackView{Stack: &stack.Stack{Status: stack.Building}}
	for range 2 {
		require.NoError(t, s.sendPart(part{"progress", progress(restoring)}))
	}
	require.Equal(t, 1, strings.Count(out.String(), "event: part"))
}
