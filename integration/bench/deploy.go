package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/berth-host/berth/images"
)

const (
	deployGoal = 1.15            // ratio to the same steps by hand
	liveGoal   = 300             // milliseconds from the last byte of a static site to its first answer
	deployTime = 2 * time.Minute // longest that one deploy may take

	// firstSlower is how many times as slow as before a first deploy may be.
	firstSlower = 1.05

	deployRow  = "deploy, 100 files, two commands: POST to first answer"
	installRow = "deploy, npm ci without packages to fetch: POST to first answer"
	liveRow    = "static site live, 100 files: last byte to first answer"
)

// measureDeploys compares deploys with the same steps by hand.
func (b *bench) measureDeploys(ctx context.Context) error {
	return b.withBerth(ctx, nil, func(ctx context.Context, server *berth) error {
		if err := b.measureProgram(ctx, server); err != nil {
			return err
		}
		return b.measureSite(ctx, server)
	})
}

// measureProgram compares how soon a Node program first answers.
func (b *bench) measureProgram(ctx context.Context, server *berth) error {
	program, err := programArchive()
	if err != nil {
		return err
	}
	image, err := images.Lookup("node", strings.TrimPrefix(runtimeRef, "node@"))
	if err != nil {
		return err
	}
	for _, way := range []struct {
		peer       string
		ownNetwork bool
		goal       float64
	}{{"by hand", false, deployGoal}, {"by hand, own network", true, 0}} {
		own, other, err := b.inPairs(ctx,
			func(ctx context.Context) (time.Duration, error) {
				start := time.Now()
				live, _, err := server.deploy(ctx, program)
				return live.Sub(start), err
			},
			func(ctx context.Context) (time.Duration, error) {
				return server.hand.deploy(ctx, image.Ref(), program, way.ownNetwork)
			})
		if err != nil {
			return err
		}
		b.table.compare(deployRow, millis, own, way.peer, other, way.goal)
	}
	return nil
}

// measureSite measures how soon an uploaded site answers.
func (b *bench) measureSite(ctx context.Context, server *berth) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	nginx, err := b.startNginx(ctx, "nginx", "auto", folder)
	if err != nil {
		return err
	}
	defer nginx.process.stop()
	site, err := siteArchive()
	if err != nil {
		return err
	}
	own, other, err := b.inPairs(ctx,
		func(ctx context.Context) (time.Duration, error) {
			live, sent, err := server.deploy(ctx, site)
			return live.Sub(sent), err
		},
		func(ctx context.Context) (time.Duration, error) { return unpackByHand(ctx, nginx, folder, site) })
	if err != nil {
		return err
	}
	b.table.limit(liveRow, millis, own, "tar, nginx", other, liveGoal)
	return nil
}

// inPairs measures two durations alternately, every second pair in the other order, in
// milliseconds. A first pair does not count.
func (b *bench) inPairs(ctx context.Context, own, other func(context.Context) (time.Duration, error)) (owns, others []float64, err error) {
	var took [2]time.Duration
	measures := [2]func(context.Context) (time.Duration, error){own, other}
	for n := range b.deploys + 1 {
		for i := range measures {
			which := (i + n) % 2
			limited, cancel := context.WithTimeout(ctx, deployTime)
			took[which], err = measures[which](limited)
			cancel()
			if err != nil {
				return nil, nil, err
			}
		}
		if n > 0 {
			owns = append(owns, inMillis(took[0]))
			others = append(others, inMillis(took[1]))
		}
	}
	return owns, others, nil
}

// deployTrials deploys a program, one with packages, and a site for the first time. Each
// has been deployed before as another stack.
func (b *bench) deployTrials(ctx context.Context, s *stand) error {
	server, err := s.openBerth(ctx, b, nil)
	if err != nil {
		return err
	}
	program, err1 := programArchive()
	packages, err2 := packagesArchive()
	site, err3 := siteArchive()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	first := func(row string, measure func(context.Context) (time.Duration, error)) {
		s.one(figure{what: row, unit: millis, most: firstSlower}, func(ctx context.Context) (float64, error) {
			took, err := measure(ctx)
			return inMillis(took), err
		})
	}
	postToAnswer := func(archive []byte) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) {
			start := time.Now()
			live, _, err := server.deploy(ctx, archive)
			return live.Sub(start), err
		}
	}
	first(deployRow, postToAnswer(program))
	first(installRow, postToAnswer(packages))
	first(liveRow, func(ctx context.Context) (time.Duration, error) {
		live, sent, err := server.deploy(ctx, site)
		return live.Sub(sent), err
	})
	return s.rehearse(ctx)
}

// deploy uploads an archive as a new stack, and returns when its last byte was sent and
// when the stack first answered. The create waits until the stack is live, since
// polling would slow what is measured. The stack is deleted afterwards.
func (s *berth) deploy(ctx context.Context, archive []byte) (live, sent time.Time, err error) {
	made, sent, err := s.create(ctx, archive)
	if err != nil {
		return live, sent, err
	}
	live, err = s.firstAnswer(ctx, made)
	return live, sent, errors.Join(err, s.removeStack(ctx, made))
}
