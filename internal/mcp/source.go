package mcp

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/client"
)

// newUpload returns what a call deploys, packed while it is sent. It fails before
// anything is sent if possible.
func (t *tools) newUpload(ctx context.Context, in arguments) (client.Upload, error) {
	if err := in.checkSource(t.cfg.Pack != nil); err != nil {
		return client.Upload{}, err
	}
	u := client.Upload{Name: in.Name, TTL: in.TTL, Manifest: in.manifest(), Pack: func(out io.Writer) error { return packFiles(in, out) }}
	if in.Folder != "" {
		u.Pack = func(out io.Writer) error { return t.cfg.Pack(ctx, in.Folder, out) }
	}
	return u, nil
}

// manifest returns the manifest of the call, nil for none.
func (in arguments) manifest() []byte {
	if in.Manifest == "" {
		return nil
	}
	return []byte(in.Manifest)
}

// inline reports whether the call has files.
func (in arguments) inline() bool { return len(in.Files)+len(in.Binary) > 0 }

// manifestAlone reports whether the call has a manifest and no source.
func (in arguments) manifestAlone() bool { return in.Manifest != "" && in.Folder == "" && !in.inline() }

// takesKept reports whether a redeploy builds the source that is kept as it is.
func (in arguments) takesKept() bool {
	return (in.Fresh || in.manifestAlone()) && !in.inline() && len(in.Delete) == 0
}

// checkSource returns what is wrong with the source.
func (in arguments) checkSource(folders bool) error {
	inline := in.inline()
	switch {
	case in.Folder != "" && !folders:
		return errors.New("this server cannot read your folders: pass the source as files, a map from path to text")
	case in.Folder != "" && inline:
		return errors.New("pass either folder or files, not both")
	case in.Folder == "" && !inline && folders:
		return errors.New("there is no source: pass folder, the path of the project, or files, a map from path to text")
	case in.Folder == "" && !inline:
		return errors.New("there is no source: pass it as files, a map from path to text")
	}
	return nil
}

// packFiles writes inline files as a tar.gz.
func packFiles(in arguments, out io.Writer) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(in.Files)) {
		if err := addFile(archive, name, []byte(in.Files[name])); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Binary)) {
		content, err := base64.StdEncoding.DecodeString(in.Binary[name])
		if err != nil {
			return fmt.Errorf("binary_files: %s is not base64", name)
		}
		if err := addFile(archive, name, content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// addFile adds a file; a script with an interpreter line becomes executable.
func addFile(archive *tar.Writer, name string, content []byte) error {
	if strings.HasSuffix(name, "/") || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%.200q cannot be the path of a file: it ends with a slash or has a NUL character", name)
	}
	mode := int64(0o644)
	if strings.HasPrefix(string(content), "#!") {
		mode = 0o755
	}
	header := &tar.Header{Name: name, Mode: mode, Size: int64(len(content))}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	_, err := archive.Write(content)
	return err
}
