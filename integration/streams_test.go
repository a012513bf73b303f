package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stream is a stream of server-sent events that is being read.
type Stream struct {
	in    *bufio.Reader
	close func()
}

// Message is one event of a stream.
type Message struct{ id, name, data string }

// stream opens a stream of the API.
func (h *Host) stream(t *testing.T, token, path string, headers ...string) *Stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	headers = append(headers, "Authorization", "Bearer "+token, "Accept", "text/event-stream")
	res, err := h.client.Do(h.request(t, http.MethodGet, path, nil, headers...).WithContext(ctx))
	require.NoError(t, err)
	s := &Stream{in: bufio.NewReader(res.Body), close: func() { cancel(); res.Body.Close() }}
	t.Cleanup(s.close)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	return s
}

// next is the next event; ok is false at the end of the stream.
func (s *Stream) next() (m Message, ok bool) {
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return Message{}, false
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); {
		case field == "id":
			m.id = value
		case field == "event":
			m.name = value
		case field == "data":
			m.data = value
		case line == "" && m != (Message{}):
			return m, true
		}
	}
}

// until reads up to an event for which is holds, and returns all that it read.
func (s *Stream) until(t *testing.T, is func(Message) bool) []Message {
	t.Helper()
	var seen []Message
	for {
		m, ok := s.next()
		require.True(t, ok, "the stream ended after %v", seen)
		seen = append(seen, m)
		if is(m) {
			return seen
		}
	}
}

// last reads to the end of the stream and returns its last event.
func (s *Stream) last() (last Message) {
	for {
		m, ok := s.next()
		if !ok {
			return last
		}
		last = m
	}
}

func isNamed(name string) func(Message) bool {
	return func(m Message) bool { return m.name == name }
}

func saying(text string) func(Message) bool {
	return func(m Message) bool { return strings.Contains(m.data, text) }
}

func TestStreams_EventsAreCompleteOverEveryReconnection(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.create(t, program(t), manifest(programManifest))
	path := "/v0/stacks/" + st.ID + "/events"
	var seen []Message
	s := h.stream(t, st.ManageToken, path)
	seen = append(seen, s.until(t, isNamed("service.building"))...)
	s.close()
	s = h.stream(t, st.ManageToken, path, "Last-Event-ID", seen[len(seen)-1].id)
	seen = append(seen, s.until(t, isNamed("stack.live"))...)

	h.stop(t)
	require.Equal(t, Message{}, s.last(), "the stream told something at the shutdown that the next one tells again")
	h.run(t)
	s = h.stream(t, st.ManageToken, path, "Last-Event-ID", seen[len(seen)-1].id)
	seen = append(seen, s.until(t, isNamed("stack.restored"))...)
	all := h.events(t, st)
	require.Len(t, seen, len(all))
	for i, e := range all {
		require.Equal(t, strconv.FormatInt(e.ID, 10), seen[i].id)
		require.Equal(t, e.Type, seen[i].name)
		var told Event
		require.NoError(t, json.Unmarshal([]byte(seen[i].data), &told))
		require.Equal(t, e, told)
	}
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	h.forgetStack(st.ID)
	require.Equal(t, "end", s.last().name)
}

func TestStreams_LogsAreFollowedOverARedeploy(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := Tree{"server.js": `console.log("generation " + process.env.GENERATION)
require("http").createServer((q, s) => { console.log("asked for " + q.url); s.end() }).listen(process.env.PORT)`}
	st := h.live(t, tree, manifest(programManifest))
	path := "/v0/stacks/" + st.ID + "/logs"
	run := h.stream(t, st.ManageToken, path+"?service=web")
	run.until(t, saying("generation 1"))
	h.get(t, st.url("web", "/one"))
	line := run.until(t, saying("asked for /one"))
	require.JSONEq(t, `{"service": "web", "line": "asked for /one"}`, line[len(line)-1].data)
	build := h.stream(t, st.ManageToken, path+"?kind=build")
	build.until(t, saying("== build ok"))
	require.Equal(t, 2, h.redeploy(t, st, tree.plus(Tree{"more.txt": "more"}), manifest(programManifest)).Generation)
	build.until(t, isNamed("reset"))
	build.until(t, saying("gen 2"))
	run.until(t, saying("generation 2"))
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/two")).status)
	run.until(t, saying("asked for /two"))
}

func TestStreams_LogsGoOnOverRestartsAndARotation(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_LOG_MAX", "7KB"))
	st := h.live(t, program(t), manifest(programManifest))
	path := "/v0/stacks/" + st.ID + "/logs?timestamps=true"
	s := h.stream(t, st.ManageToken, path)
	seen := s.until(t, saying("web starts"))
	s.close()
	require.Equal(t, 200, h.get(t, st.url("web", "/log?from=0&to=100")).status)
	h.kill(t)
	h.run(t)
	require.Equal(t, 200, h.get(t, st.url("web", "/log?from=100&to=200")).status)
	require.NoError(t, h.killProcess(t, st, "web", "KILL"))
	s = h.stream(t, st.ManageToken, path, "Last-Event-ID", seen[len(seen)-1].id)
	again := s.until(t, saying("web is healthy again"))
	if !slices.ContainsFunc(again, saying("web starts")) { // the engine has it beside the health check
		again = append(again, s.until(t, saying("web starts"))...)
	}
	seen = append(seen, again...)
	var text strings.Builder
	for _, m := range seen {
		var line struct{ Line string }
		require.NoError(t, json.Unmarshal([]byte(m.data), &line))
		_, said, found := strings.Cut(line.Line, "Z gen 1 ")
		require.True(t, found, m.data)
		text.WriteString(said + "\n")
	}
	said, healthy := strings.CutSuffix(text.String(), "web starts\n== web is healthy again\n")
	if !healthy {
		said = strings.TrimSuffix(said, "== web is healthy again\nweb starts\n")
	}
	require.Equal(t, "== web started\nweb starts\n"+lines(0, 200)+"== web was ended by signal SIGKILL (exit code 137)\n"+
		"== restarting in 1s\n== web started\n", said)
}

func TestStreams_WaitHoldsForAnEventAndNoLonger(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_WAIT", "10s"))
	st := h.live(t, page("hello"), nil)
	all := h.events(t, st)
	last := strconv.FormatInt(all[len(all)-1].ID, 10)
	path := "/v0/stacks/" + st.ID + "/events?wait=true&after=" + last
	begun := time.Now()
	r := h.getAs(t, st.ManageToken, path)
	require.JSONEq(t, `{"events": []}`, r.body)
	require.GreaterOrEqual(t, time.Since(begun), 10*time.Second)

	done := make(chan Reply, 1)
	go func() { done <- h.getAs(t, st.ManageToken, path) }()
	req := h.request(t, http.MethodPatch, "/v0/stacks/"+st.ID, strings.NewReader(`{"ttl": "30m"}`), "Authorization", "Bearer "+st.ManageToken)
	require.Equal(t, http.StatusOK, h.do(t, req).status)
	require.Contains(t, (<-done).body, "stack.extended")
}
