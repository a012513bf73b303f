package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
)

// mostUpload limits an upload in JSON, in bytes.
const mostUpload = 8 << 20

// Examples of what to send in JSON.
const (
	filesExample  = `{"files": {"index.html": "<h1>hello</h1>"}}`
	deleteExample = `{"base": 3, "files": {"index.html": "<h1>hello</h1>"}, "delete": ["old.html"]}`
	base64Example = `{"files": [{"path": "logo.png", "content": "iVBORw0K", "encoding": "base64"}]}`
)

// fileEntry is one file of a list. Its content is text, or base64 if Encoding says so.
type fileEntry struct {
	Path     string   `json:"path"`
	Content  jsonText `json:"content"`
	Encoding jsonText `json:"encoding"`
}

// jsonText is a text in JSON, which is not null.
type jsonText string

// UnmarshalJSON implements json.Unmarshaler.
func (t *jsonText) UnmarshalJSON(value []byte) error {
	if string(value) == "null" {
		return &json.UnmarshalTypeError{Value: "null", Type: reflect.TypeFor[string]()}
	}
	return json.Unmarshal(value, (*string)(t))
}

// readObject reads an upload in JSON. It packs the files into an archive in dir, so that
// they pass all the checks of an archive when unpacked. It needs a few times the size
// of the body in memory.
func (u *uploads) readObject(c *fiber.Ctx, s shape, f form, in io.Reader, dir folder) (form, error) {
	if err := u.spoolObject(bodyOf(c.Context()), in, dir.object()); err != nil {
		return form{}, err
	}
	done, err := u.waitTurn(c, u.checks, time.Now().Add(u.cfg.UnpackWait))
	if err != nil {
		return form{}, err
	}
	defer done()
	text, err := os.ReadFile(dir.object())
	if err != nil {
		return form{}, fmt.Errorf("read the upload in JSON: %w", err)
	}
	if fault := plainjson.Fault(text); fault != "" {
		return form{}, invalid("the JSON %s; send files that are not text in base64, like this: %s", fault, base64Example)
	}
	r := objectReader{
		form:    f,
		shape:   s,
		in:      json.NewDecoder(bytes.NewReader(text)),
		archive: dir.archive(),
		most:    u.cfg.Unpacked.MaxEntries,
		room:    u.room,
	}
	r.in.DisallowUnknownFields()
	if err := r.read(); err != nil {
		return form{}, err
	}
	return r.form, s.checkSource(r.form, u.example(c))
}

// spoolObject writes the body to disk, so that a slow one does not stay in memory as
// long.
func (u *uploads) spoolObject(body *body, in io.Reader, path string) error {
	size, err := spool(path, u.room, io.LimitReader(in, mostUpload+1))
	switch {
	case notWritten(err):
		return fmt.Errorf("spool the upload: %w", err)
	case slowbody.Stalled(err):
		return invalid("%s", stalledDetail(body.read))
	case err != nil:
		return invalid("the upload broke off after %d bytes, before its end; send it again", size)
	case size > mostUpload:
		return stack.NewError(stack.TooLarge, fmt.Sprintf(
			"the JSON is longer than %s; send the project as an archive instead, as a form with source", byteSize(mostUpload)))
	}
	return nil
}

// objectReader reads an upload in JSON field by field.
type objectReader struct {
	form    form // read so far
	shape   shape
	in      *json.Decoder
	seen    []string     // names of the fields read so far
	archive string       // path of the archive to write
	most    int          // files
	room    func() error // fails when no more may be written to disk
}

// read reads the whole object.
func (r *objectReader) read() error {
	if _, err := r.in.Token(); err != nil { // its brace
		return r.malformed(err)
	}
	for r.in.More() {
		if err := r.readField(); err != nil {
			return err
		}
	}
	if _, err := r.in.Token(); err != nil {
		return r.malformed(err)
	}
	if _, err := r.in.Token(); err != io.EOF {
		return r.malformed(errors.New("something follows its end"))
	}
	return nil
}

func (r *objectReader) readField() error {
	token, err := r.in.Token()
	name, ok := token.(string)
	if !ok {
		return r.malformed(err)
	}
	if slices.Contains(r.seen, name) {
		return invalid("%s is given twice; send it once", shorten(name))
	}
	r.seen = append(r.seen, name)
	if name == "files" {
		return r.readFiles()
	}
	unknown := invalid("unknown field %q; the JSON takes files, %s, like this: %s", shorten(name), strings.Join(r.texts(), ", "), filesExample)
	field, err := r.shape.field(name, unknown)
	switch {
	case err != nil:
		return err
	case !field.isText():
		return unknown
	case field.name == "delete":
		return r.readDeletions()
	}
	return r.readText(field)
}

// texts returns the names of the fields besides files.
func (r *objectReader) texts() []string {
	var names []string
	for _, field := range r.shape.fields {
		if field.isText() {
			names = append(names, field.name)
		}
	}
	return names
}

// readText reads a field that is not files.
func (r *objectReader) readText(field formField) error {
	value, err := r.value(field.name)
	if err != nil {
		return err
	}
	var text string
	err = json.Unmarshal(value, &text)
	switch {
	case err != nil && standsAlone(field.name, value):
		text = string(value)
	case err != nil:
		return invalid("%s must be %s", field.name, kindOf(field.name))
	}
	if int64(len(text)) > field.most {
		return unprocessable("%s is larger than %s", field.name, byteSize(field.most))
	}
	return r.form.setText(field.name, []byte(text))
}

