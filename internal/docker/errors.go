package docker

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
)

// The classes of failure that callers act on; test with errors.Is.
var (
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("conflict")              // the name is taken, or the object is in use
	ErrSubnetTaken = errors.New("subnet already in use") // another network overlaps it
)

// errForeign is the cause when a name is taken by an object of somebody else.
var errForeign = errors.New("one of that name exists with other labels or settings")

// failure is an error of the engine with what was attempted and its class.
type failure struct {
	op    string
	class error // nil when the error has none of the classes above
	cause error
}

func (f *failure) Error() string { return "docker: " + f.op + ": " + f.cause.Error() }

func (f *failure) Unwrap() []error {
	if f.class == nil {
		return []error{f.cause}
	}
	return []error{f.cause, f.class}
}

// wrap names the operation and the object of an error of the engine and
// classifies it; nil stays nil.
func wrap(err error, op string, args ...any) error {
	if err == nil {
		return nil
	}
	return &failure{op: fmt.Sprintf(op, args...), class: classOf(err), cause: err}
}

func classOf(err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return ErrNotFound
	case errdefs.IsConflict(err):
		return ErrConflict
	}
	return nil
}

// unlessGone drops the error of removing what is not there.
func unlessGone(err error) error {
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
