package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// filledSuffix ends the name of a file that exists while the build caches of a service may
// be larger than allowed.
const filledSuffix = ".filled"

func (d Dir) filled(id, service string) string {
	return filepath.Join(d.Stack(id), service+filledSuffix)
}

// MarkFilled records that a build is about to fill the caches of a service.
func (d Dir) MarkFilled(id, service string) error {
	if err := os.WriteFile(d.filled(id, service), nil, 0o600); err != nil {
		return fmt.Errorf("mark the build caches as filled: %w", err)
	}
	return nil
}

// Filled returns the services whose caches are marked.
func (d Dir) Filled(id string) []string {
	services := d.find(id, "*"+filledSuffix)
	for i, file := range services {
		services[i] = strings.TrimSuffix(filepath.Base(file), filledSuffix)
	}
	return services
}

// UnmarkFilled records that the caches of a service are no larger than allowed.
func (d Dir) UnmarkFilled(id, service string) error {
	if err := os.Remove(d.filled(id, service)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unmark the build caches: %w", err)
	}
	return nil
}
