package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/source"
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
	src, err := source.Load(job.Source, job.Digest)
	if err != nil {
		return "", fmt.Errorf("fingerprint: %w", err)
	}
	source.WriteListing(h, src.Entries(), job.isForeign)
	return hex.EncodeToString(h.Sum(nil)), nil
}

// isForeign reports whether a path of the source is in a folder of another service that
// does not contain this one's.
func (j *Job) isForeign(path string) bool {
	return slices.ContainsFunc(j.Others, func(root string) bool {
		holds := root == "." || root == j.Spec.Root || strings.HasPrefix(j.Spec.Root, root+"/")
		return !holds && (path == root || strings.HasPrefix(path, root+"/"))
	})
}

// isThere reports whether the served generation's image or folder exists.
func (b *Builder) isThere(ctx context.Context, job Job) (bool, error) {
	if job.Spec.IsStatic() {
		_, err := os.Stat(job.PreviousSite)
		return err == nil, nil
	}
	return b.cfg.Engine.HasImage(ctx, job.Previous.Image)
}
