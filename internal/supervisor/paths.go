package supervisor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/berth-host/berth/internal/stack"
)

// A stack's files are in <data>/stacks/<hex>: sources/<one a build>/, sites/<service>/g<n>/
// and logs/<service>.<kind>.log. Uploads are unpacked in <data>/uploads, on the
// same disk, so that taking one over is a rename.

func (s *Supervisor) stacksDir() string  { return filepath.Join(s.cfg.Dir, "stacks") }
func (s *Supervisor) uploadsDir() string { return filepath.Join(s.cfg.Dir, "uploads") }

func (s *Supervisor) stackDir(st *stack.Stack) string {
	return filepath.Join(s.stacksDir(), st.Hex())
}

func (s *Supervisor) sourcesDir(st *stack.Stack) string {
	return filepath.Join(s.stackDir(st), "sources")
}

func (s *Supervisor) siteDir(st *stack.Stack, service string, generation int) string {
	return filepath.Join(s.stackDir(st), "sites", service, "g"+strconv.Itoa(generation))
}

func (s *Supervisor) logDir(st *stack.Stack) string {
	return filepath.Join(s.stackDir(st), "logs")
}

func (s *Supervisor) logPath(st *stack.Stack, service, kind string) string {
	return filepath.Join(s.logDir(st), service+"."+kind+".log")
}

// files are the paths below a stack's folder that match a pattern, a constant one.
func (s *Supervisor) files(st *stack.Stack, pattern string) []string {
	found, _ := fs.Glob(os.DirFS(s.stackDir(st)), pattern) // it fails for a malformed pattern alone
	for i, name := range found {
		found[i] = filepath.Join(s.stackDir(st), name)
	}
	return found
}

// TempDir makes a folder for one upload, on the disk of the stacks. Whoever
// asked for it removes it.
func (s *Supervisor) TempDir() (string, error) {
	if err := os.MkdirAll(s.uploadsDir(), 0o700); err != nil {
		return "", fmt.Errorf("make a folder for the upload: %w", err)
	}
	dir, err := os.MkdirTemp(s.uploadsDir(), "")
	if err != nil {
		return "", fmt.Errorf("make a folder for the upload: %w", err)
	}
	return dir, nil
}
