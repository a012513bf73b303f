package server

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stackid"
)

// reach tries all its arguments, each an address and a port, at the same time, and ends with
// 1 if one can be reached.
const reach = `for at in "$@"; do
	(timeout 2 bash -c "exec 3<>/dev/tcp/${at%:*}/${at##*:}" 2>/dev/null && echo "reached $at") &
done | grep . && exit 1
exit 0`

// probeTime is how long the probe may take, with the image that it needs.
const probeTime = 5 * time.Minute

// probeShut returns an error if a container in a stack's network reaches what the firewall
// is to keep from stacks. On one machine, where it would lengthen each start, and where nothing
// is to be kept from them, it does nothing.
func (s *Server) probeShut(ctx context.Context) error {
	if s.cluster == nil {
		return nil
	}
	shut, err := s.firewall.Shut(ctx)
	if err != nil || len(shut) == 0 {
		return err
	}
	return s.tryShut(s.firewall.Apply(ctx, nil), func() error {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		image, err := s.builder.EnsureDebian(ctx, io.Discard)
		if err != nil {
			return fmt.Errorf("the check of the firewall's rules needs the image %s, which could neither be pulled nor made of Debian's packages; give the engine the image (docker save, docker load), or a way to either: %w", images.Debian, err)
		}
		return probe(ctx, s.driver, image, shut)
	})
}

// tryShut tries whether stacks reach what they must not, also if the rules could not be set:
// something else may keep them from it. Operators who run stacks without rules are only warned.
func (s *Server) tryShut(unset error, try func() error) error {
	if unset != nil && s.cfg.AllowUnguarded {
		s.log.Warn("stacks may reach the installation's own services", "error", unset)
		return nil
	}
	err := try()
	if err != nil && unset != nil {
		return fmt.Errorf("%w; the rules could not be set: %w", err, unset)
	}
	return err
}

// probe runs a container of a stack that there is only for this.
func probe(ctx context.Context, driver engine.Driver, image string, shut []netip.AddrPort) error {
	key := engine.Key{Stack: stackid.New(), Service: "probe", Generation: 1}
	defer func() {
		there, err := driver.Inventory(context.WithoutCancel(ctx), key.Stack)
		if err == nil {
			_ = driver.Discard(context.WithoutCancel(ctx), there[key.Stack]) // or the sweep of what no stack has
		}
	}()
	if err := driver.Place(ctx, key, 0); err != nil {
		return err
	}
	cmd := []string{"bash", "-c", reach, "probe"}
	for _, e := range shut {
		cmd = append(cmd, e.String())
	}
	err := driver.Probe(ctx, engine.Spec{
		Name: key.Probe(), Key: key, Image: image, User: "65534:65534", Cmd: cmd, Network: key.Network(), Pids: int64(100 + 4*len(shut)),
	})
	for _, e := range shut {
		if err != nil && strings.Contains(err.Error()+"\n", "reached "+e.String()+"\n") {
			return fmt.Errorf("a stack's container reaches %s, which is the installation's own registry, database, Redis or peer, in spite of the firewall's rules; move it to another port or address, or find out what undoes the rules", e)
		}
	}
	return err
}
