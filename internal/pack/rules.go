package pack

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// manifests are packed whatever .dockerignore says: the host reads them.
var manifests = []string{"stack.yaml", "stack.yml", "stack.json", "Procfile"}

// rules decide what is excluded from one folder's archive.
type rules struct {
	root    string
	base    []string            // of the folder below its git repository
	ignore  []gitignore.Pattern // of .gitignore files; the last match wins
	docker  *patternmatcher.PatternMatcher
	include []gitignore.Pattern
	names   []gitignore.Pattern // those of include that match in every folder
	asked   []string            // include, as it was written
}

func newRules(root string, include []string) (*rules, error) {
	r := &rules{root: root, asked: include}
	for _, pattern := range include {
		pattern = strings.TrimPrefix(filepath.ToSlash(pattern), "./")
		parsed := gitignore.ParsePattern(pattern, nil)
		r.include = append(r.include, parsed)
		if !strings.Contains(strings.TrimSuffix(pattern, "/"), "/") {
			r.names = append(r.names, parsed)
		}
	}
	if err := r.readRepository(); err != nil {
		return nil, err
	}
	return r, r.readDockerignore()
}

// readRepository reads the rules of the folder's git repository, down to the folder's
// parent. They do not count if they exclude the folder itself, which was asked for.
func (r *rules) readRepository() error {
	top, below := repository(r.root)
	if top == "" {
		return nil
	}
	patterns, err := readPatterns(filepath.Join(top, ".git", "info", "exclude"), nil)
	if err != nil {
		return err
	}
	for i := range below {
		folder := filepath.Join(append([]string{top}, below[:i]...)...)
		more, err := readPatterns(filepath.Join(folder, ".gitignore"), below[:i])
		if err != nil {
			return err
		}
		patterns = append(patterns, more...)
	}
	for i := range below {
		if gitignore.NewMatcher(patterns).Match(below[:i+1], true) {
			return nil
		}
	}
	r.base, r.ignore = below, patterns
	return nil
}

// repository returns the git repository of a folder, and the folder's place in it.
func repository(dir string) (top string, below []string) {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir, below
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", nil
		}
		below = append([]string{filepath.Base(dir)}, below...)
		dir = parent
	}
}

// readPatterns reads a file of .gitignore's syntax; none if there is no such file.
func readPatterns(file string, domain []string) ([]gitignore.Pattern, error) {
	data, err := readOptional(file)
	if err != nil {
		return nil, err
	}
	var patterns []gitignore.Pattern
	for line := range strings.Lines(string(data)) {
		line = strings.TrimRight(line, "\r\n")
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			patterns = append(patterns, gitignore.ParsePattern(line, domain))
		}
	}
	return patterns, nil
}

func readOptional(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() {
		if err == nil || errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "not a directory") {
			return nil, nil
		}
		return nil, fmt.Errorf("read the rules of what to pack: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the rules of what to pack: %w", err)
	}
	return data, nil
}

func (r *rules) readDockerignore() error {
	data, err := readOptional(filepath.Join(r.root, ".dockerignore"))
	if err != nil {
		return err
	}
	patterns, err := ignorefile.ReadAll(bytes.NewReader(data))
	if err == nil && len(patterns) > 0 {
		r.docker, err = patternmatcher.New(patterns)
	}
	if err != nil {
		return fmt.Errorf(".dockerignore: %w", err)
	}
	return nil
}

// enter reads the .gitignore of a folder before its entries are judged. It skips that
// of an excluded folder.
func (r *rules) enter(name string, ignored bool) error {
	if ignored {
		return nil
	}
	domain := slices.Concat(r.base, parts(name))
	more, err := readPatterns(filepath.Join(r.root, filepath.FromSlash(name), ".gitignore"), domain)
	r.ignore = append(r.ignore, more...)
	return err
}

// leavesOut reports whether an entry is excluded from the archive. ignored means that
// its folder is.
func (r *rules) leavesOut(name string, isDir, ignored bool) (bool, error) {
	p := parts(name)
	if never(path.Base(name)) {
		return !r.askedForItself(p, isDir), nil
	}
	if r.asksFor(p, isDir) || slices.Contains(manifests, name) {
		return false, nil
	}
	if ignored || gitignore.NewMatcher(r.ignore).Match(slices.Concat(r.base, p), isDir) {
		return true, nil
	}
	return r.dockerLeavesOut(name, isDir)
}

// dockerLeavesOut does not exclude a folder if a later line of .dockerignore may
// include something in it again.
func (r *rules) dockerLeavesOut(name string, isDir bool) (bool, error) {
	if r.docker == nil || isDir && r.docker.Exclusions() {
		return false, nil
	}
	out, err := r.docker.MatchesOrParentMatches(name)
	if err != nil {
		return false, fmt.Errorf(".dockerignore: %w", err)
	}
	return out, nil
}

// never reports whether an entry with this name is packed only if it is asked for by
// itself.
func never(base string) bool {
	return base == ".git" || base == "node_modules" || strings.HasPrefix(base, ".env")
}

// asksFor reports whether the caller asked for an entry or a folder above it.
func (r *rules) asksFor(p []string, isDir bool) bool {
	return len(p) > 0 && gitignore.NewMatcher(r.include).Match(p, isDir)
}

// askedForItself is like asksFor for what is never packed implicitly: asking for the
// folder above does not ask for the secrets in it, but does for its modules.
func (r *rules) askedForItself(p []string, isDir bool) bool {
	base, above := p[len(p)-1], p[:len(p)-1]
	if gitignore.NewMatcher(r.names).Match([]string{base}, isDir) {
		return true
	}
	return r.asksFor(p, isDir) && (base == "node_modules" || !r.asksFor(above, true))
}

// mayIncludeBelow reports whether an excluded folder may contain something that was
// asked for. A folder that is never packed must be named.
func (r *rules) mayIncludeBelow(name string) bool {
	base := path.Base(name)
	return slices.ContainsFunc(r.asked, func(pattern string) bool {
		return !never(base) || strings.Contains(pattern, base)
	})
}

func parts(name string) []string {
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}
