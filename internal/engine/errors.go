package engine

import (
	"errors"
	"fmt"
)

// The classes of failure that callers act on; test with errors.Is.
var (
	ErrNotFound     = errors.New("not found")
	ErrUnreachable  = errors.New("no answer")               // the engine is away, or the answer was lost: it may have done what it was asked
	ErrData         = errors.New("data cannot be unpacked") // for what the error says
	ErrNoSpace      = errors.New("disk full")               // where the engine keeps what it stores
	ErrHost         = errors.New("fault of the host")       // the engine's machine lacks what every container needs, its disk fails, or the engine is busy with an earlier request
	ErrAddressTaken = errors.New("address already in use")  // another container has the address that this one had
	ErrNoNetwork    = errors.New("no network is free")      // all subnets of the pool are taken
	ErrNoRoom       = errors.New("no room for an image")
	ErrNotRunning   = errors.New("the container does not run")
	ErrNotFrozen    = errors.New("the container does not freeze") // for now, as where the machine has too much to do
	ErrHidden       = errors.New("the machine does not show it")
	ErrNotBegun     = errors.New("the command could not be started")
	ErrEnded        = errors.New("the container ended before the command")
	ErrExit         = errors.New("another exit code than 0")
	ErrLost         = errors.New("the command's end is not known")
	ErrNotEnded     = errors.New("the command's processes cannot be ended")
)

// NoRoomError is an ErrNoRoom that says how much is missing.
type NoRoomError struct {
	Need int64 // bytes that the image takes
	Room int64 // bytes that it may take
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("%v: it takes %d MiB, and %d MiB are free above the floor", ErrNoRoom, e.Need>>20, max(e.Room, 0)>>20)
}

// Unwrap returns ErrNoRoom.
func (e *NoRoomError) Unwrap() error { return ErrNoRoom }
