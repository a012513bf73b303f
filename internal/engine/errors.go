package engine

import "errors"

// The classes of failure that callers act on; test with errors.Is.
var (
	ErrNotFound     = errors.New("not found")
	ErrUnreachable  = errors.New("no answer")               // the engine is away, or the answer was lost: it may have done what it was asked
	ErrData         = errors.New("data cannot be unpacked") // for what the error says
	ErrNoSpace      = errors.New("disk full")               // where the engine keeps what it stores
	ErrHost         = errors.New("fault of the host")       // the engine's machine lacks what every container needs, its disk fails, or the engine is busy with an earlier request
	ErrAddressTaken = errors.New("address already in use")  // another container has the address that this one had
	ErrNoNetwork    = errors.New("no network is free")      // all subnets of the pool are taken
	ErrNoRoom       = errors.New("no room for a snapshot")
	ErrNotRunning   = errors.New("the container does not run")
	ErrHidden       = errors.New("the machine does not show it")
	ErrNotBegun     = errors.New("the command could not be started")
	ErrEnded        = errors.New("the container ended before the command")
	ErrLost         = errors.New("the command's end is not known")
	ErrNotEnded     = errors.New("the command's processes cannot be ended")
)
