package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// logsOnDisk lets the API follow logs in a folder, and returns one of a service.
func (e *env) logsOnDisk(id string) func(service string, max int64) *logfile.File {
	e.t.Helper()
	dir := datadir.Dir(e.t.TempDir())
	e.host.follow = func(ctx context.Context, service, kind string, v logfile.View, emit func(logfile.News) error) error {
		return dir.FollowLogs(ctx, &stack.Stack{ID: id}, service, kind, v, emit)
	}
	return func(service string, max int64) *logfile.File {
		f, _, err := dir.OpenRunLog(id, service, max)
		require.NoError(e.t, err)
		e.t.Cleanup(func() { f.Close() })
		return f
	}
}

// says reads lines until there are as many of a service, and puts the id of the last into
// id.
func (r *reader) says(id *string, got map[string][]string, service string, count int) {
	r.t.Helper()
	for len(got[service]) < count {
		m, ok := r.next()
		require.True(r.t, ok)
		var line logLine
		require.NoError(r.t, json.Unmarshal([]byte(m.data), &line))
		got[line.Service] = append(got[line.Service], line.Line)
		require.NotEmpty(r.t, m.id)
		*id = m.id
	}
}

// The reader leaves after every few lines, while two services write and rotate.
func TestLogs_AReturningReaderMissesNothingAndSeesNothingTwice(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, "a/index.html", "a", "b/index.html", "b")),
		textPart("manifest", "services: [{name: a, runtime: static, root: a}, {name: b, runtime: static, root: b}]"))
	log := e.logsOnDisk(m.id)
	a, b := log("a", 4000), log("b", 1<<20)
	write := func(f *logfile.File, from, to int) {
		for i := from; i < to; i++ {
			require.NoError(t, f.Line(time.Unix(1, 0), 2, fmt.Appendf(nil, "line %d", i)))
		}
	}
	write(a, 0, 5)
	write(b, 0, 5)
	path, got := "/v0/stacks/"+m.id+"/logs?tail=2&timestamps=true", map[string][]string{}
	r := e.reads(path, m.token)
	var id string
	r.says(&id, got, "a", 1)
	r.close()
	for round := range 10 { // each less than what is kept of a
		write(a, 5+20*round, 5+20*(round+1))
		write(b, 5+round, 5+round+1)
		r = e.reads(path, m.token, "Last-Event-ID", id)
		r.says(&id, got, "b", 3+round)
		r.says(&id, got, "a", 2+18*round)
		r.close()
	}
	r = e.reads(path, m.token, "Last-Event-ID", id)
	r.says(&id, got, "a", 202)
	require.Len(t, got["b"], 12)
	for service, lines := range got {
		for i, line := range lines {
			require.Equal(t, fmt.Sprintf("1970-01-01T00:00:01.000Z gen 2 line %d", i+3), line, service)
		}
	}
}

// The first id also covers a service whose log the reader has not seen.
func TestLogs_TheFirstIDHasAPlaceForEachService(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, "a/index.html", "a", "b/index.html", "b")),
		textPart("manifest", "services: [{name: a, runtime: static, root: a}, {name: b, runtime: static, root: b}]"))
	log := e.logsOnDisk(m.id)
	require.NoError(t, log("a", 1000).Line(time.Unix(1, 0), 1, []byte("old")))
	b := log("b", 1000)
	require.NoError(t, b.Line(time.Unix(1, 0), 1, []byte("old")))
	path := "/v0/stacks/" + m.id + "/logs?tail=1"
	got := map[string][]string{}
	r := e.reads(path, m.token)
	first, _ := r.next()
	r.close()
	require.NoError(t, b.Line(time.Unix(1, 0), 1, []byte("new")))
	cursor, err := parseLogCursor(first.id)
	require.NoError(t, err)
	require.Len(t, cursor, 2)
	r = e.reads(path, m.token, "Last-Event-ID", first.id)
	r.says(new(string), got, "b", 1)
	if first.data == `{"service":"a","line":"old"}` {
		r.says(new(string), got, "b", 2)
	}
	require.Equal(t, "new", got["b"][len(got["b"])-1])
}

func TestLogs_OfOneServiceThatCannotBeReadDoNotHideTheOthers(t *testing.T) {
	e := newEnv(t)
	m := e.creates("", sourcePart(tarOf(t, "a/index.html", "a", "b/index.html", "b")),
		textPart("manifest", "services: [{name: a, runtime: static, root: a}, {name: b, runtime: static, root: b}]"))
	e.host.follow = func(ctx context.Context, service, _ string, _ logfile.View, emit func(logfile.News) error) error {
		if service == "a" {
			return errors.New("disk on fire")
		}
		return emit(newsOf("hello"))
	}
	r := e.reads("/v0/stacks/"+m.id+"/logs", m.token)
	got := map[string][]string{}
	r.says(new(string), got, "b", 1)
	require.Contains(t, e.logged.String(), "disk on fire")
}
