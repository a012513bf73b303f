package datadir

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// noRoom returns the file that exists while a snapshot of a service's data waits for room
// on the disk.
func (d Dir) noRoom(id, service string) string {
	return filepath.Join(d.Stack(id), service+".no-room")
}

// PutOff records that a snapshot of a service's data waits for room on the disk, and why.
func (d Dir) PutOff(id, service string, cause error) error {
	if err := os.WriteFile(d.noRoom(id, service), []byte(cause.Error()+"\n"), 0o600); err != nil {
		return fmt.Errorf("put a snapshot off: %w", err)
	}
	return nil
}

// LastPutOff returns when PutOff was last called for a service's data, the zero time if
// it never was.
func (d Dir) LastPutOff(id, service string) time.Time {
	info, err := os.Stat(d.noRoom(id, service))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
