package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

func TestLogs_PassesTheQueryOn(t *testing.T) {
	e := newEnv(t)
	e.host.logs = func(_ context.Context, service, kind string, v logfile.View, w io.Writer) error {
		_, err := fmt.Fprintf(w, "%q %s %d %t\n", service, kind, v.Tail, v.Stamped)
		return err
	}
	made := e.create("")
	for query, want := range map[string]string{
		"":                                    `"" run 200 false`,
		"?kind=build&service=web&tail=7":      `"web" build 7 false`,
		"?tail=0":                             `"" run 0 false`,
		"?tail=99999999999999999999999999999": `"" run 1000000 false`,
		"?timestamps=true&tail=3":             `"" run 3 true`,
		"?timestamps":                         `"" run 200 true`,
		"?timestamps=false&kind=build":        `"" build 200 false`,
	} {
		r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"/logs"+query, made["manage_token"].(string), nil)
		require.Equal(t, 200, r.status)
		require.Equal(t, "text/plain; charset=utf-8", r.header.Get("Content-Type"))
		require.Equal(t, want+"\n", r.body)
	}
}

func TestLogs_ArePlainText(t *testing.T) {
	e := newEnv(t)
	e.host.logs = func(_ context.Context, _, _ string, _ logfile.View, w io.Writer) error {
		_, err := io.WriteString(w, "### web (run)\n\x1b[31mred\x1b[0m\r\n50%\r100%\nlast\r")
		return err
	}
	made := e.create("")
	r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"/logs", made["manage_token"].(string), nil)
	require.Equal(t, "### web (run)\n\\x1b[31mred\\x1b[0m\n50%\\r100%\nlast\\r", r.body)
}

func TestLogs_RefusesWithWhatToDo(t *testing.T) {
	e := newEnv(t)
	made := e.create("", sourcePart(site(t)), textPart("manifest",
		"services: [{name: web, runtime: static}, {name: docs, runtime: static}]"))
	for query, want := range map[string]struct {
		status int
		detail string
	}{
		"kind=nonsense": {400, "run (process output) or build"},
		"tail=x":        {400, `"x"`},
		"tail=-1":       {400, `"-1"`},
		"service=api":   {404, "web, docs"},
		"timestamps=x":  {400, "timestamps must be true or false"},

		"timestamps=true&kind=build": {400, "run logs only"},
	} {
		r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"/logs?"+query, made["manage_token"].(string), nil)
		require.Equal(t, want.status, r.status, query)
		require.Contains(t, r.detail(), want.detail)
	}
}

func TestLogs_ErrorBeforeTheFirstByteHasAStatus(t *testing.T) {
	e := newEnv(t)
	made := e.create("")
	for want, err := range map[int]error{
		500: errors.New("disk on fire"),
		404: stack.NewError(stack.NotFound, "gone"),
	} {
		e.host.logs = func(context.Context, string, string, logfile.View, io.Writer) error { return err }
		r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"/logs", made["manage_token"].(string), nil)
		require.Equal(t, want, r.status)
		require.NotContains(t, r.detail(), "fire")
	}
	e.host.logs = func(context.Context, string, string, logfile.View, io.Writer) error { panic("at the disk") }
	r := e.send("GET", "/v0/stacks/"+made["id"].(string)+"/logs", made["manage_token"].(string), nil)
	require.Equal(t, 500, r.status)
	require.Contains(t, e.logged.String(), "at the disk")
}

func TestLogs_StreamsAndEndsWhenTheClientGoes(t *testing.T) {
	e := newEnv(t)
	ended := make(chan error, 1)
	line := strings.Repeat("x", 1023) + "\n"
	e.host.logs = func(ctx context.Context, _, _ string, _ logfile.View, w io.Writer) error {
		for {
			if _, err := io.WriteString(w, line); err != nil {
				ended <- err
				return err
			}
		}
	}
	made := e.create("")
	res, err := e.client.Do(newRequest(t, "GET", "/v0/stacks/"+made["id"].(string)+"/logs", made["manage_token"].(string), nil))
	require.NoError(t, err)
	_, err = io.CopyN(io.Discard, res.Body, 10<<20)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Error(t, <-ended)
}

func TestLogs_AnErrorMidwayCutsTheAnswer(t *testing.T) {
	e := newEnv(t)
	e.host.logs = func(_ context.Context, _, _ string, _ logfile.View, w io.Writer) error {
		_, err := io.WriteString(w, strings.Repeat("x", 1<<20))
		return errors.Join(err, errors.New("disk on fire"))
	}
	made := e.create("")
	res, err := e.client.Do(newRequest(t, "GET", "/v0/stacks/"+made["id"].(string)+"/logs", made["manage_token"].(string), nil))
	require.NoError(t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.Error(t, err)
}
