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
	seen     string // Last-Event-ID that the second answer requires
	enough   context.CancelFunc
}

func (r *restarting) RoundTrip(req *http.Request) (*http.Response, error) {
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
		if req.Header.Get("Last-Event-ID") == r.seen {
			io.WriteString(w, r.answers[1])
		}
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
			restarting{kind: "text/event-stream", answers: [2]string{
				": still here\n\nid: web:1.1\ndata: {\"service\": \"web\", \"line\": \"before\"}\n\n",
				"id: web:1.2\ndata: {\"service\": \"web\", \"line\": \"after\"}\n\n",
			}, seen: "web:1.1"},
			func(ctx context.Context, a *app, t *target) error {
				return a.followLogs(ctx, t, client.LogQuery{Service: "web", Tail: 10})
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

// problematic is a server whose deploy has a problem twice, until another deploy takes its
// place.
type problematic struct{ looks int }

func (p *problematic) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.FormValue("after") == "0":
		io.WriteString(w, `{"events": [{"id": 1, "type": "stack.deploy_failed", "data": {"attempt": 1, "error": "attempt 1 was superseded by attempt 2"}}]}`)
	case strings.HasSuffix(r.URL.Path, "/events"):
		io.WriteString(w, `{"events": []}`)
	case r.FormValue("wait") == "true":
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		p.looks++
		io.WriteString(w, []string{
			`{"status": "live", "deploying": 2, "deploy": {"attempt": 2, "outcome": "running", "phase": "start", "service": "web"}}`,
			`{"status": "live", "deploying": 2, "deploy": {"attempt": 2, "outcome": "running", "phase": "health", "service": "web", "problem": "it listens elsewhere"}}`,
			`{"status": "live", "deploying": 2, "deploy": {"attempt": 2, "outcome": "running", "phase": "health", "service": "web", "problem": "it listens elsewhere"}}`,
			`{"status": "live", "deploying": 2, "deploy": {"attempt": 3, "outcome": "running", "phase": "build", "service": "web"}}`,
		}[p.looks-1])
	}
	return w.Result(), nil
}

func TestFollow_ShowsAProblemAndEndsWhenAnotherDeployBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		a := &app{ui: &ui{out: io.Discard, err: &said}}
		c, err := client.NewOver(&http.Client{Transport: &problematic{}}, "http://a.example")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := &client.Deploy{Attempt: 2}
		s, err := a.follow(ctx, &target{api: c, stack: &client.Stack{ID: "stk_1"}, began: began}, 0)
		if err != nil || strings.Count(said.String(), "! web is not healthy yet: it listens elsewhere\n") != 1 {
			t.Fatalf("%v, and it said\n%s", err, said.String())
		}
		if !strings.Contains(said.String(), "attempt 1 was superseded by attempt 2") || strings.Contains(said.String(), "failed") {
			t.Errorf("of the attempt before it said\n%s", said.String())
		}
		code, detail, _ := explain(t.Context(), verdict(s, began))
		if code != exitFailed || detail != "attempt 2, which this was, has ended: attempt 3 took its place, or began after it" {
			t.Errorf("exit code %d: %s", code, detail)
		}
		if err := verdict(&client.Stack{Status: client.Live, Deploy: began}, began); err != nil {
			t.Error(err)
		}
	})
}

func TestStackRows_ShowWhatADeployIsDoing(t *testing.T) {
	phase, service, problem := "health", "web", "it listens elsewhere"
	d := &client.Deploy{Attempt: 3, Outcome: client.Running, Phase: &phase}
	if got := strings.Join(deployRows(d), "\n"); got != "deploy\tattempt 3, health" {
		t.Error(got)
	}
	d.Service, d.Problem = &service, &problem
	if got := strings.Join(deployRows(d), "\n"); got != "deploy\tattempt 3, health of web\nproblem\tit listens elsewhere" {
		t.Error(got)
	}
	d.Outcome = "live"
	if rows := append(deployRows(d), deployRows(nil)...); rows != nil {
		t.Error(rows)
	}
}
