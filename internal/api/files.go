package api

import (
	"archive/tar"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"

	"github.com/berth-host/berth/internal/stack"
)

// mostFiles limits a JSON list of files, in bytes.
const mostFiles = 8 << 20

const filesExample = `{"files": [{"path": "index.html", "content": "<h1>hello</h1>"}]}`

// fileList is a project in JSON. The manifest is text in YAML or JSON, or an
// object.
type fileList struct {
	Files      []fileEntry     `json:"files"`
	Manifest   json.RawMessage `json:"manifest"`
	Name       string          `json:"name"`
	TTL        string          `json:"ttl"`
	ClaimEmail string          `json:"claim_email"`
}

// fileEntry is one file. Its content is text, or base64 if Encoding says so.
type fileEntry struct {
	Path     string `json:"path"`
	Content  string `json:"content"`
	Encoding string `json:"encoding"`
}

// pack writes an archive of a list of files into dir and returns a form with it. It
// needs a few times the size of the list in memory.
func (u *uploads) pack(path string, dir folder) (form, error) {
	list, err := readFiles(path)
	if err != nil {
		return form{}, err
	}
	if len(list.Files) == 0 {
		return form{}, invalid("no files: send the project's files, like this: %s", filesExample)
	}
	f := form{archive: dir.archive(), texts: map[string][]byte{
		"name": []byte(list.Name), "ttl": []byte(list.TTL), "claim_email": []byte(list.ClaimEmail), "manifest": list.manifest(),
	}}
	return f, packFiles(f.archive, u.room, list.Files)
}

// spoolFiles writes the body to disk, so that a slow one does not stay in memory as
// long.
func (u *uploads) spoolFiles(body io.Reader, path string) error {
	size, err := spool(path, u.room, io.LimitReader(body, mostFiles+1))
	switch {
	case notWritten(err):
		return fmt.Errorf("spool the list of files: %w", err)
	case err != nil:
		return invalid("the body broke off after %d bytes; send it again", size)
	case size > mostFiles:
		return stack.NewError(stack.TooLarge, fmt.Sprintf(
			"the list of files is longer than %s; send the project as an archive instead, as a form with source", byteSize(mostFiles)))
	}
	return nil
}

func readFiles(path string) (fileList, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return fileList{}, fmt.Errorf("read the list of files: %w", err)
	}
	var list fileList
	if err := json.Unmarshal(text, &list); err != nil {
		return fileList{}, invalid("the body is not a list of files in JSON (%s); send one with Content-Type: application/json, like this: %s, or a form (multipart/form-data) with the archive as source",
			jsonFault(err), filesExample)
	}
	return list, nil
}

// jsonFault returns what is wrong with a list of files, in terms of the request.
func jsonFault(err error) string {
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err.Error()
	}
	subject, want := cmp.Or(wrong.Field, "the body"), "a string"
	switch {
	case wrong.Type == reflect.TypeFor[fileEntry]():
		subject, want = "each item of "+subject, "an object"
	case wrong.Type.Kind() == reflect.Struct:
		want = "an object"
	case wrong.Type.Kind() == reflect.Slice:
		want = "a list"
	}
	return fmt.Sprintf("%s must be %s, not of type %s", subject, want, wrong.Value)
}

// manifest returns the manifest's text, or nil for none.
func (l *fileList) manifest() []byte {
	var text string
	if err := json.Unmarshal(l.Manifest, &text); err == nil {
		return []byte(text) // or null
	}
	return l.Manifest
}

// packFiles writes files as a tar, so that they pass all the checks of an archive when
// unpacked.
func packFiles(path string, room func() error, files []fileEntry) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("pack the files: %w", err)
	}
	w := tar.NewWriter(roomWriter{out, room})
	for i, file := range files {
		if err := packFile(w, i, file); err != nil {
			return errors.Join(err, out.Close())
		}
	}
	if err := errors.Join(w.Close(), out.Close()); err != nil {
		return fmt.Errorf("pack the files: %w", err)
	}
	return nil
}

func packFile(w *tar.Writer, i int, file fileEntry) error {
	if file.Path == "" {
		return invalid("files[%d] has no path; send it like this: %s", i, filesExample)
	}
	content := []byte(file.Content)
	switch file.Encoding {
	case "", "utf-8":
	case "base64":
		var err error
		if content, err = base64.StdEncoding.DecodeString(file.Content); err != nil {
			return invalid("the content of %q is not base64 (%v)", shorten(file.Path), err)
		}
	default:
		return invalid("the encoding of %q must be utf-8 or base64, not %q", shorten(file.Path), shorten(file.Encoding))
	}
	header := &tar.Header{Name: file.Path, Mode: 0o644, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := w.WriteHeader(header); notWritten(err) {
		return fmt.Errorf("pack the files: %w", err)
	} else if err != nil {
		return unprocessable("the path %q cannot be in an archive: %v", shorten(file.Path), err)
	}
	_, err := w.Write(content)
	return err
}
