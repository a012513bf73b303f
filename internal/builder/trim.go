package builder

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"strconv"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
)

//go:embed trim.sh
var trimScript string

// TrimCache removes what is too much from the build caches of a service: whole tools'
// caches, the one used longest ago first, until they take Config.CacheMax at most. Nothing
// may be built for the service meanwhile. It runs as the stack's user, in a container of a
// runtime's base image that reaches nothing else; the error of a cache that it cannot trim
// is not a fault of the host. If ctx ends, no cache is left with a part missing. Before
// anything is removed, TrimCache calls forget: what was installed may lie in the caches.
func (b *Builder) TrimCache(ctx context.Context, st *stack.Stack, service string, r stack.Runtime, forget func(context.Context) error) error {
	base, err := b.EnsureBase(ctx, r, io.Discard)
	if err != nil {
		return err
	}
	if b.runTrim(ctx, st, service, base, "look") == nil {
		return nil
	}
	if err := forget(ctx); err != nil {
		return err
	}
	return b.runTrim(ctx, st, service, base, "trim")
}

// runTrim lets the script look or trim.
func (b *Builder) runTrim(ctx context.Context, st *stack.Stack, service, base, action string) error {
	limited, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	defer cancel()
	key := engine.Key{Stack: st.ID, Service: service}
	err := b.cfg.Engine.Probe(limited, engine.Spec{
		Key:       key,
		Name:      key.CacheTrim(),
		Image:     base,
		User:      userOf(st),
		Cmd:       []string{"sh", "-c", trimScript, "sh", action, strconv.FormatInt(b.cfg.CacheMax, 10), cacheDir},
		Volumes:   map[string]string{cacheDir: key.Cache(st.CachesDropped)},
		Memory:    b.cfg.Memory,
		Pids:      b.cfg.Pids,
		CPUShares: 128, // nobody waits for it
	})
	if limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("trimming took longer than %s", b.cfg.Timeout)
	}
	return err
}
