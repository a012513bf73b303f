package web

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// ran records a command that runs in a stack.
func (e *env) ran(id, by, line string) stack.Command {
	e.t.Helper()
	c, err := stack.NewCommand(id, "web", by, line)
	require.NoError(e.t, err)
	c.StartedAt = stack.Now()
	require.NoError(e.t, e.store.AddCommand(e.t.Context(), c))
	return c
}

// ended records the end of a command after a time.
func (e *env) ended(c stack.Command, after time.Duration) {
	e.t.Helper()
	c.EndedAt = c.StartedAt.Add(after)
	require.NoError(e.t, e.store.EndCommand(e.t.Context(), c))
}

func TestCommands_ShowWhoRanThemAndHowTheyEnded(t *testing.T) {
	e := newEnv(t)
	b := e.signedUp(ana)
	id := e.owned(b, "guestbook")
	body := b.get("/dashboard/stacks/" + id).body
	require.Contains(t, body, "No commands yet.")
	require.Contains(t, body, "berth exec --stack "+id)

	good, bad := 0, 3
	c := e.ran(id, "ana@example.com", "echo <b>\x1b[2J")
	c.ExitCode = &good
	e.ended(c, 1500*time.Millisecond)
	c = e.ran(id, "", "ls /nowhere")
	c.ExitCode = &bad
	e.ended(c, 20*time.Millisecond)
	c = e.ran(id, "", "sleep 1h")
	c.TimedOut = true
	e.ended(c, time.Minute)
	c = e.ran(id, "", "npm run work")
	c.Error = "web was restarted"
	e.ended(c, time.Second)
	e.ran(id, "", strings.Repeat("é", 600))
	body = b.get("/dashboard/stacks/" + id).body
	for _, text := range []string{
		"echo &lt;b&gt;", "ana@example.com", "exit code 0", `data-name="Duration">1.5 s`, "in web",
		"ls /nowhere", "the agent", "exit code 3", `data-name="Duration">20 ms`, "sleep 1h", "timed out",
		"npm run work", "web was restarted", "running", strings.Repeat("é", 500) + "…", `data-name="Duration">–`,
	} {
		require.Contains(t, body, text)
	}
	require.NotContains(t, body, strings.Repeat("é", 501))
	require.NotContains(t, body, "\x1b")
	b.follow("/dashboard/stacks/"+id+"/stream").part("commands", "ls /nowhere")
}