// value reads the value of a field, which is not null.
func (r *objectReader) value(name string) (value json.RawMessage, err error) {
	if err := r.in.Decode(&value); err != nil {
		return nil, r.malformed(err)
	}
	if string(value) == "null" {
		return nil, errNull(name)
	}
	return value, nil
}

// errNull refuses null, which might be meant for something else than a field that is left
// out.
func errNull(name string) error {
	return invalid("%s is null; leave it out, or give it a value", name)
}

// kindOf returns what a field must be.
func kindOf(field string) string {
	switch field {
	case "manifest":
		return `the manifest's text or an object, like this: {"services": [{"name": "web", "runtime": "static"}]}`
	case "base":
		return "the number of a generation"
	case "supersede", "fresh":
		return "true or false"
	}
	return "a string"
}

// standsAlone reports whether a value that is not a string is that of a field all the
// same: a manifest, a number, true or false.
func standsAlone(field string, value json.RawMessage) bool {
	first := value[0]
	switch field {
	case "manifest":
		return first == '{'
	case "base":
		return first == '-' || first >= '0' && first <= '9'
	case "supersede", "fresh":
		return first == 't' || first == 'f'
	}
	return false
}

// readDeletions reads the paths to delete: a list of them, or one.
func (r *objectReader) readDeletions() error {
	value, err := r.value("delete")
	if err != nil {
		return err
	}
	if list, ok := pathList(value); ok {
		return r.form.addDeletions(list...)
	}
	var path string
	if err := json.Unmarshal(value, &path); err != nil {
		return invalid("delete must be a list of paths, like this: %s", deleteExample)
	}
	return r.form.addDeletions(path)
}

// readFiles reads the files, as a list or as a map, and packs them.
func (r *objectReader) readFiles() error {
	opening, err := r.in.Token()
	if err != nil {
		return r.malformed(err)
	}
	if opening == nil {
		return errNull("files")
	}
	if opening != json.Delim('[') && opening != json.Delim('{') {
		return invalid("files must be a map from path to text, like this: %s or a list, like this: %s", filesExample, base64Example)
	}
	p, err := newPacker(r.archive, r.room)
	if err != nil {
		return err
	}
	defer p.close()
	count := 0
	for ; r.in.More(); count++ {
		if count == r.most {
			return unprocessable("there are more than the %d files allowed; leave out what the build installs, such as node_modules", r.most)
		}
		file, err := r.readFile(count, opening == json.Delim('{'))
		if err != nil {
			return err
		}
		if err := p.add(file); err != nil {
			return err
		}
	}
	if _, err := r.in.Token(); err != nil || count == 0 {
		return r.malformed(err)
	}
	r.form.archive, r.form.modeless = r.archive, true
	sum, err := p.end()
	if r.form.sum != nil {
		r.form.sum = sum
	}
	return err
}

// readFile reads the file of an index.
func (r *objectReader) readFile(i int, mapped bool) (fileEntry, error) {
	if mapped {
		return r.readMember()
	}
	var file fileEntry
	if err := r.in.Decode(&file); err != nil {
		return fileEntry{}, r.entryFault(i, err)
	}
	if file.Path == "" {
		return fileEntry{}, invalid("files[%d] has no path; send it like this: %s", i, base64Example)
	}
	return file, nil
}

// readMember reads the next file of a map.
func (r *objectReader) readMember() (fileEntry, error) {
	token, err := r.in.Token()
	path, ok := token.(string)
	if !ok {
		return fileEntry{}, r.malformed(err)
	}
	var text *string
	err = r.in.Decode(&text)
	if _, wrong := errors.AsType[*json.UnmarshalTypeError](err); wrong || err == nil && text == nil {
		return fileEntry{}, invalid("the content of %q must be text; for a file that is not, send a list, like this: %s", shorten(path), base64Example)
	}
	if err != nil {
		return fileEntry{}, r.malformed(err)
	}
	if path == "" {
		return fileEntry{}, invalid("files has an empty path; send a map from path to text, like this: %s", filesExample)
	}
	return fileEntry{Path: path, Content: jsonText(*text)}, nil
}

// malformed returns what is wrong with the JSON; nil for no error.
func (r *objectReader) malformed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("it is cut short")
	}
	return invalid("the body is not valid JSON (%v); send it like this: %s or a form (multipart/form-data) with the archive as source", err, filesExample)
}

// entryFault returns what is wrong with an entry of a list of files.
func (r *objectReader) entryFault(i int, err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return invalid("files[%d].%s must be a string, not of type %s", i, wrong.Field, wrong.Value)
	} else if ok {
		return invalid("files[%d] must be an object, not of type %s; send a list like this: %s", i, wrong.Value, base64Example)
	}
	if _, unknown, ok := strings.Cut(err.Error(), "json: unknown field "); ok {
		return invalid("files[%d] has an unknown field %s; a file has path, content and encoding", i, shorten(unknown))
	}
	return r.malformed(err)
}
