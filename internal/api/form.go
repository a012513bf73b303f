package api

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/stack"
)

// formField is a field that the body of an upload may have.
type formField struct {
	name string
	most int64 // bytes; 0 for the archive, which goes to disk
}

// String returns the name of the field.
func (f formField) String() string { return f.name }

// isText reports whether JSON may hold the field: the files stand there for the source,
// and a manifest has no file name.
func (f formField) isText() bool { return f.most > 0 && f.name != "manifest_file" }

// shape is what the body of an upload may hold, as a form or in JSON.
type shape struct {
	fields []formField
	alone  []string // fields that do without a source
	query  bool     // whether base, delete, supersede and fresh may be query parameters
}

// createShape is that of POST /v0/stacks.
var createShape = shape{fields: []formField{
	{"source", 0},
	{"manifest", mostManifest},
	{"manifest_file", mostManifest},
	{"name", mostText},
	{"ttl", mostText},
	{"claim_email", mostText},
}}

// deployShape is that of POST /v0/stacks/{id}/deploy.
var deployShape = shape{
	fields: append(slices.Clone(createShape.fields[:3]), formField{"base", mostText}, formField{"delete", mostDeletions}, formField{"supersede", mostText}, formField{"fresh", mostText}),
	alone:  []string{"manifest", "manifest_file"},
	query:  true,
}

// validateShape is that of POST /v0/validate.
var validateShape = shape{fields: createShape.fields, alone: []string{"manifest", "manifest_file"}}

// fixed maps fields of a create to why a deploy does not take them.
var fixed = map[string]string{
	"name":        "name is fixed when the stack is created; leave it out of a deploy",
	"ttl":         "ttl is fixed when the stack is created; leave it out of a deploy, and extend the stack's life with a PATCH of the stack",
	"claim_email": "claim_email is fixed when the stack is created; leave it out of a deploy",
}

// field returns the field of a name. The error for one that no request has is unknown.
func (s shape) field(name string, unknown error) (formField, error) {
	i := slices.IndexFunc(s.fields, func(f formField) bool { return f.name == name })
	switch {
	case i >= 0:
		return s.fields[i], nil
	case fixed[name] != "":
		return formField{}, stack.NewError(stack.Unprocessable, fixed[name])
	}
	return formField{}, unknown
}

// checkSource refuses a form without a source, unless it holds what does without one.
func (s shape) checkSource(f form, example string) error {
	fresh, err := f.flag("fresh")
	if err != nil {
		return err
	}
	if f.archive != "" || len(f.deletions) > 0 || fresh || slices.ContainsFunc(s.alone, func(name string) bool { return len(f.texts[name]) > 0 }) {
		return nil
	}
	if f.texts["base"] != nil || f.deletions != nil {
		return invalid("nothing changes: with base, send the files that change, delete or manifest, like this: %s or fresh to build the same source again", deleteExample)
	}
	return invalid("no source: send the project as a tar or tar.gz, like this: tar -czf app.tar.gz . && %s or its files in JSON, like this: %s",
		example, filesExample)
}

// form is the body of an upload after reading: its archive on disk, its texts in memory.
type form struct {
	archive      string // path of the archive; "" for none
	texts        map[string][]byte
	manifestFile string   // file name of the part manifest_file
	deletions    []string // paths that delete names; nil if it is not given
	modeless     bool     // whether the archive was made of files in JSON, which have no modes
	sum          []byte   // SHA-256 of the archive, or of nothing; nil if no digest is needed
}

// newForm returns the form of a request whose body has not been read. Its digest is
// needed if another request may have to be compared with this one.
func newForm(c *fiber.Ctx, s shape) (form, error) {
	f := form{texts: map[string][]byte{}}
	if c.Get(headerIdempotencyKey) != "" {
		f.sum = sha256.New().Sum(nil)
	}
	if !s.query {
		return f, nil
	}
	return f, f.addQuery(c.Context().QueryArgs())
}

// Limits of the paths that delete names.
const (
	mostDeletions   = 1 << 20 // bytes of all, and of one field
	mostDeleteNames = 10_000
)

// addDeletions adds paths that are to be deleted.
func (f *form) addDeletions(paths ...string) error {
	if f.deletions == nil {
		f.deletions = []string{}
	}
	f.deletions = append(f.deletions, paths...)
	size := 0
	for _, path := range f.deletions {
		size += len(path)
	}
	if len(f.deletions) > mostDeleteNames || size > mostDeletions {
		return unprocessable("delete names more than %d paths or %s; name the folders that they are in, or send the whole source, without base", mostDeleteNames, byteSize(mostDeletions))
	}
	return nil
}

// setText sets a field, which may be given once.
func (f *form) setText(name string, text []byte) error {
	if _, twice := f.texts[name]; twice {
		return invalid("%s is given twice; send it once", name)
	}
	f.texts[name] = text
	return nil
}

// addQuery adds the fields that are query parameters.
func (f *form) addQuery(args *fasthttp.Args) error {
	for _, name := range []string{"base", "supersede", "fresh"} {
		for _, text := range args.PeekMulti(name) {
			if name != "base" && len(text) == 0 {
				text = []byte("true") // the name alone
			}
			if err := f.setText(name, bytes.Clone(text)); err != nil {
				return err
			}
		}
		if name == "base" {
			continue
		}
		if _, err := f.flag(name); err != nil {
			return err
		}
	}
	for _, path := range args.PeekMulti("delete") {
		if err := f.addDeletions(string(path)); err != nil {
			return err
		}
	}
	return nil
}

// flag returns a boolean field; an empty text counts as left out.
func (f form) flag(name string) (bool, error) {
	if len(f.texts[name]) == 0 {
		return false, nil
	}
	return parseFlag(name, string(f.texts[name]))
}

// digest returns a hash of the form's content, the names and values of its fields,
// regardless of their order and delimiters. It is nil if none is needed.
func (f form) digest() []byte {
	if f.sum == nil {
		return nil
	}
	h := sha256.New()
	h.Write(f.sum)
	for _, name := range slices.Sorted(maps.Keys(f.texts)) {
		fmt.Fprintf(h, "%s %d\n%s", name, len(f.texts[name]), f.texts[name])
	}
	for _, path := range f.deletions {
		fmt.Fprintf(h, "delete %d\n%s", len(path), path)
	}
	return h.Sum(nil)
}
