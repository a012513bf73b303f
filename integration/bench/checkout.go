package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// checkout writes the files of a commit of the repository into a new folder, and returns
// the commit's short name. The repository and its work tree stay as they are.
func checkout(ctx context.Context, repository, commit, dir string) (name string, err error) {
	name, err = git(ctx, repository, "rev-parse", "--verify", "--short", commit+"^{commit}")
	if err != nil {
		return "", unknownCommit(ctx, repository, commit, err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	packed := dir + ".tar"
	defer os.Remove(packed)
	if _, err := git(ctx, repository, "archive", "--output", packed, name); err != nil {
		return "", err
	}
	return name, quiet(ctx, nil, "tar", "-xf", packed, "-C", dir)
}

// unknownCommit returns the error about a commit that the repository does not have.
func unknownCommit(ctx context.Context, repository, commit string, cause error) error {
	shallow, err := git(ctx, repository, "rev-parse", "--is-shallow-repository")
	switch {
	case err != nil:
		return err
	case shallow == "true":
		return fmt.Errorf("this clone is shallow and does not have the commit %s; get the others with git fetch --unshallow", commit)
	}
	return fmt.Errorf("there is no commit %s: %w", commit, cause)
}

// treeName returns the short name of the commit that the work tree is at, with a "+" if
// files have changed since.
func treeName(ctx context.Context, repository string) (string, error) {
	name, err1 := git(ctx, repository, "rev-parse", "--short", "HEAD")
	changes, err2 := git(ctx, repository, "status", "--porcelain")
	if changes != "" {
		name += "+"
	}
	return name, errors.Join(err1, err2)
}

// git runs a command of git and returns its output without the last line break.
func git(ctx context.Context, repository string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repository}, args...)...)
	var fault strings.Builder
	cmd.Stderr = &fault
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(fault.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
