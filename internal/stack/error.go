package stack

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the class of an error that clients may see; package appserver maps it to an
// HTTP status (docs/api.md, "Errors").
type Kind int

// The kinds, in the order of their status codes.
const (
	Invalid         Kind = iota + 1 // 400: missing or invalid parameter
	Unauthenticated                 // 401
	Forbidden                       // 403
	NotFound                        // 404
	Conflict                        // 409: the state does not allow it
	Changed                         // 412: a condition of the request is not met
	TooLarge                        // 413
	Unprocessable                   // 422: invalid manifest, archive or TTL
	TooMany                         // 429
	Unreachable                     // 502: the node that runs the stack does not answer
	Unavailable                     // 503
	NoRoom                          // 507: more than a stack may take on the disk
)

// Error is the only kind of error whose text reaches a client. Detail tells an agent
// what to do next.
type Error struct {
	Kind       Kind
	Detail     string
	RetryAfter time.Duration // 0 if waiting does not help
}

func (e *Error) Error() string { return e.Detail }

// KindOf returns the kind of an error; 0 for nil and for an error that is not meant for
// the client.
func KindOf(err error) Kind {
	if own, ok := errors.AsType[*Error](err); ok {
		return own.Kind
	}
	return 0
}

// NewTooMany returns the error of every rate limit (docs/api.md, "Errors").
func NewTooMany(retryAfter time.Duration) *Error {
	return &Error{Kind: TooMany, Detail: "too many requests; slow down and retry in a minute", RetryAfter: retryAfter}
}

// NewCapReached returns the error for a network that already has n unclaimed stacks;
// the first of them expires at the given time (docs/api.md, "Errors").
func NewCapReached(n, limit int, first, now time.Time) *Error {
	wait := max(first.Sub(now)+time.Second-1, time.Second).Truncate(time.Second)
	return &Error{Kind: TooMany, RetryAfter: wait, Detail: fmt.Sprintf(
		"%d unclaimed stacks are already running from your network (limit %d); destroy or claim one first. "+
			"Stacks of others behind the same address count too; the first of all expires in %s, at %s",
		n, limit, FormatDuration(wait), first.UTC().Format(time.RFC3339))}
}

// NewNoStack returns the error for an id that belongs to no stack, now or any more.
func NewNoStack(id string) *Error {
	return NewError(NotFound, fmt.Sprintf(
		"there is no stack %s; it was deleted, or the id is wrong (stk_ and 12 hex characters)", id))
}

// NewError returns an error for the client.
func NewError(kind Kind, detail string) *Error { return &Error{Kind: kind, Detail: detail} }
