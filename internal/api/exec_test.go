package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// runs makes a live stack with a process, web, and a site.
func (e *env) runs(key string) made {
	e.t.Helper()
	return e.creates(key, sourcePart(site(e.t)), textPart("manifest",
		"services: [{name: web, runtime: node, start: node x.js}, {name: site, runtime: static}]"))
}

// exec runs a command in the service web.
func (e *env) exec(m made, token, body string, header ...string) reply {
	e.t.Helper()
	return e.send("POST", execPath(m, "web"), token, strings.NewReader(body), header...)
}

func execPath(m made, service string) string {
	return "/v0/stacks/" + m.id + "/services/" + service + "/exec"
}

// prints is a command that prints a text and exits with a code.
func prints(text string, code int) func(context.Context, stack.Command, time.Duration, io.Writer) (stack.Command, error) {
	return func(_ context.Context, c stack.Command, _ time.Duration, out io.Writer) (stack.Command, error) {
		_, err := io.WriteString(out, text)
		c.ExitCode = &code
		return c, err
	}
}

// waits is a command that prints a text and goes on until it is ended.
func waits(text string) func(context.Context, stack.Command, time.Duration, io.Writer) (stack.Command, error) {
	return func(ctx context.Context, c stack.Command, _ time.Duration, out io.Writer) (stack.Command, error) {
		_, _ = io.WriteString(out, text)
		<-ctx.Done()
		c.Error = context.Cause(ctx).Error()
		return c, nil
	}
}

func TestExec_AnswersHowTheCommandEnded(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	var ran stack.Command
	var limit time.Duration
	e.host.run = func(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error) {
		ran, limit = c, timeout
		return prints("a\nb\xff\x1b<", 3)(ctx, c, timeout, out)
	}
	r := e.exec(m, m.token, `{"command": "ls \"a b\"", "timeout": "1m30s"}`)
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, `{"exit_code":3,"output":"a\nb`+"\uFFFD"+`\u001b<","truncated":false,"timed_out":false}`, r.body)
	require.Equal(t, stack.Command{ID: ran.ID, StackID: m.id, Service: "web", Line: `ls "a b"`}, ran)
	require.Equal(t, 90*time.Second, limit)

	e.host.run = func(_ context.Context, c stack.Command, timeout time.Duration, _ io.Writer) (stack.Command, error) {
		limit, c.TimedOut = timeout, true
		return c, nil
	}
	require.JSONEq(t, `{"exit_code": null, "output": "", "truncated": false, "timed_out": true}`, e.exec(m, m.token, `{"command": "x"}`).body)
	require.Equal(t, time.Minute, limit)
	e.host.run = func(_ context.Context, c stack.Command, _ time.Duration, _ io.Writer) (stack.Command, error) {
		c.Error = "generation 2 took its place"
		return c, nil
	}
	require.JSONEq(t, `{"exit_code": null, "output": "", "truncated": false, "timed_out": false, "error": "generation 2 took its place"}`, e.exec(m, m.token, `{"command": "x"}`).body)
	e.host.run = func(_ context.Context, c stack.Command, _ time.Duration, _ io.Writer) (stack.Command, error) {
		return c, &stack.Error{Kind: stack.Conflict, Detail: "not now", RetryAfter: 5 * time.Second}
	}
	r = e.exec(m, m.token, `{"command": "x"}`)
	require.Equal(t, 409, r.status)
	require.Equal(t, "5", r.header.Get("Retry-After"))
}

func TestExec_KeepsTheEndOfALongOutput(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	for _, size := range []int{stack.CommandOutput, stack.CommandOutput + 1, 5*stack.CommandOutput + 7} {
		text := strings.Repeat("é", size/2) + strings.Repeat("x", size%2)
		e.host.run = func(_ context.Context, c stack.Command, _ time.Duration, out io.Writer) (stack.Command, error) {
			for rest := text; rest != ""; {
				n, err := io.WriteString(out, rest[:min(len(rest), 32<<10)])
				require.NoError(t, err)
				rest = rest[n:]
			}
			return c, nil
		}
		got := e.exec(m, m.token, `{"command": "x"}`).json()
		output := got["output"].(string)
		require.Equal(t, size > stack.CommandOutput, got["truncated"])
		require.InDelta(t, min(size, stack.CommandOutput), len(output), 1)
		require.True(t, strings.HasSuffix(text, output))
		require.NotContains(t, output, "\uFFFD")
	}
}

