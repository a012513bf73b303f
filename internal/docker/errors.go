package docker

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errhttp"
	"github.com/docker/docker/client"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/hostfault"
)

// The classes of failure that only this package knows, beside those of package engine;
// test with errors.Is.
var (
	errConflict    = errors.New("conflict")              // the name is taken, or the object is in use
	errSubnetTaken = errors.New("subnet already in use") // another network overlaps it
)

// errForeign is the cause when the name belongs to an object that is not the one meant.
var errForeign = errors.New("one of that name exists with other labels or settings")

// failure is an error of the engine with what was attempted and its class.
type failure struct {
	op    string
	class error // nil when the error has no class
	cause error
}

func (f *failure) Error() string { return "docker: " + f.op + ": " + f.cause.Error() }

func (f *failure) Unwrap() []error {
	if f.class == nil {
		return []error{f.cause}
	}
	return []error{f.cause, f.class}
}

// wrap adds the operation, the object and the class to an error of the engine; nil stays
// nil.
func wrap(err error, op string, args ...any) error {
	if err == nil {
		return nil
	}
	return &failure{op: fmt.Sprintf(op, args...), class: classOf(err), cause: err}
}

func classOf(err error) error {
	switch {
	case errdefs.IsNotFound(err):
		return engine.ErrNotFound
	case errdefs.IsConflict(err):
		return errConflict
	case client.IsErrConnectionFailed(err):
		return engine.ErrUnreachable
	case strings.Contains(err.Error(), hostfault.NoSpace.Error()): // the engine has no code for it
		return engine.ErrNoSpace
	case strings.Contains(err.Error(), addressTaken):
		return engine.ErrAddressTaken
	case errdefs.IsUnavailable(err), errdefs.IsDeadlineExceeded(err):
		return engine.ErrHost
	case hostfault.In(err.Error()), slices.ContainsFunc(hostFaults, func(fault string) bool { return strings.Contains(err.Error(), fault) }):
		return engine.ErrHost
	}
	return nil
}

// addressTaken is what the engine says when another container has an address. The code
// that comes with it stands for much else.
const addressTaken = "Address already in use"

// hostFaults are other faults of its machine that the engine has no code for.
var hostFaults = []string{
	"failed to create endpoint", // of a container, for a fault of the machine's networking
	"connection refused",        // by containerd
	"deadline exceeded",
}

// MayPass reports whether an error of an engine that starts may be gone when it is asked
// again: the engine does not answer, it or a proxy in front of it answers that it cannot
// (5xx), or no descriptor is free.
func MayPass(err error) bool {
	return hostfault.NoDescriptor(err) || isAny(err, passing)
}

var passing = []error{
	engine.ErrUnreachable, errdefs.ErrInternal, errdefs.ErrUnavailable,
	errhttp.ToNative(http.StatusBadGateway), errhttp.ToNative(http.StatusGatewayTimeout),
}

// unlessGone returns err unless it is that of removing something that is not there.
func unlessGone(err error) error {
	if errors.Is(err, engine.ErrNotFound) {
		return nil
	}
	return err
}

// unlessUsed returns err unless it is that of removing an image that a container needs.
func unlessUsed(err error) error {
	if errors.Is(err, errConflict) {
		return nil
	}
	return err
}

// busy makes errConflict an engine.ErrHost too, which passes: what is in the way is a
// container that the engine goes on making for a request that nobody waits for any more.
// It has its name and its volumes, but cannot be seen or removed before it is made.
func busy(err error) error {
	if errors.Is(err, errConflict) {
		return fmt.Errorf("%w: %w", engine.ErrHost, err)
	}
	return err
}
