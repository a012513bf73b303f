package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/client"
)

const (
	followEvery = 500 * time.Millisecond
	wholeLog    = 1_000_000 // lines; a build log of the default size holds fewer
)

// follow waits until a stack has settled, or another deploy begins, and shows what
// happens meanwhile: its events after since, the output of the builds that they announce,
// and the problems of the deploy.
func (a *app) follow(ctx context.Context, t *target, since int64) (*client.Stack, error) {
	settled := inBackground(func() (*client.Stack, error) { return t.api.Settled(ctx, t.stack.ID) })
	steps := &steps{ui: a.ui, target: t, after: since, printed: map[string]int{}}
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case end := <-settled:
			if end.err == nil {
				steps.look(ctx)
			}
			return end.value, end.err
		case <-ticker.C:
			steps.look(ctx)
			if now := steps.progress(ctx); now.BeganAfter(t.began) {
				return now, nil
			}
		}
	}
}

// steps shows what happens in a deploy.
type steps struct {
	ui      *ui
	target  *target
	problem string // that was shown last
	after   int64
	order   []string       // services that were built, in order
	printed map[string]int // lines of each one's build log that were shown
}

// look shows what is new. What cannot be read is shown at the next look, or by the
// verdict.
func (s *steps) look(ctx context.Context) {
	if s.ui.quiet {
		return
	}
	page, err := s.target.api.Events(ctx, s.target.stack.ID, s.after, false)
	if err != nil {
		return
	}
	for _, e := range page {
		s.after = e.ID
		if e.Type != "service.building" {
			s.output(ctx) // what was built before this happened
		}
		s.event(e)
	}
	s.output(ctx)
}

// progress shows the problem of the deploy if it is a new one, and returns the stack; an
// empty one if it cannot be read.
func (s *steps) progress(ctx context.Context) *client.Stack {
	now, err := s.target.api.Stack(ctx, s.target.stack.ID, false)
	if err != nil || now.Deploy == nil {
		return &client.Stack{}
	}
	problem := orText(now.Deploy.Problem, "")
	if problem != s.problem && problem != "" {
		s.ui.sayf("%s %s is not healthy yet: %s", s.ui.red("!"), orText(now.Deploy.Service, "a service"), problem)
	}
	s.problem = problem
	return now
}

func (s *steps) event(e client.Event) {
	service, _ := e.Data["service"].(string)
	if _, known := s.printed[service]; e.Type == "service.building" && !known {
		s.order, s.printed[service] = append(s.order, service), 0
	}
	switch e.Type {
	case "stack.created", "stack.redeploying":
	case "service.building":
		s.ui.sayf("building %s", service)
	case "service.ready":
		s.ui.sayf("%s %v is ready at %v", s.ui.green("✓"), service, e.Data["url"])
	case "stack.live":
		s.ui.sayf("%s generation %v is live", s.ui.green("✓"), e.Data["generation"])
	case "stack.failed", "stack.deploy_failed":
		if s.isEarlier(e) {
			s.ui.sayf("%v", e.Data["error"])
			return
		}
		s.ui.sayf("%s the deploy failed", s.ui.red("✗"))
	default:
		s.ui.sayf("%s", e.Type)
	}
}

// isEarlier reports whether an event is of an attempt that the command's own has
// superseded.
func (s *steps) isEarlier(e client.Event) bool {
	attempt, ok := e.Data["attempt"].(float64)
	return ok && s.target.began != nil && int(attempt) < s.target.began.Attempt
}

// output shows what the builds have written since the last look.
func (s *steps) output(ctx context.Context) {
	for _, service := range s.order {
		lines, err := logLines(ctx, s.target, client.LogQuery{Service: service, Kind: "build", Tail: wholeLog})
		if err != nil {
			continue
		}
		for _, line := range lines[min(s.printed[service], len(lines)):] {
			s.ui.sayf("%s %s", s.ui.dim(service+" |"), line)
		}
		s.printed[service] = max(s.printed[service], len(lines))
	}
}

// logLines returns the complete lines of one service's log.
func logLines(ctx context.Context, t *target, q client.LogQuery) ([]string, error) {
	body, err := t.api.Logs(ctx, t.stack.ID, q)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read the log of %s: %w", q.Service, err)
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) == 1 {
		return nil, nil
	}
	return lines[1 : len(lines)-1], nil // the first names the section, the last is not complete
}