func TestExec_RefusesWhatCannotRun(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	for body, status := range map[string]int{
		``: 400, `[]`: 400, `{}`: 400, `{"command": 3}`: 400, `{"timeout": "1m"}`: 400, `{"command": "x", "user": "root"}`: 400,
		`{"command": " "}`: 422, `{"command": "a\u0000b"}`: 422, `{"command": "x", "timeout": "11m"}`: 422,
		`{"command": "x", "timeout": "0s"}`: 422, `{"command": "x", "timeout": 60}`: 422,
		`{"command": "` + strings.Repeat("x", stack.CommandChars+1) + `"}`: 422,
		`{"command": "` + strings.Repeat("x", mostCommand) + `"}`:          413,
	} {
		require.Equal(t, status, e.exec(m, m.token, body).status, "%.80s", body)
	}
	unknown := e.send("POST", execPath(m, "api"), m.token, strings.NewReader(`{"command": "x"}`))
	require.Equal(t, 404, unknown.status)
	require.Contains(t, unknown.detail(), "it has web, site")
	require.Equal(t, 409, e.send("POST", execPath(m, "site"), m.token, strings.NewReader(`{"command": "x"}`)).status)
	require.Equal(t, 401, e.exec(m, "", `{"command": "x"}`).status)
	require.Equal(t, 403, e.exec(m, "ast_anon_x", `{"command": "x"}`).status)
	require.Equal(t, 405, e.send("GET", execPath(m, "web"), m.token, nil).status)
	e.expire(m.id)
	require.Equal(t, 409, e.exec(m, m.token, `{"command": "x"}`).status)
}

func TestExec_IsTheOwnersOnceTheStackIsClaimed(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	account, key := e.account("ana@example.com")
	var ran stack.Command
	e.host.run = func(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error) {
		ran = c
		return prints("", 0)(ctx, c, timeout, out)
	}
	require.Equal(t, 200, e.exec(m, m.token, `{"command": "x"}`).status)
	require.Empty(t, ran.By)
	e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.Claim(account, "ana@example.com", stack.Now()) })
	for _, accept := range []string{"application/json", "text/event-stream"} {
		r := e.exec(m, m.token, `{"command": "x"}`, "Accept", accept)
		require.Equal(t, 403, r.status)
		require.Contains(t, r.detail(), "ask ana@example.com")
	}
	require.Equal(t, 200, e.exec(m, key, `{"command": "x"}`).status)
	require.Equal(t, "ana@example.com", ran.By)
}

func TestExec_RunsSoManyAtATime(t *testing.T) {
	e := newEnv(t)
	m, other := e.runs(""), e.runs("")
	release := make(chan struct{})
	began := make(chan struct{}, 2*stack.CommandsAtOnce)
	e.host.run = func(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error) {
		began <- struct{}{}
		<-release
		return prints("", 0)(ctx, c, timeout, out)
	}
	statuses := make(chan int)
	run := func(m made, header ...string) {
		go func() { statuses <- e.exec(m, m.token, `{"command": "x"}`, header...).status }()
		<-began
	}
	for i := range stack.CommandsAtOnce {
		run(m, "Accept", []string{"text/event-stream", "application/json"}[i%2])
	}
	run(other)
	for _, accept := range []string{"text/event-stream", "application/json"} {
		r := e.exec(m, m.token, `{"command": "x"}`, "Accept", accept)
		require.Equal(t, 429, r.status)
		require.Equal(t, "5", r.header.Get("Retry-After"))
		require.Contains(t, r.detail(), "4 commands")
	}
	close(release)
	for range stack.CommandsAtOnce + 1 {
		require.Equal(t, 200, <-statuses)
	}
	require.Equal(t, 200, e.exec(m, m.token, `{"command": "x"}`).status)
}

func TestExec_EndsWithItsCaller(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	for _, accept := range []string{"text/event-stream", "application/json"} {
		began, ended := make(chan struct{}), make(chan error, 1)
		e.host.run = func(ctx context.Context, c stack.Command, _ time.Duration, out io.Writer) (stack.Command, error) {
			close(began)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return c, nil
		}
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			req := newRequest(t, "POST", execPath(m, "web"), m.token, strings.NewReader(`{"command": "x"}`), "Accept", accept)
			if res, err := e.client.Do(req.WithContext(ctx)); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
		}()
		<-began
		leave()
		require.ErrorIs(t, <-ended, context.Canceled, accept)
	}
}

func TestExec_EndsWithTheAccessAndTheServer(t *testing.T) {
	for says, end := range map[string]func(*env, made, string){
		"revoked its manage_token": func(e *env, m made, account string) {
			e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.Claim(account, "ana@example.com", stack.Now()) })
			e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { return s.RevokeAgent() })
		},
		"the server was stopped": func(e *env, _ made, _ string) { e.api.Release() },
	} {
		e := newEnv(t)
		account, _ := e.account("ana@example.com")
		m := e.runs("")
		began := make(chan bool, 2)
		e.host.run = func(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error) {
			began <- true
			return waits("begun\n")(ctx, c, timeout, out)
		}
		answer := make(chan reply)
		go func() { answer <- e.exec(m, m.token, `{"command": "x"}`) }()
		<-began
		r := e.streams(m, m.token)
		require.JSONEq(t, `{"line": "begun"}`, r.named("").data)
		end(e, m, account)
		require.Contains(t, r.named("exit").data, says)
		r.ended()
		got := <-answer
		require.Equal(t, 200, got.status)
		require.Contains(t, got.body, says)
	}
}

