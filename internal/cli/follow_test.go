package cli

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-host/berth/internal/client"
)

// restarting is a server that answers, breaks a request off that it held for long,
// starts, and answers the next two before the reader has seen enough.
type restarting struct {
	requests int
	kind     string
	answers  [2]string
	enough   context.CancelFunc
}

func (r *restarting) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", r.kind)
	switch r.requests++; r.requests {
	case 1:
		io.WriteString(w, r.answers[0])
	case 2:
		time.Sleep(80 * time.Second)
		return nil, io.ErrUnexpectedEOF
	case 3:
		w.WriteHeader(http.StatusServiceUnavailable)
		io.WriteString(w, `{"detail": "the server is starting"}`)
	case 4:
		io.WriteString(w, r.answers[1])
	default:
		r.enough()
		return nil, context.Canceled
	}
	return w.Result(), nil
}

func TestFollowing_OutlastsARestartOfTheServer(t *testing.T) {
	for name, tt := range map[string]struct {
		server restarting
		follow func(context.Context, *app, *target) error
	}{
		"events": {
			restarting{kind: "application/json", answers: [2]string{`{"events": [{"id": 1, "type": "before"}]}`, `{"events": [{"id": 2, "type": "after"}]}`}},
			func(ctx context.Context, a *app, t *target) error { return a.events(ctx, t, 0, true) },
		},
		"logs": {
			restarting{kind: "text/plain", answers: [2]string{"# web\nbefore\n", "# web\nbefore\nafter\n"}},
			func(ctx context.Context, a *app, t *target) error {
				return a.followLogs(ctx, t, client.LogQuery{Service: "web", Tail: 10}, true)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				a := &app{ui: &ui{out: &out, err: io.Discard}}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tt.server.enough = cancel
				c, err := client.NewOver(&http.Client{Transport: &tt.server}, "http://a.example")
				if err != nil {
					t.Fatal(err)
				}
				err = tt.follow(ctx, a, &target{api: c, stack: &client.Stack{ID: "stk_1"}})
				if err != context.Canceled || strings.Count(out.String(), "before") != 1 || strings.Count(out.String(), "after") != 1 {
					t.Errorf("%v, and it printed\n%s", err, out.String())
				}
			})
		})
	}
}
