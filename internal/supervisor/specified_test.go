package supervisor

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// listeningOn is an engine whose processes listen on these addresses.
type listeningOn struct {
	engine.Driver
	sockets []string
}

func (l listeningOn) Sockets(context.Context, string) ([]string, error) { return l.sockets, nil }

// The lines of logs are letter for letter those of docs/api.md, "GET /v0/stacks/{id}/logs".
func TestLogs_AreLetterForLetterAsSpecified(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.program("", 1, func(p *enginetest.Process) int {
			p.Print(strings.Join(p.Args, " "))
			return listen(p)
		})
		spec := service("web")
		spec.Label, spec.Release = "node", "migrate"
		st := w.live(spec)
		w.settle()
		for kind, want := range map[string]string{
			"run":   "### web (run)\nsh -c exec serve\n",
			"build": "### web (build)\n== build web (node) gen 1\n== build ok\n== release web gen 1\n$ migrate\n",
		} {
			var text strings.Builder
			require.NoError(t, w.dir.Logs(t.Context(), st, "", kind, logfile.View{Tail: 4}, &text))
			require.Equal(t, want, text.String())
		}
	})
}

// What a health check says that fails is letter for letter that of docs/manifest.md,
// "Health checks".
func TestHealth_IsLetterForLetterAsSpecified(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		for log, want := range map[string]string{
			"": "; it wrote nothing to its log",
			"database is locked": "; the end of its log:\ndatabase is locked\n" +
				"the log mentions a lock: if another generation holds $DATA_DIR, set strategy: recreate",
		} {
			w.program("", 1, func(p *enginetest.Process) int {
				if log != "" {
					p.Print(log)
				}
				return silent(p)
			})
			st := w.becomes(w.create(service("web")).ID, stack.Failed)
			require.Equal(t, "service web: not healthy within 6s: "+
				"web listens on 127.0.0.1:3000; it must listen on 0.0.0.0:$PORT (8080); its command is \"serve\""+want, st.Error)
		}
	}, func(c *Config) {
		c.Engine = listeningOn{c.Engine, []string{"127.0.0.1:3000"}}
		c.HealthTimeout = 6 * time.Second
	})
}