// lateStore changes a stack before anyone watches it.
type lateStore struct {
	Store
	change func()
}

func (s lateStore) Watch(id string) (woken <-chan struct{}, stop func()) {
	s.change()
	return s.Store.Watch(id)
}

func TestExec_EndsWithTheAccessThatIsLostAsItBegins(t *testing.T) {
	var revoke func()
	e := newEnv(t, func(c *Config) { c.Store = lateStore{c.Store, func() { revoke() }} })
	m := e.runs("")
	e.host.run = waits("begun\n")
	revoke = func() {
		e.change(m.id, func(s *stack.Stack) ([]stack.Event, error) { s.ManageTokenHash = nil; return nil, nil })
	}
	r := e.exec(m, m.token, `{"command": "x"}`)
	require.Equal(t, 200, r.status, r.body)
	require.Contains(t, r.body, "access")
}

func TestExec_SaysThatTheServerStoppedBeforeTheCommandBegan(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	e.host.run = func(ctx context.Context, c stack.Command, _ time.Duration, _ io.Writer) (stack.Command, error) {
		e.api.Release()
		<-ctx.Done()
		return c, fmt.Errorf("record the command: %w", ctx.Err())
	}
	r := e.exec(m, m.token, `{"command": "x"}`)
	require.Equal(t, 503, r.status, r.body)
	require.Contains(t, r.body, "the server was stopped")
}

// streams runs a command in the service web and reads its events.
func (e *env) streams(m made, token string) *reader {
	e.t.Helper()
	req := newRequest(e.t, http.MethodPost, execPath(m, "web"), token, strings.NewReader(`{"command": "x"}`), "Accept", "text/event-stream")
	return e.readStream(req)
}

func TestExec_StreamsTheLines(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	more := make(chan string)
	e.host.run = func(_ context.Context, c stack.Command, _ time.Duration, out io.Writer) (stack.Command, error) {
		for text := range more {
			_, _ = io.WriteString(out, text)
		}
		c.TimedOut = true
		return c, nil
	}
	r := e.streams(m, m.token)
	more <- "one\ntwo\n\nevent: exit\ndata: {}\n\nthr"
	for _, line := range []string{"one", "two", "", "event: exit", "data: {}", ""} {
		require.JSONEq(t, fmt.Sprintf(`{"line": %q}`, line), r.named("").data)
	}
	require.JSONEq(t, `{"line": "thr", "partial": true}`, r.named("").data, "a line that does not go on")
	more <- "ee\r\nb\xff\n\xe2\x82"
	require.JSONEq(t, `{"line": "ee\r"}`, r.named("").data)
	require.JSONEq(t, `{"line": "b`+"\uFFFD"+`"}`, r.named("").data)
	more <- "\xac"
	more <- strings.Repeat("x", 300<<10)
	close(more)
	var line strings.Builder
	for {
		m, ok := r.next()
		require.True(t, ok)
		if m.name == "exit" {
			require.JSONEq(t, `{"exit_code": null, "truncated": false, "timed_out": true}`, m.data)
			break
		}
		var got outputLine
		require.NoError(t, json.Unmarshal([]byte(m.data), &got))
		require.True(t, got.Partial)
		line.WriteString(got.Line)
	}
	require.Equal(t, "€"+strings.Repeat("x", 300<<10), line.String())
	r.ended()

	e.host.run = func(_ context.Context, c stack.Command, _ time.Duration, _ io.Writer) (stack.Command, error) {
		return c, stack.NewError(stack.Conflict, "not now")
	}
	r = e.streams(m, m.token)
	require.JSONEq(t, `{"detail": "not now"}`, r.named("end").data)
	r.ended()
}

func TestTail_HoldsNoMoreThanItsBounds(t *testing.T) {
	out := newTail(1000)
	for range 10_000 {
		n, err := out.Write(make([]byte, 333))
		require.NoError(t, err)
		require.Equal(t, 333, n)
		require.LessOrEqual(t, len(out.kept), 2000)
		require.LessOrEqual(t, cap(out.kept), 5000)
	}
	require.Len(t, out.take(), 1000)
	require.True(t, out.truncated())
	require.Empty(t, out.take())
}

func TestExec_RefusesTextThatItWouldAlter(t *testing.T) {
	e := newEnv(t)
	m := e.runs("")
	e.host.run = func(context.Context, stack.Command, time.Duration, io.Writer) (stack.Command, error) {
		t.Error("a command was run")
		return stack.Command{}, nil
	}
	for body, want := range map[string]string{
		"{\"command\": \"caf\xe9\"}":              "the body is not in UTF-8",
		`{"command": "a\ud800b"}`:                 "half of a surrogate pair",
		`{"command": "ls", "timeout": null}`:      "timeout is null; leave it out",
		`{"command": "ls", "command": "rm -r ."}`: "command is given twice",
	} {
		r := e.exec(m, m.token, body)
		require.Equal(t, 400, r.status, r.body)
		require.Contains(t, r.detail(), want)
	}
}
