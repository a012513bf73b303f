package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/berth-host/berth/internal/engine"
)

// fingerprint returns the same text for two builds of a service with the same result:
// same source, commands, environment and base image. The folders of other services are
// not part of its source.
func (b *Builder) fingerprint(job Job, base string) (string, error) {
	h := sha256.New()
	env := maps.Clone(job.Env)
	delete(env, "GENERATION") // it is new each time
	recipe := struct {
		Spec any
		Env  map[string]string
		Base string
		UID  int
	}{job.Spec, env, base, job.Stack.UID()}
	if err := json.NewEncoder(h).Encode(recipe); err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	if err := hashTree(h, job.Source, job.foreign()); err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// foreign returns the folders of other services that do not contain this one's.
func (j *Job) foreign() map[string]bool {
	foreign := map[string]bool{}
	for _, root := range j.Others {
		holds := root == "." || root == j.Spec.Root || strings.HasPrefix(j.Spec.Root, root+"/")
		foreign[root] = !holds
	}
	return foreign
}

// hashTree hashes names, kinds, modes and contents below dir.
func hashTree(h hash.Hash, dir string, without map[string]bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && without[name] {
			return fs.SkipDir
		}
		return hashEntry(h, root, name, d)
	})
}

func hashEntry(h hash.Hash, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	fmt.Fprintf(h, "%q %s %d\n", name, info.Mode(), info.Size())
	switch {
	case d.Type() == fs.ModeSymlink:
		link, err := root.Readlink(name)
		fmt.Fprintf(h, "%q\n", link)
		return err
	case !d.Type().IsRegular():
		return nil
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(h, f)
	return errors.Join(err, f.Close())
}

// reuse takes over the served generation's result if the service would be built the
// same way again; it returns false if there is nothing to take over.
func (b *Builder) reuse(ctx context.Context, job Job) (bool, error) {
	if job.Spec.IsStatic() {
		if _, err := os.Stat(job.PreviousSite); err != nil {
			return false, nil //nolint:nilerr // it is built again
		}
		return true, linkTree(job.PreviousSite, job.Site)
	}
	err := b.cfg.Engine.Tag(ctx, job.Previous.Image, job.key().Image())
	if errors.Is(err, engine.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
