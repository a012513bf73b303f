package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"syscall"
	"time"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// Admit tells whether an upload may begin or go on: there is room on the disk
// and, for a stack that nobody has claimed, strangers' stacks are walled off.
// Otherwise it fails with a *stack.Error of kind Unavailable.
func (s *Supervisor) Admit(unclaimed bool) error {
	if unclaimed && !s.cfg.AllowUnguarded && s.guarded() != nil {
		return stack.NewError(stack.Unavailable, "this host builds no anonymous stacks, since its firewall rules are not in place; "+
			"create the stack with an API key, claim it if it is there, or try again later. Its operator finds the reason in the server's log")
	}
	return s.checkRoom()
}

// roomRetry is when to try again while the disk is full.
const roomRetry = time.Minute

// bytesPerInode makes inodes of the floor, which is given in bytes: one for as
// many bytes as ext4 makes one for.
const bytesPerInode = 16 << 10

// checkRoom refuses new work while a disk has less room than the floor, in bytes
// or in inodes: what runs goes on with what is left.
func (s *Supervisor) checkRoom() error {
	for _, dir := range []string{s.cfg.Dir, s.engineDir} {
		free, err := freeSpace(dir)
		if err != nil {
			return err
		}
		if free.bytes < s.cfg.DiskFloor || free.inodes < s.cfg.DiskFloor/bytesPerInode {
			if !s.short.Swap(true) {
				s.cfg.Log.Warn("short of disk space: uploads and builds are refused",
					"dir", dir, "free", free.bytes, "floor", s.cfg.DiskFloor, "free inodes", free.inodes, "floor of inodes", s.cfg.DiskFloor/bytesPerInode)
			}
			return &stack.Error{
				Kind:       stack.Unavailable,
				Detail:     "this host is short of disk space and takes no uploads or builds for now; what runs goes on. Try again later",
				RetryAfter: roomRetry,
			}
		}
	}
	if s.short.Swap(false) {
		s.cfg.Log.Info("there is disk space again: uploads and builds are taken")
	}
	return nil
}

// space is what is free on a disk for everybody.
type space struct{ bytes, inodes int64 }

// endless is the space of a disk that is not on this machine.
var endless = space{math.MaxInt64, math.MaxInt64}

// freeSpace is what is free on the disk of a folder. Some file systems do not
// count inodes.
func freeSpace(dir string) (space, error) {
	var disk syscall.Statfs_t
	err := syscall.Statfs(dir, &disk)
	if errors.Is(err, fs.ErrNotExist) {
		return endless, nil
	}
	if err != nil {
		return space{}, fmt.Errorf("free space of %s: %w", dir, err)
	}
	free := space{int64(disk.Bavail) * disk.Bsize, int64(disk.Ffree)}
	if disk.Files == 0 {
		free.inodes = endless.inodes
	}
	return free, nil
}

// guardEvery is the time between two looks at the firewall's rules.
const guardEvery = 15 * time.Second

// watchFirewall keeps the rules in place.
func (s *Supervisor) watchFirewall() {
	ticker := time.NewTicker(guardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.firewallWake:
		case <-s.ctx.Done():
			return
		}
		s.guard(s.ctx)
	}
}

// pokeFirewall has the rules looked at soon.
func (s *Supervisor) pokeFirewall() {
	select {
	case s.firewallWake <- struct{}{}:
	default: // somebody has asked already
	}
}

// guard puts the firewall's rules in place; claimed stacks may send mail. What
// it came to decides about anonymous creates.
func (s *Supervisor) guard(ctx context.Context) {
	err := s.cfg.Firewall.Apply(ctx, s.mailBridges(ctx))
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	before := s.unguarded
	s.unguarded = err
	s.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		s.cfg.Log.Error("stacks are not walled off from this host and its networks", "anonymous creates allowed", s.cfg.AllowUnguarded, "error", err)
	case err == nil && before != nil:
		s.cfg.Log.Info("stacks are walled off again")
	}
}

// mailBridges are the interfaces that the generations of claimed stacks may have.
// Without the database there are none to add; those that were added before stay.
func (s *Supervisor) mailBridges(ctx context.Context) []string {
	stacks, err := s.cfg.Store.All(ctx)
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("claimed stacks not looked up; their mail ports open later", "error", err)
	}
	var bridges []string
	for _, st := range stacks {
		bridge := func(generation int) string {
			return engine.Key{Stack: st.ID, Generation: generation}.Bridge(s.cfg.Instance, st.Seq)
		}
		if st.Claimed() {
			bridges = append(bridges, bridge(st.Generation), bridge(st.Deploying), engine.Key{Stack: st.ID}.FormerBridge())
		}
	}
	return bridges
}

// guarded is why stacks are not walled off; nil when they are.
func (s *Supervisor) guarded() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unguarded
}
