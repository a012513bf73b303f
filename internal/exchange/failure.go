package exchange

import (
	"errors"

	"github.com/berth-host/berth/internal/wire"
)

// Failure is why a request has no answer.
type Failure struct {
	Kind FailureKind
	Err  error
	// Begun means that the upstream may have begun with it.
	Begun bool
	// Unread means that the connection to the sender must end with the answer: the rest of
	// the request's body would be taken for the next request.
	Unread bool
}

// FailureKind is what went wrong.
type FailureKind int

const (
	NoConnection FailureKind = iota // there was none to be had
	Cut                             // the connection broke before the answer
	Late                            // the answer did not begin in time
	Invalid                         // the answer violates HTTP
	BrokenBody                      // the sender broke the request's body off, or framed it wrongly
	Silent                          // the sender did not go on with the request's body in time
)

// noConnection is a failure to get a connection.
type noConnection struct{ error }

// failure returns why the exchange failed.
func (x *exchange) failure(err error) *Failure {
	f := &Failure{Kind: Cut, Err: err, Begun: true, Unread: x.unread()}
	switch {
	case errors.As(err, new(*callerError)):
		f.Kind = BrokenBody
	case errors.Is(err, errSilentCaller):
		f.Kind = Silent
	case errors.As(err, new(noConnection)): // and a late connection is not a late answer
		f.Kind, f.Begun = NoConnection, x.begun
	case isTimeout(err) && x.u.kind != Node: // a node has no limit for its answer; its connection broke
		f.Kind = Late
	case errors.As(err, new(wire.BadAnswer)):
		f.Kind = Invalid
	}
	to := "service"
	if x.u.kind == Node {
		to = "node"
	}
	x.u.log.InfoContext(x.call.Context(), "request to a "+to+" failed", "host", x.r.Host, "error", err)
	return f
}
