package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// reader reads a stream event by event.
type reader struct {
	t     *testing.T
	in    *bufio.Reader
	close func()
}

// message is one event of a stream.
type message struct{ id, name, data string }

func (e *env) reads(path, token string, header ...string) *reader {
	e.t.Helper()
	return e.readStream(newRequest(e.t, http.MethodGet, path, token, nil, append(header, "Accept", "text/event-stream")...))
}

// readStream sends a request for a stream.
func (e *env) readStream(req *http.Request) *reader {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	res, err := e.client.Do(req.WithContext(ctx))
	require.NoError(e.t, err)
	stop := func() { cancel(); res.Body.Close() }
	e.t.Cleanup(stop)
	require.Equal(e.t, 200, res.StatusCode)
	require.Equal(e.t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Equal(e.t, "no-store", res.Header.Get("Cache-Control"))
	return &reader{e.t, bufio.NewReader(res.Body), stop}
}

// next is the next event; ok is false at the end of the stream.
func (r *reader) next() (m message, ok bool) {
	r.t.Helper()
	for {
		line, err := r.in.ReadString('\n')
		if err != nil {
			return message{}, false
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); {
		case field == "id":
			m.id = value
		case field == "event":
			m.name = value
		case field == "data":
			m.data = value
		case line == "" && m != (message{}):
			return m, true
		}
	}
}

func (r *reader) named(names ...string) message {
	r.t.Helper()
	var m message
	for _, name := range names {
		var ok bool
		m, ok = r.next()
		require.True(r.t, ok, "the stream ended before %s", name)
		require.Equal(r.t, name, m.name, m.data)
	}
	return m
}

func (r *reader) ended() {
	r.t.Helper()
	m, ok := r.next()
	require.False(r.t, ok, "the stream goes on with %v", m)
}

func TestEvents_AreFollowedAndTakenUpAgain(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	path := "/v0/stacks/" + m.id + "/events"
	r := e.reads(path, m.token)
	created := r.named("stack.created")
	live := r.named("stack.live")
	require.Less(t, created.id, live.id)
	var event struct {
		ID      int64
		StackID string `json:"stack_id"`
		Type    string
	}
	require.NoError(t, json.Unmarshal([]byte(live.data), &event))
	require.Equal(t, live.id, strconv.FormatInt(event.ID, 10))
	require.Equal(t, m.id, event.StackID)
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
	redeploying := r.named("stack.redeploying")
	r.close()
	e.live(m.id) // while nobody reads
	r = e.reads(path+"?after=0", m.token, "Last-Event-ID", redeploying.id)
	r.named("stack.live")
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.Extend(time.Hour, testLimits, stack.Now()) })
	r.named("stack.extended")
}

func TestEvents_AStreamHasAllOfAMoreThanAPageLongHistory(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	for range 450 {
		e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.Extend(time.Hour, testLimits, stack.Now()) })
	}
	r := e.reads("/v0/stacks/"+m.id+"/events", m.token)
	r.named("stack.created", "stack.live")
	last := int64(0)
	for range 450 {
		id, err := strconv.ParseInt(r.named("stack.extended").id, 10, 64)
		require.NoError(t, err)
		require.Greater(t, id, last)
		last = id
	}
}

func TestStreams_AStackHasSoManyAndThenMoreOnceTheyEnd(t *testing.T) {
	e := newEnv(t)
	e.host.follow = func(ctx context.Context, _, _ string, _ logfile.View, _ func(logfile.News) error) error {
		<-ctx.Done()
		return nil
	}
	e.host.logs = func(context.Context, string, string, logfile.View, io.Writer) error { return nil }
	m, other := e.creates(""), e.creates("")
	path := "/v0/stacks/" + m.id
	var r *reader
	for i := range sse.MostOpen {
		r = e.reads(path+[]string{"/events", "/logs"}[i%2], m.token)
	}
	for _, one := range []string{"/events", "/logs"} {
		refused := e.send("GET", path+one, m.token, nil, "Accept", "text/event-stream")
		require.Equal(t, 429, refused.status)
		require.Equal(t, "60", refused.header.Get("Retry-After"))
		require.Equal(t, "application/json", refused.header.Get("Content-Type"))
		require.JSONEq(t, `{"detail": "64 streams of this stack's logs and events are open already; close one, or try again in a minute"}`, refused.body)
		require.Equal(t, 200, e.send("GET", path+one, m.token, nil).status, "without a stream")
		require.Equal(t, 200, e.send("HEAD", path+one, m.token, nil, "Accept", "text/event-stream").status)
	}
	e.reads("/v0/stacks/"+other.id+"/events", other.token)
	r.close()
	require.Eventually(t, func() bool {
		e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.Extend(time.Hour, testLimits, stack.Now()) })
		return e.opens(path+"/events", m.token)
	}, time.Minute, time.Millisecond)
}

