package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The goals of an edit that sends one file, from the issue that asks for them.
const (
	fewGoal     = 100 // milliseconds, of a site of 10 files
	manyGoal    = 250 // the same, of 10,000
	overlayGoal = 1.3 // ratio to the same with few files
	rebuildGoal = 2   // the same for a service with a build command
)

// editSite is a static site; each edit changes one file.
type editSite struct {
	count int
	goal  float64
}

var editSites = []editSite{{10, fewGoal}, {10_000, manyGoal}}

func (s editSite) row() string {
	return fmt.Sprintf("edit of a static site, %d files: last byte to first answer", s.count)
}

const (
	fewModules  = 40
	manyModules = 5000 // of 8 KB
)

// editModules is a Node program, with a build command or without; each edit changes one
// file.
type editModules struct {
	what, build string
	goal        float64
}

var editPrograms = []editModules{{"no build", "", overlayGoal}, {"build", "true", rebuildGoal}}

func (m editModules) row(count int) string {
	return fmt.Sprintf("edit of a program of %d files, %s: POST to first answer", count, m.what)
}

// measureOverlays compares edits of one file of sources of many sizes.
func (b *bench) measureOverlays(ctx context.Context) error {
	return b.withBerth(ctx, nil, func(ctx context.Context, server *berth) error {
		return errors.Join(b.measureSiteEdits(ctx, server), b.measureModules(ctx, server))
	})
}

// measureSiteEdits compares edits of static sites with tar and nginx.
func (b *bench) measureSiteEdits(ctx context.Context, server *berth) error {
	for _, site := range editSites {
		err := server.withAgent(ctx, sitePages(site.count), func(a *agent) error {
			return b.measureSiteEdit(ctx, a, site)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// measureSiteEdit compares edits of one static site with unpacking the file with tar
// into a folder of the same files that nginx serves, under a name that is new to nginx.
func (b *bench) measureSiteEdit(ctx context.Context, a *agent, site editSite) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	source, err := a.project.whole(0)
	if err != nil {
		return err
	}
	if err := untar(ctx, folder, source); err != nil {
		return err
	}
	nginx, err := b.startNginx(ctx, "nginx", "auto", folder)
	if err != nil {
		return err
	}
	defer nginx.process.stop()
	pages := 0
	own, other, err := b.inPairs(ctx, a.sentToAnswer, func(ctx context.Context) (time.Duration, error) {
		pages++
		name := fmt.Sprintf("edit%d.html", pages)
		page, err := archive(map[string]string{name: a.project.changed(pages)})
		if err != nil {
			return 0, err
		}
		return publishByHand(ctx, nginx, folder, page, name)
	})
	if err == nil {
		b.table.limit(site.row(), millis, own, "tar, nginx", other, site.goal)
	}
	return err
}

// measureModules compares edits of a program of many files with edits of one with few.
func (b *bench) measureModules(ctx context.Context, server *berth) error {
	for _, m := range editPrograms {
		err := server.withAgent(ctx, modules(manyModules, m.build), func(many *agent) error {
			return server.withAgent(ctx, modules(fewModules, m.build), func(few *agent) error {
				own, other, err := b.inPairs(ctx, many.postToAnswer, few.postToAnswer)
				if err == nil {
					b.table.compare(m.row(manyModules), millis, own, fmt.Sprintf("%d files", fewModules), other, m.goal)
				}
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// overlayTrials makes one more edit of each source.
func (b *bench) overlayTrials(ctx context.Context, s *stand) error {
	if _, err := s.openBerth(ctx, b, nil); err != nil {
		return err
	}
	for _, site := range editSites {
		if err := s.edit(ctx, site.row(), sitePages(site.count), (*agent).sentToAnswer); err != nil {
			return err
		}
	}
	for _, m := range editPrograms {
		if err := s.edit(ctx, m.row(manyModules), modules(manyModules, m.build), (*agent).postToAnswer); err != nil {
			return err
		}
	}
	return s.rehearse(ctx)
}
