package appserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/stack"
)

func TestRefuse_HasAStatusForEachKind(t *testing.T) {
	for kind, want := range map[stack.Kind]int{
		stack.Invalid: 400, stack.Unauthenticated: 401, stack.Forbidden: 403, stack.NotFound: 404, stack.Conflict: 409,
		stack.TooLarge: 413, stack.Unprocessable: 422, stack.TooMany: 429, stack.Unreachable: 502, stack.Unavailable: 503,
	} {
		var h fasthttp.ResponseHeader
		refusal, status := Refuse(&h, fmt.Errorf("wrapped: %w", stack.NewError(kind, "why")))
		if status != want || refusal.Detail != "why" || len(h.Peek("Retry-After")) > 0 {
			t.Errorf("kind %v has the status %d and the headers %q", kind, status, h.String())
		}
	}
}

func TestRefuse_TellsWhenToTryAgain(t *testing.T) {
	var h fasthttp.ResponseHeader
	if _, status := Refuse(&h, &stack.Error{Kind: stack.TooMany, RetryAfter: 1100 * time.Millisecond}); status != 429 {
		t.Errorf("status %d", status)
	}
	if got := string(h.Peek("Retry-After")); got != "2" {
		t.Errorf("Retry-After %q", got)
	}
}

func TestRefuse_HidesOtherErrors(t *testing.T) {
	var h fasthttp.ResponseHeader
	for _, err := range []error{fmt.Errorf("disk"), &stack.Error{Detail: "of no kind"}, nil} {
		if refusal, status := Refuse(&h, err); refusal != nil || status != 0 {
			t.Errorf("%v is shown as %v with the status %d", err, refusal, status)
		}
	}
}