// opens reports whether a stream can be opened, and closes it again.
func (e *env) opens(path, token string) bool {
	e.t.Helper()
	res, err := e.client.Do(newRequest(e.t, http.MethodGet, path, token, nil, "Accept", "text/event-stream"))
	require.NoError(e.t, err)
	require.NoError(e.t, res.Body.Close())
	return res.StatusCode == 200
}

func TestStreams_EndWithTheAccess(t *testing.T) {
	e := newEnv(t)
	account, key := e.account("ana@example.com")
	says := map[string]string{"deleted": "it was deleted", "revoked": "the owner of the stack revoked its manage_token"}
	for name, end := range map[string]func(made){
		"deleted": func(m made) { require.NoError(t, e.host.Delete(t.Context(), m.id)) },
		"revoked": func(m made) {
			e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.Claim(account, "ana@example.com", stack.Now()) })
			e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.RevokeAgent() })
		},
	} {
		m := e.creates("")
		r := e.reads("/v0/stacks/"+m.id+"/events", m.token)
		r.named("stack.created", "stack.live")
		end(m)
		var last string // event before the end
		for {
			got, ok := r.next()
			require.True(t, ok, "%s: the stream ended without a word", name)
			if got.name == "end" {
				require.Contains(t, got.data, says[name])
				break
			}
			last = got.name
		}
		require.Equal(t, name == "deleted", last == "stack.deleted", "%s: the last event is %q", name, last)
		r.ended()
	}
	m := e.creates(key)
	r := e.reads("/v0/stacks/"+m.id+"/events", key)
	r.named("stack.created", "stack.live")
	next := auth.NewAPIKey()
	require.NoError(t, e.store.RotateKey(t.Context(), account, store.Key{Hash: auth.Hash(next)}))
	require.Equal(t, 200, e.redeploy(m.id, next).status)
	require.Equal(t, "end", r.named("end").name)
}

func TestStreams_ShowTheDeletionWithTheAccount(t *testing.T) {
	e := newEnv(t)
	account, key := e.account("ana@example.com")
	m := e.creates(key)
	r := e.reads("/v0/stacks/"+m.id+"/events", key)
	r.named("stack.created", "stack.live")
	_, err := e.store.DeleteAccount(t.Context(), account, func([]*stack.Stack) error { return nil })
	require.NoError(t, err)
	r.named("stack.deleted")
	end, ok := r.next()
	require.True(t, ok)
	require.Equal(t, "end", end.name)
	require.Contains(t, end.data, "it was deleted")
}

func TestStreams_EndAtShutdown(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	r := e.reads("/v0/stacks/"+m.id+"/events", m.token)
	r.named("stack.created", "stack.live")
	e.api.Release()
	r.ended()
}

func TestStreams_NoticeAtOnceThatTheReaderLeft(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	left := make(chan struct{})
	e.host.follow = func(ctx context.Context, _, _ string, _ logfile.View, _ func(logfile.News) error) error {
		<-ctx.Done()
		close(left)
		return nil
	}
	r := e.reads("/v0/stacks/"+m.id+"/logs", m.token)
	_, err := r.in.ReadString('\n')
	require.NoError(t, err)
	r.close()
	select {
	case <-left:
	case <-time.After(14 * time.Second): // less than a beat
		t.Fatal("the stream goes on for nobody")
	}
}

