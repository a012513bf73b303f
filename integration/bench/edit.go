package main

import (
	"context"
	"errors"
	"time"
)

// The goals of an edit, from the issue that asks for them.
const (
	editGoal  = 1.15 // ratio to BuildKit with the packages cached, and docker run
	editStart = 700  // milliseconds more than the program's own start
	viteGoal  = 600  // milliseconds more than the build command alone
	goGoal    = 900  // the same
)

const (
	editRow = "edit of a Node program, 71 packages: POST to first answer"
	viteRow = "edit of a Vite site, 200 packages: POST to first answer"
	goRow   = "edit of a Go program, 30 packages: POST to first answer"
)

// measureEdits compares edits of one line with the same done by hand, or with what they
// cannot do without.
func (b *bench) measureEdits(ctx context.Context) error {
	return b.withBerth(ctx, nil, func(ctx context.Context, server *berth) error {
		return errors.Join(b.measureGuestbook(ctx, server), b.measureVite(ctx, server), b.measureGo(ctx, server))
	})
}

// withAgent creates a stack of a project and measures edits of it, which an agent makes.
func (s *berth) withAgent(ctx context.Context, p *project, measure func(*agent) error) error {
	a, err := s.newAgent(ctx, p)
	if err != nil {
		return err
	}
	return errors.Join(measure(a), a.remove(ctx))
}

// measureGuestbook compares edits of the guestbook's API with BuildKit, and with the
// program's own start in the container that BuildKit's image ran in.
func (b *bench) measureGuestbook(ctx context.Context, server *berth) error {
	p, err := guestbook()
	if err != nil {
		return err
	}
	base, err := b.makeBase(ctx, runtimeRef)
	if err != nil {
		return err
	}
	kit, err := openBuildKit(ctx, server.hand, base, p)
	if err != nil {
		return err
	}
	var starts []float64
	err = server.withAgent(ctx, p, func(a *agent) error {
		own, other, err := b.inPairs(ctx, a.postToAnswer, func(ctx context.Context) (time.Duration, error) {
			took, start, err := kit.edit(ctx)
			starts = append(starts, inMillis(start))
			return took, err
		})
		if err == nil {
			b.table.compare(editRow, millis, own, "BuildKit, docker run", other, editGoal)
			b.table.over(editRow, millis, own, "its own start", starts[1:], editStart)
		}
		return err
	})
	return errors.Join(err, kit.close())
}

// measureVite compares edits of a site with its build command alone.
func (b *bench) measureVite(ctx context.Context, server *berth) error {
	p, err := viteSite()
	if err != nil {
		return err
	}
	return b.measureBuild(ctx, server, p, viteRow, runtimeRef, "npm ci", "npm run build", viteGoal)
}

// measureGo compares edits of a Go program with its build command alone.
func (b *bench) measureGo(ctx context.Context, server *berth) error {
	return b.measureBuild(ctx, server, goProgram(), goRow, goRef, "true", "go build -o bin/ .", goGoal)
}

// measureBuild compares edits of a project with its build command alone.
func (b *bench) measureBuild(ctx context.Context, server *berth, p *project, row, runtime, install, command string, most float64) error {
	base, err := b.makeBase(ctx, runtime)
	if err != nil {
		return err
	}
	defer server.hand.clean()
	shop, err := openWorkshop(ctx, server.hand, runtime, base, p, install, command)
	if err != nil {
		return err
	}
	return server.withAgent(ctx, p, func(a *agent) error {
		own, other, err := b.inPairs(ctx, a.postToAnswer, shop.edit)
		if err == nil {
			b.table.over(row, millis, own, command, other, most)
		}
		return err
	})
}

// editTrials makes one more edit of each project.
func (b *bench) editTrials(ctx context.Context, s *stand) error {
	if _, err := s.openBerth(ctx, b, nil); err != nil {
		return err
	}
	book, err1 := guestbook()
	vite, err2 := viteSite()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	err := errors.Join(
		s.edit(ctx, editRow, book, (*agent).postToAnswer),
		s.edit(ctx, viteRow, vite, (*agent).postToAnswer),
		s.edit(ctx, goRow, goProgram(), (*agent).postToAnswer),
	)
	if err != nil {
		return err
	}
	return s.rehearse(ctx)
}

// edit adds a trial that makes one more edit of a project on the stand's server.
func (s *stand) edit(ctx context.Context, row string, p *project, measure func(*agent, context.Context) (time.Duration, error)) error {
	a, err := s.server.newAgent(ctx, p)
	if err == nil {
		s.time(row, func(ctx context.Context) (time.Duration, error) { return measure(a, ctx) })
	}
	return err
}
