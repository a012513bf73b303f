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
	"mime/multipart"
	"slices"
	"strings"
)

// source is what is deployed, as a call has it.
type source struct {
	Folder   string            `json:"folder,omitempty" jsonschema:"path of the folder to deploy; instead of files"`
	Files    map[string]string `json:"files,omitempty" jsonschema:"the source, as a map from path to text: {\"index.html\": \"<h1>Hi</h1>\"}. All of it each time, but no node_modules and no build output"`
	Binary   map[string]string `json:"binary_files,omitempty" jsonschema:"files that are not text, as a map from path to base64"`
	Manifest string            `json:"manifest,omitempty" jsonschema:"stack.yaml, for what cannot be found out from the source; goes before one among the files"`
}

// check tells what is wrong with the source before anything is sent.
func (s source) check(folders bool) error {
	inline := len(s.Files)+len(s.Binary) > 0
	switch {
	case s.Folder != "" && !folders:
		return errors.New("this server cannot read your folders: pass the source as files, a map from path to text")
	case s.Folder != "" && inline:
		return errors.New("pass either folder or files, not both")
	case s.Folder == "" && !inline && folders:
		return errors.New("there is no source: pass folder, the path of the project, or files, a map from path to text")
	case s.Folder == "" && !inline:
		return errors.New("there is no source: pass it as files, a map from path to text")
	}
	return nil
}

// sourceError is a source that cannot be packed, and so not sent.
type sourceError struct{ error }

// form writes the multipart body of an upload as it is read. The fields are
// texts beside the source; empty ones are left out.
func (t *tools) form(ctx context.Context, s source, fields map[string]string) (body io.ReadCloser, contentType string) {
	r, w := io.Pipe()
	form := multipart.NewWriter(w)
	go func() {
		if err := errors.Join(t.writeForm(ctx, form, s, fields), form.Close()); err != nil {
			w.CloseWithError(&sourceError{err})
			return
		}
		w.Close()
	}()
	return r, form.FormDataContentType()
}

func (t *tools) writeForm(ctx context.Context, form *multipart.Writer, s source, fields map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if fields[name] == "" {
			continue
		}
		if err := form.WriteField(name, fields[name]); err != nil {
			return err
		}
	}
	out, err := form.CreateFormFile("source", "source.tar.gz")
	if err != nil {
		return err
	}
	if s.Folder != "" {
		return t.Pack(ctx, s.Folder, out)
	}
	return pack(s, out)
}

// pack writes inline files as a tar.gz.
func pack(s source, out io.Writer) error {
	zipped := gzip.NewWriter(out)
	archive := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		if err := addFile(archive, name, []byte(s.Files[name])); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Binary)) {
		content, err := base64.StdEncoding.DecodeString(s.Binary[name])
		if err != nil {
			return fmt.Errorf("binary_files: %s is not base64", name)
		}
		if err := addFile(archive, name, content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), zipped.Close())
}

// addFile adds a file; a script that names its interpreter can be run.
func addFile(archive *tar.Writer, name string, content []byte) error {
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
