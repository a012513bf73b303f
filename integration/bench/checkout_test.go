package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// repository returns a git repository with two commits of one file, "one" and "two".
func repository(t *testing.T) string {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_SYSTEM", os.DevNull)
	dir := t.TempDir()
	run := func(args ...string) {
		if _, err := git(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("init", "--quiet", "--initial-branch=main")
	for _, text := range []string{"one", "two"} {
		write(t, filepath.Join(dir, "file"), text)
		run("add", "file")
		run("-c", "user.name=test", "-c", "user.email=test@example.com", "commit", "--quiet", "--message", text)
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestCheckout_HasTheCommitAndLeavesTheTreeAlone(t *testing.T) {
	from := repository(t)
	write(t, filepath.Join(from, "file"), "changed since")
	write(t, filepath.Join(from, "new"), "new")
	to := filepath.Join(t.TempDir(), "source")
	name, err := checkout(t.Context(), from, "HEAD~1", to)
	if err != nil {
		t.Fatal(err)
	}
	if full, err := git(t.Context(), from, "rev-parse", "HEAD~1"); err != nil || !strings.HasPrefix(full, name) || len(name) < 7 {
		t.Errorf("%q is not a name of %s: %v", name, full, err)
	}
	if text, err := os.ReadFile(filepath.Join(to, "file")); string(text) != "one" {
		t.Errorf("the file is %q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(from, "file")); string(text) != "changed since" {
		t.Errorf("the tree's file is %q, %v", text, err)
	}
	entries, err := os.ReadDir(filepath.Dir(to))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v beside the checkout, %v", entries, err)
	}
	if worktrees, err := git(t.Context(), from, "worktree", "list"); err != nil || strings.Count(worktrees, "\n") != 0 {
		t.Errorf("worktrees %q, %v", worktrees, err)
	}
}

func TestCheckout_SaysWhyACommitIsMissing(t *testing.T) {
	full := repository(t)
	shallow := filepath.Join(t.TempDir(), "shallow")
	if _, err := git(t.Context(), full, "clone", "--quiet", "--depth", "1", "file://"+full, shallow); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ repository, commit, want string }{
		{full, "nowhere", "there is no commit nowhere"},
		{full, "--all", "there is no commit --all"},
		{full, "HEAD:file", "there is no commit HEAD:file"},
		{shallow, "HEAD~1", "git fetch --unshallow"},
		{t.TempDir(), "HEAD", "not a git repository"},
	} {
		to := filepath.Join(t.TempDir(), "source")
		if _, err := checkout(t.Context(), c.repository, c.commit, to); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.commit, err, c.want)
		}
		if _, err := os.Stat(to); err == nil {
			t.Errorf("%s: the folder is there", c.commit)
		}
	}
}

func TestTreeName_ShowsThatFilesHaveChanged(t *testing.T) {
	dir := repository(t)
	clean, err := treeName(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "new"), "new")
	if changed, err := treeName(t.Context(), dir); err != nil || changed != clean+"+" {
		t.Errorf("%q after %q, %v", changed, clean, err)
	}
}
