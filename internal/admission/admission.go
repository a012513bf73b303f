// Package admission decides whether something new may begin: whether there is room on
// the disks, and whether the firewall isolates stacks from this host, its networks and
// each other. What already runs goes on in any case.
//
// While the rules are not in place anonymous creates are refused; while a disk is
// nearly full, every upload and build, once what can be made again is gone. The rules are checked at start, now and then,
// when a stack is claimed, and before anything runs in a new network of a claimed
// stack, which may send mail. Code in this package reads the stacks, the disks' free
// space and the rules. It changes nothing but the rules, and has room made on a disk.
package admission

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

// Config configures a Gate.
type Config struct {
	Instance string                                        // id of the installation, which the names of interfaces carry
	Stacks   func(context.Context) ([]*stack.Stack, error) // all that are not deleted

	Firewall       Firewall
	AllowUnguarded bool // take anonymous stacks although the firewall's rules are not in place

	Disks     []Disk // where stacks leave something
	DiskFloor int64  // free bytes below which no upload and no build begins

	Log *slog.Logger
}

// Disk is a place where stacks leave something.
type Disk struct {
	Free func() (disk.Space, error)
	// Reclaim removes what can be made again, until enough reports true or nothing is
	// left; nil for a disk without them.
	Reclaim func(enough func() bool)
}

// Firewall isolates stacks; package firewall implements it.
type Firewall interface {
	// Apply puts the rules in place; the stacks on the interfaces mail may send mail.
	// The error says why stacks are not, or may not be, isolated.
	Apply(ctx context.Context, mail []string) error
}

// Gate admits new work or refuses it.
type Gate struct {
	cfg   Config
	wake  chan struct{} // gets a value when the rules are to be looked at
	short atomic.Bool   // of disk space, when it was last asked for

	reclaiming sync.Mutex
	vain       time.Time // when Reclaim last left a disk short

	mu        sync.Mutex
	unguarded error // why stacks are not isolated; nil if they are
}

// New returns a Gate that has not yet checked the firewall; see Guard.
func New(cfg Config) *Gate { return &Gate{cfg: cfg, wake: make(chan struct{}, 1)} }

// Admit returns nil if an upload may begin or go on: there is room on the disk and, for
// an unclaimed stack, strangers' stacks are isolated. Otherwise it returns a
// *stack.Error of kind Unavailable.
func (g *Gate) Admit(unclaimed bool) error {
	if unclaimed && !g.cfg.AllowUnguarded && g.unguardedBy() != nil {
		return stack.NewError(stack.Unavailable, "this host does not build anonymous stacks, because its firewall rules are not in place; "+
			"create the stack with an API key, claim it if it exists, or try again later. The host's operator finds the reason in the server's log")
	}
	return g.CheckRoom()
}

// roomRetry is when to try again while the disk is full.
const roomRetry = time.Minute

// bytesPerInode converts the floor, which is in bytes, to inodes: ext4 makes one for so
// many bytes.
const bytesPerInode = 16 << 10

// CheckRoom returns a *stack.Error of kind Unavailable while a disk has less room than
// the floor, in bytes or in inodes, and none can be made.
func (g *Gate) CheckRoom() error {
	for _, d := range g.cfg.Disks {
		free, err := d.Free()
		if err == nil && g.isShort(free) && d.Reclaim != nil {
			g.reclaim(d)
			free, err = d.Free()
		}
		if err != nil {
			return err
		}
		if g.isShort(free) {
			if !g.short.Swap(true) {
				g.cfg.Log.Warn("short of disk space: uploads and builds are refused",
					"dir", free.Dir, "free", free.Bytes, "floor", g.cfg.DiskFloor, "free inodes", free.Inodes, "floor of inodes", g.cfg.DiskFloor/bytesPerInode)
			}
			return &stack.Error{
				Kind:       stack.Unavailable,
				Detail:     "this host is short of disk space and does not accept uploads or builds for now; running stacks are not affected. Try again later",
				RetryAfter: roomRetry,
			}
		}
	}
	if g.short.Swap(false) {
		g.cfg.Log.Info("disk space is free again: uploads and builds are accepted")
	}
	return nil
}

// isShort reports whether a disk has less room than the floor.
func (g *Gate) isShort(free disk.Space) bool {
	return free.Bytes < g.cfg.DiskFloor || free.Inodes < g.cfg.DiskFloor/bytesPerInode
}

// reclaimAgain is how long after a vain attempt to make room there is another one.
const reclaimAgain = 10 * time.Second

// reclaim makes room on a disk. Whoever asks meanwhile waits for it.
func (g *Gate) reclaim(d Disk) {
	g.reclaiming.Lock()
	defer g.reclaiming.Unlock()
	enough := func() bool {
		free, err := d.Free()
		return err == nil && !g.isShort(free)
	}
	if enough() || time.Since(g.vain) < reclaimAgain {
		return
	}
	d.Reclaim(enough)
	if !enough() {
		g.vain = time.Now()
	}
}

// guardEvery is the time between two checks of the firewall's rules.
const guardEvery = 15 * time.Second

// Watch keeps the rules in place until ctx ends.
func (g *Gate) Watch(ctx context.Context) {
	ticker := time.NewTicker(guardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-g.wake:
		case <-ctx.Done():
			return
		}
		g.Guard(ctx)
	}
}

// Poke makes Watch check the rules soon.
func (g *Gate) Poke() {
	select {
	case g.wake <- struct{}{}:
	default: // somebody has asked already
	}
}

// Guard puts the firewall's rules in place; claimed stacks may send mail. Anonymous
// creates are admitted only if it succeeds.
func (g *Gate) Guard(ctx context.Context) {
	err := g.cfg.Firewall.Apply(ctx, g.mailBridges(ctx))
	if ctx.Err() != nil {
		return
	}
	g.mu.Lock()
	before := g.unguarded
	g.unguarded = err
	g.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		g.cfg.Log.Error("stacks are not isolated from this host and its networks", "anonymous creates allowed", g.cfg.AllowUnguarded, "error", err)
	case err == nil && before != nil:
		g.cfg.Log.Info("stacks are isolated again")
	}
}

// mailBridges returns the interfaces that the generations of claimed stacks may have.
// If the database fails, it returns none; those added before stay.
func (g *Gate) mailBridges(ctx context.Context) []string {
	stacks, err := g.cfg.Stacks(ctx)
	if err != nil && ctx.Err() == nil {
		g.cfg.Log.Warn("claimed stacks not read; their mail ports open later", "error", err)
	}
	var bridges []string
	for _, st := range stacks {
		if !st.Claimed() {
			continue
		}
		for _, generation := range []int{st.Generation.Number, st.Deploying} {
			key := engine.Key{Stack: st.ID, Generation: generation}
			bridges = append(bridges, key.Bridge(g.cfg.Instance, st.Seq), key.Builds().Bridge(g.cfg.Instance, st.Seq))
		}
		bridges = append(bridges, engine.Key{Stack: st.ID}.FormerBridge())
	}
	return bridges
}

// unguardedBy returns why stacks are not isolated; nil if they are.
func (g *Gate) unguardedBy() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unguarded
}
