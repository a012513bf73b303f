package api

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// unpack turns an upload into a tree below dir and the manifest that it asks
// for. It returns the project's folder in that tree.
func (a *API) unpack(f form, dir string) (string, *stack.Manifest, error) {
	project, name, err := a.tree(f, dir)
	if err != nil {
		return "", nil, err
	}
	root, err := os.OpenRoot(project)
	if err != nil {
		return "", nil, fmt.Errorf("read the upload: %w", err)
	}
	defer root.Close()
	manifest, err := source.Resolve(root.FS(), name, f.request())
	if err != nil {
		return "", nil, fmt.Errorf("resolve the manifest: %w", err)
	}
	return project, manifest, nil
}

// tree unpacks an upload below dir. It returns the project's folder, and the
// name of the one folder that the archive held, or "".
func (a *API) tree(f form, dir string) (project, name string, err error) {
	tree := filepath.Join(dir, "source")
	if err := a.extract(f.archive, tree); err != nil {
		return "", "", fmt.Errorf("unpack the upload: %w", err)
	}
	if project, name, err = source.Root(tree); err != nil {
		return "", "", fmt.Errorf("unpack the upload: %w", err)
	}
	return project, name, nil
}

// extract unpacks the archive into a new folder and removes it, so that an
// upload takes its place on the disk only once.
func (a *API) extract(archive, tree string) error {
	in, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.Mkdir(tree, 0o700); err != nil {
		return err
	}
	failpoint.Here("upload-stored")
	err = source.Unpack(a.base, in, tree, a.Unpacked)
	return errors.Join(err, os.Remove(archive))
}

// request is what the form says besides its archive. A text that is empty
// counts as left out; manifest_file goes before manifest.
func (f form) request() source.Request {
	r := source.Request{
		Name:       string(f.texts["name"]),
		TTL:        string(f.texts["ttl"]),
		ClaimEmail: string(f.texts["claim_email"]),
	}
	if text := f.texts["manifest_file"]; len(text) > 0 {
		r.Manifest, r.ManifestName = text, f.manifestFile
	} else if text := f.texts["manifest"]; len(text) > 0 {
		r.Manifest, r.ManifestName = text, "manifest"
	}
	return r
}
