package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-host/berth/internal/build"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/stack"
)

// removeStack removes everything of a stack: containers first, for they hold
// the rest.
func (s *Supervisor) removeStack(ctx context.Context, st *stack.Stack) error {
	err := s.removeObjects(ctx, s.labels(st, ""))
	if fileErr := os.RemoveAll(s.stackDir(st)); fileErr != nil {
		err = errors.Join(err, fmt.Errorf("remove the stack's files: %w", fileErr))
	}
	return err
}

// removeObjects removes every container, image, volume and network with the
// labels. It goes on after an error, to leave as little as possible.
func (s *Supervisor) removeObjects(ctx context.Context, labels docker.Labels) error {
	containers, err := s.Engine.List(ctx, labels)
	errs := []error{err}
	for _, c := range containers {
		errs = append(errs, s.Engine.Remove(ctx, c.ID))
	}
	images, err := s.Engine.Images(ctx, labels)
	errs = append(errs, err)
	for _, image := range images {
		errs = append(errs, s.removeImage(ctx, image))
	}
	volumes, err := s.Engine.Volumes(ctx, labels)
	errs = append(errs, err)
	for _, v := range volumes {
		errs = append(errs, s.Engine.RemoveVolume(ctx, v.Name))
	}
	networks, err := s.Engine.Networks(ctx, labels)
	errs = append(errs, err)
	for _, n := range networks {
		errs = append(errs, s.Engine.RemoveNetwork(ctx, n.Name))
	}
	return errors.Join(errs...)
}

// removeImage removes an image by each of its names; by its id when it has
// none.
func (s *Supervisor) removeImage(ctx context.Context, image docker.ImageInfo) error {
	if len(image.Tags) == 0 {
		return s.Engine.RemoveImage(ctx, image.ID)
	}
	var errs []error
	for _, tag := range image.Tags {
		errs = append(errs, s.Engine.RemoveImage(ctx, tag))
	}
	return errors.Join(errs...)
}

// removeGenerations removes containers, images and sites of every generation
// but the one to keep; keep 0 keeps none. Data stays.
func (s *Supervisor) removeGenerations(ctx context.Context, st *stack.Stack, keep int) error {
	labels := s.labels(st, "")
	kept := strconv.Itoa(keep)
	containers, err := s.Engine.List(ctx, labels)
	errs := []error{err}
	for _, c := range containers {
		if c.Labels[build.LabelGeneration] != kept {
			errs = append(errs, s.Engine.Remove(ctx, c.ID))
		}
	}
	images, err := s.Engine.Images(ctx, labels)
	errs = append(errs, err)
	for _, image := range images {
		if image.Labels[build.LabelGeneration] != kept {
			errs = append(errs, s.removeImage(ctx, image))
		}
	}
	errs = append(errs, s.removeSites(st, "g"+kept), os.RemoveAll(s.sourceDir(st)))
	return errors.Join(errs...)
}

func (s *Supervisor) removeSites(st *stack.Stack, keep string) error {
	sites, err := filepath.Glob(filepath.Join(s.stackDir(st), "sites", "*", "g*"))
	errs := []error{err}
	for _, site := range sites {
		if filepath.Base(site) != keep {
			errs = append(errs, os.RemoveAll(site))
		}
	}
	return errors.Join(errs...)
}

// sweep removes what an earlier server left of stacks that are gone, and what
// it had not finished: uploads and builds.
func (s *Supervisor) sweep(ctx context.Context, stacks []*stack.Stack) error {
	known := map[string]bool{}
	for _, st := range stacks {
		known[st.ID] = true
		known[st.Hex()] = true
	}
	if err := os.RemoveAll(s.uploadsDir()); err != nil {
		return fmt.Errorf("remove unfinished uploads: %w", err)
	}
	if err := s.sweepFiles(known); err != nil {
		return err
	}
	gone, err := s.strangers(ctx, known)
	if err != nil {
		return err
	}
	for id := range gone {
		labels := docker.Labels{build.LabelInstance: s.Labels[build.LabelInstance], build.LabelStack: id}
		if err := s.removeObjects(ctx, labels); err != nil {
			return fmt.Errorf("remove what is left of stack %s: %w", id, err)
		}
		s.Log.Info("leftovers of a deleted stack removed", "stack", id)
	}
	return nil
}

func (s *Supervisor) sweepFiles(known map[string]bool) error {
	entries, err := os.ReadDir(s.stacksDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list the stacks' files: %w", err)
	}
	for _, e := range entries {
		if known[e.Name()] {
			continue
		}
		if err := os.RemoveAll(filepath.Join(s.stacksDir(), e.Name())); err != nil {
			return fmt.Errorf("remove the files of a deleted stack: %w", err)
		}
	}
	return nil
}

// strangers are the ids of stacks that the engine has objects of and the store
// does not know.
func (s *Supervisor) strangers(ctx context.Context, known map[string]bool) (map[string]bool, error) {
	gone := map[string]bool{}
	note := func(labels docker.Labels) {
		if id := labels[build.LabelStack]; id != "" && !known[id] {
			gone[id] = true
		}
	}
	containers, err1 := s.Engine.List(ctx, s.Labels)
	for _, c := range containers {
		note(c.Labels)
	}
	images, err2 := s.Engine.Images(ctx, s.Labels)
	for _, i := range images {
		note(i.Labels)
	}
	volumes, err3 := s.Engine.Volumes(ctx, s.Labels)
	for _, v := range volumes {
		note(v.Labels)
	}
	networks, err4 := s.Engine.Networks(ctx, s.Labels)
	for _, n := range networks {
		note(n.Labels)
	}
	return gone, errors.Join(err1, err2, err3, err4)
}
