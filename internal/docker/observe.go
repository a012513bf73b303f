package docker

import (
	"context"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// observer sees the requests of the engine's client, which makes a span of each. It keeps
// their name, end and result only.
type observer struct {
	noop.TracerProvider
	observe func(call string, ok bool, took time.Duration)
}

// Tracer returns what makes the spans.
func (o observer) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return tracer{observe: o.observe}
}

type tracer struct {
	noop.Tracer
	observe func(call string, ok bool, took time.Duration)
}

// Start begins a request; the name of its span is its method and path.
func (t tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &span{observe: t.observe, name: name, begun: time.Now(), ok: true}
	return trace.ContextWithSpan(ctx, s), s
}

// span is one request.
type span struct {
	noop.Span
	observe func(call string, ok bool, took time.Duration)
	name    string
	begun   time.Time
	ok      bool
}

// SetStatus records an answer of 400 or above, or none at all.
func (s *span) SetStatus(code codes.Code, _ string) { s.ok = s.ok && code != codes.Error }

// End ends the request.
func (s *span) End(...trace.SpanEndOption) { s.observe(callName(s.name), s.ok, time.Since(s.begun)) }

// verbs are the last segments of the API's paths. Any other segment is an object's name.
var verbs = []string{
	"_ping", "info", "version", "events", "build", "json", "create", "start", "stop", "kill", "wait", "logs", "attach",
	"exec", "resize", "commit", "prune", "archive", "tag", "connect", "disconnect", "rename", "update", "changes", "stats", "top",
	"containers", "images", "networks", "volumes", "load", "get", "search", "df", "export", "history",
}

// callName returns a request without its version and the names in its path, as in
// "POST /containers/{id}/start".
func callName(name string) string {
	method, path, _ := strings.Cut(name, " ")
	segments := strings.Split(strings.Trim(path, "/"), "/")
	if version := segments[0]; len(version) > 1 && version[0] == 'v' && '0' <= version[1] && version[1] <= '9' {
		segments = segments[1:]
	}
	known := []string{}
	for i, segment := range segments {
		switch {
		case slices.Contains(verbs, segment) && (i == 0 || i == len(segments)-1):
			known = append(known, segment)
		case len(known) == 0 || known[len(known)-1] != "{id}": // an image's name may have slashes
			known = append(known, "{id}")
		}
	}
	return method + " /" + strings.Join(known, "/")
}
