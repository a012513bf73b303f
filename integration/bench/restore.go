package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/engine"
)

const (
	restoreGoal = 1.3 // ratio to a copy by tar
	restores    = 3
	restored    = 1_000_000_000 // bytes
	restoreTime = 3 * time.Minute

	restoreRow = "restore of 1 GB: claim to first answer"
)

// expiring are the settings of a server whose stacks may expire at once.
var expiring = []string{"BERTH_TTL_MIN=1s"}

// measureRestores compares restoring an expired stack and its data, up to its first
// answer, with copying the same files between two volumes.
func (b *bench) measureRestores(ctx context.Context) error {
	return b.withBerth(ctx, expiring, func(ctx context.Context, server *berth) error {
		key, err := b.account(ctx, server)
		if err != nil {
			return err
		}
		program, err := programArchive()
		if err != nil {
			return err
		}
		var own, other []float64
		for n := range restores {
			r := restoration{berth: server, key: key}
			steps := []func(context.Context) error{r.copyByHand, r.expire, r.restore}
			if n%2 == 1 {
				steps = []func(context.Context) error{r.expire, r.restore, r.copyByHand}
			}
			limited, cancel := context.WithTimeout(ctx, restoreTime)
			err := r.takeSteps(limited, program, steps...)
			cancel()
			if err != nil {
				return err
			}
			own, other = append(own, inMillis(r.took)), append(other, inMillis(r.copied))
		}
		b.table.compare(restoreRow, millis, own, "tar", other, restoreGoal)
		return nil
	})
}

// restoreTrials restores a stack that has expired.
func (b *bench) restoreTrials(ctx context.Context, s *stand) error {
	server, err := s.openBerth(ctx, b, expiring)
	if err != nil {
		return err
	}
	key, err := b.account(ctx, server)
	if err != nil {
		return err
	}
	program, err := programArchive()
	if err != nil {
		return err
	}
	s.time(restoreRow, func(ctx context.Context) (time.Duration, error) {
		r := restoration{berth: server, key: key}
		err := r.takeSteps(ctx, program, r.expire, r.restore)
		return r.took, err
	})
	return nil
}

// account creates an account and returns its API key.
func (b *bench) account(ctx context.Context, server *berth) (key string, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, "berthd"), "account", "create", "bench@example.com")
	cmd.Env = append(os.Environ(), server.env...)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// restoration is one stack that expires and is restored.
type restoration struct {
	berth *berth
	key   string // of the account that claims

	made         deployed
	took, copied time.Duration
}

// takeSteps creates the stack and its data, takes the steps, and removes the stack.
func (r *restoration) takeSteps(ctx context.Context, program []byte, steps ...func(context.Context) error) (err error) {
	if r.made, _, err = r.berth.create(ctx, program); err != nil {
		return err
	}
	if _, err := r.berth.ask(ctx, r.made, "/fill"); err != nil {
		return err
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return r.berth.removeStack(ctx, r.made)
}

// expire ends the stack's time and waits until its data is in a snapshot.
func (r *restoration) expire(ctx context.Context) error {
	err := r.berth.send(ctx, http.MethodPatch, "/v0/stacks/"+r.made.ID, r.made.Token, map[string]string{"ttl": "1s"}, nil)
	if err != nil {
		return err
	}
	for r.berth.hand.hasVolume(ctx, r.volume()) {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("the data of the expired stack is still in its volume: %w", err)
		}
	}
	return nil
}

// restore claims the expired stack and checks that all of its data is back.
func (r *restoration) restore(ctx context.Context) error {
	syscall.Sync() // both copies begin with nothing left to write
	start := time.Now()
	err := r.berth.send(ctx, http.MethodPost, "/v0/claim?wait=true", r.key, map[string]string{"claim_code": r.made.ClaimCode}, nil)
	if err != nil {
		return err
	}
	live, err := r.berth.firstAnswer(ctx, r.made)
	if err != nil {
		return err
	}
	r.took = live.Sub(start)
	size, err := r.berth.ask(ctx, r.made, "/size")
	if err == nil && size != strconv.Itoa(restored) {
		err = fmt.Errorf("%s bytes of data came back, not %d", size, restored)
	}
	return err
}

// copyByHand copies the stack's data to another volume.
func (r *restoration) copyByHand(ctx context.Context) error {
	image, err := images.Lookup("node", strings.TrimPrefix(runtimeRef, "node@"))
	if err != nil {
		return err
	}
	syscall.Sync()
	r.copied, err = r.berth.hand.copyVolume(ctx, image.Ref(), r.volume())
	return err
}

// volume returns the name of the volume of the service's data.
func (r *restoration) volume() string { return engine.Key{Stack: r.made.ID, Service: "web"}.Data() }