// newsOf returns news of a log with these lines.
func newsOf(lines ...string) (n logfile.News) {
	for _, line := range lines {
		n.Lines = append(n.Lines, logfile.Line{Text: line})
	}
	return n
}

func TestLogs_AreFollowedByService(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, "a/index.html", "a", "b/index.html", "b")),
		textPart("manifest", "services: [{name: a, runtime: static, root: a}, {name: b, runtime: static, root: b}]"))
	e.host.follow = func(ctx context.Context, service, kind string, v logfile.View, emit func(logfile.News) error) error {
		if err := emit(newsOf(fmt.Sprint(service, kind, v.Tail), "\xff\x1b[31m\r<\r")); err != nil {
			return err
		}
		anew := newsOf("again")
		anew.Anew = true
		if err := emit(anew); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
	r := e.reads("/v0/stacks/"+m.id+"/logs?kind=build&tail=7", m.token)
	got := map[string][]string{}
	for range 2 * 4 {
		next, ok := r.next()
		require.True(t, ok)
		var line logLine
		require.NoError(t, json.Unmarshal([]byte(next.data), &line))
		got[line.Service] = append(got[line.Service], next.name+line.Line)
	}
	for _, service := range []string{"a", "b"} {
		require.Equal(t, []string{service + "build7", "\ufffd\\x1b[31m\\r<", "reset", "again"}, got[service])
	}
	r.close()
	r = e.reads("/v0/stacks/"+m.id+"/logs?service=b", m.token)
	next, _ := r.next()
	require.JSONEq(t, `{"service": "b", "line": "brun200"}`, next.data)
}

func TestStreams_ErrorsComeAsJSON(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	path := "/v0/stacks/" + m.id
	for _, tt := range []struct {
		path, token, seen string
		status            int
	}{
		{path + "/events", "", "0", 401},
		{path + "/events", m.token, "x", 400},
		{path + "/events", m.token, "-1", 400},
		{path + "/logs?kind=x", m.token, "0", 400},
		{path + "/logs?service=x", m.token, "0", 404},
		{path + "/logs", m.token, "42", 400},
		{path + "/logs", m.token, "web:1.1,api", 400},
	} {
		r := e.send("GET", tt.path, tt.token, nil, "Accept", "text/event-stream", "Last-Event-ID", tt.seen)
		require.Equal(t, tt.status, r.status, r.body)
		r.detail()
	}
	r := e.send("HEAD", path+"/events", m.token, nil, "Accept", "text/event-stream")
	require.Equal(t, 200, r.status)
	require.Empty(t, r.body)
}

func TestEvents_WaitHoldsUntilThereIsOne(t *testing.T) {
	e := newEnv(t)
	m := e.creates("")
	path := "/v0/stacks/" + m.id + "/events?wait=true"
	at := func(after string) []any {
		r := e.send("GET", path+"&after="+after, m.token, nil)
		require.Equal(t, 200, r.status, r.body)
		return r.json()["events"].([]any)
	}
	seen := at("0") // there are some: no waiting
	require.Len(t, seen, 2)
	last := fmt.Sprint(seen[1].(map[string]any)["id"])
	got := make(chan []any, 1)
	go func() { got <- at(last) }()
	select {
	case events := <-got:
		t.Fatalf("answered with %v before there was an event", events)
	case <-time.After(50 * time.Millisecond):
	}
	require.Equal(t, 200, e.redeploy(m.id, m.token).status)
	events := <-got
	require.Len(t, events, 1)
	require.Equal(t, "stack.redeploying", events[0].(map[string]any)["type"])
}

func TestEvents_WaitEndsWithoutOne(t *testing.T) {
	e := newEnv(t, func(c *Config) { c.Wait = 20 * time.Millisecond })
	m := e.creates("")
	r := e.send("GET", "/v0/stacks/"+m.id+"/events?wait=true&after=1000000", m.token, nil)
	require.Equal(t, 200, r.status)
	require.JSONEq(t, `{"events": []}`, r.body)
	require.Equal(t, 400, e.send("GET", "/v0/stacks/"+m.id+"/events?wait=x", m.token, nil).status)
}
