package api

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"mime/multipart"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
)

// Limits of a multipart body, besides the limit of the archive.
const (
	formOverhead = 4 << 20  // what all but the archive may add to Content-Length
	partHead     = 64 << 10 // headers of one part, and whatever stands before it
	mostParts    = 20
	mostManifest = 64 << 10 // as the manifest in an archive
	mostText     = 4 << 10
	spoolBlock   = 128 << 10 // written to disk at once
)

// uploads receives uploads: it writes them to disk, queues them and unpacks them.
type uploads struct {
	cfg     Config
	checks  *fair.Queue             // slots of requests that are checked at once, by the caller's network
	network func(*fiber.Ctx) string // of the caller
	base    context.Context
	sealer  *auth.Sealer // of manifests that are kept
}

// upload is the content of one request, in its own folder on disk.
type upload struct {
	from *uploads
	dir  folder
	form form
	over stack.Source // kept source that it changes; zero for a whole one
	kept string       // folder of that source
}

// folder is the path of an upload's folder.
type folder string

func (f folder) archive() string { return filepath.Join(string(f), "upload") } // of the source
func (f folder) object() string  { return filepath.Join(string(f), "object") } // a body in JSON
func (f folder) source() string  { return filepath.Join(string(f), "source") } // unpacked

// receive reads the request's body to disk, calls use with it, and removes what use
// leaves of it. A body that begins as a JSON object is one, and any other must be a
// form, unless the query alone is enough.
func (u *uploads) receive(c *fiber.Ctx, s shape, use func(*upload) error) error {
	f, err := newForm(c, s)
	if err != nil {
		return err
	}
	return u.inFolder(func(dir folder) (form, error) {
		in := bufio.NewReader(bodyOf(c.Context()))
		if beginsObject(in) {
			return u.readObject(c, s, f, in, dir)
		}
		if _, err := in.Peek(1); err == io.EOF && (f.texts["base"] != nil || s.checkSource(f, "") == nil) {
			return f, s.checkSource(f, "")
		}
		return u.readForm(c, s, f, in, dir)
	}, use)
}

// beginsObject reports whether a body begins with a brace, after white space.
func beginsObject(in *bufio.Reader) bool {
	for n := 1; ; n++ {
		text, err := in.Peek(n)
		if err != nil || !strings.ContainsRune(" \t\r\n", rune(text[n-1])) {
			return err == nil && text[n-1] == '{'
		}
	}
}

// inFolder creates a folder, calls read to put an upload into it and use to take it,
// and removes what is left. What the host took over, it has moved away.
func (u *uploads) inFolder(read func(dir folder) (form, error), use func(*upload) error) error {
	dir, err := u.cfg.Dir.TempDir()
	if err != nil {
		return fmt.Errorf("make a folder for the upload: %w", err)
	}
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			u.cfg.Log.Error("remove the upload", "error", err)
		}
	}()
	f, err := read(folder(dir))
	if err != nil {
		return err
	}
	return use(&upload{from: u, dir: folder(dir), form: f})
}

// room fails if no more of an upload may be written.
func (u *uploads) room() error { return u.cfg.Admission.Admit(false) }

// formReader reads the parts of one request as they arrive.
type formReader struct {
	form      form // read so far
	shape     shape
	body      *body // that in reads from
	in        io.Reader
	maxSource int64
	room      func() error // fails when no more may be written to disk
	example   string       // a curl line that works
}

// readForm reads the request's multipart body, its archive into dir.
func (u *uploads) readForm(c *fiber.Ctx, s shape, f form, in io.Reader, dir folder) (form, error) {
	r := formReader{
		form:      f,
		shape:     s,
		body:      bodyOf(c.Context()),
		in:        in,
		maxSource: u.cfg.MaxUpload,
		room:      u.room,
		example:   u.example(c),
	}
	boundary, err := r.boundary(c.Get(fiber.HeaderContentType))
	if err != nil {
		return form{}, err
	}
	if r.body.declared > u.cfg.MaxUpload+formOverhead {
		return form{}, r.tooLarge()
	}
	err = r.read(boundary, dir.archive())
	return r.form, err
}

// example returns a curl command that would have worked.
func (u *uploads) example(c *fiber.Ctx) string {
	line := "curl -F source=@app.tar.gz "
	if _, present := bearer(c); present {
		line += `-H "Authorization: Bearer $TOKEN" `
	}
	return line + u.cfg.URLs.Base.String() + c.Path()
}

// boundary returns the boundary in the Content-Type.
func (r *formReader) boundary(contentType string) (string, error) {
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil || media != fiber.MIMEMultipartForm {
		return "", invalid("no source: the body must be multipart/form-data with the archive as source, like this: %s or JSON with the files, like this: %s", r.example, filesExample)
	}
	boundary := params["boundary"]
	if boundary == "" || len(boundary) > 200 {
		return "", invalid("the Content-Type has no usable boundary; leave that header to the client, like this: %s", r.example)
	}
	return boundary, nil
}

// read reads the whole form, its archive into a new file at path.
func (r *formReader) read(boundary, path string) error {
	head := &headReader{r: r.in}
	parts := multipart.NewReader(head, boundary)
	for count := 0; ; {
		head.beginHead()
		part, err := parts.NextRawPart()
		if err == io.EOF { // the last boundary; an end anywhere else comes wrapped
			return r.finish()
		}
		if err != nil {
			return r.malformed(err)
		}
		if count == mostParts {
			return invalid("the form has more than %d parts; send only %s", mostParts, r.known())
		}
		head.endHead()
		if part.FormName() != "delete" { // as many as there may be paths
			count++
		}
		if err := r.readPart(part, path); err != nil {
			return err
		}
	}
}

// finish reads what follows the last boundary, since a body may still break off before
// the length in its headers.
func (r *formReader) finish() error {
	if !r.body.drain(formOverhead) && r.body.broken() != nil {
		return r.malformed(r.body.err)
	}
	return r.shape.checkSource(r.form, r.example)
}

func (r *formReader) readPart(part *multipart.Part, path string) error {
	field, err := r.shape.field(part.FormName(), invalid("unknown form field %q; the form takes %s. The archive goes into source: %s",
		shorten(part.FormName()), r.known(), r.example))
	if err != nil {
		return err
	}
	switch {
	case field.most == 0:
		return r.spoolSource(part, path)
	case field.name == "delete":
		return r.readDeletions(part, field)
	}
	return r.readText(part, field)
}

// spoolSource writes the archive to disk, without holding it in memory.
func (r *formReader) spoolSource(part *multipart.Part, path string) error {
	if r.form.archive != "" {
		return invalid("source is given twice; pack everything into one archive")
	}
	r.form.archive = path
	h := sha256.New()
	source := io.LimitReader(part, r.maxSource+1)
	if r.form.sum != nil {
		source = io.TeeReader(source, h)
	}
	size, err := spool(path, r.room, source)
	switch {
	case notWritten(err):
		return fmt.Errorf("spool the upload: %w", err)
	case err != nil:
		return r.malformed(err)
	case size > r.maxSource:
		return r.tooLarge()
	}
	if r.form.sum != nil {
		r.form.sum = h.Sum(nil)
	}
	return r.checkText(part, path, size)
}

// spool writes what it reads to a new file while there is room, and returns how much it
// read. It writes whole blocks, however little each read returns: mime/multipart stops
// wherever the content looks like the beginning of a boundary.
func spool(path string, room func() error, r io.Reader) (int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriterSize(roomWriter{f, room}, spoolBlock)
	n, err := w.ReadFrom(r)
	if err == nil {
		err = w.Flush()
	}
	return n, cmp.Or(err, f.Close())
}

// roomWriter writes to a file while there is room for uploads. Admission before the
// upload may no longer hold, for example because of other uploads.
type roomWriter struct {
	file *os.File
	room func() error
}

// Write implements io.Writer.
func (w roomWriter) Write(p []byte) (int, error) {
	if err := w.room(); err != nil {
		return 0, err
	}
	return w.file.Write(p)
}

// notWritten reports whether an error came from the file rather than the upload.
func notWritten(err error) bool {
	_, disk := errors.AsType[*fs.PathError](err)
	return disk || stack.KindOf(err) != 0
}

// checkText detects an archive that is only its own name: curl -F source=app.tar.gz
// without the @.
func (r *formReader) checkText(part *multipart.Part, path string, size int64) error {
	if part.FileName() != "" || size > 255 {
		return nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("spool the upload: %w", err)
	}
	if len(content) == 0 {
		r.form.archive = "" // a file field that was left empty
		return os.Remove(path)
	}
	if strings.IndexFunc(string(content), func(c rune) bool { return c < ' ' || c == '\uFFFD' }) < 0 {
		return invalid("source is the text %q, not a file; curl sends a file when its name follows an @: %s",
			shorten(string(content)), r.example)
	}
	return nil
}

func (r *formReader) readText(part *multipart.Part, field formField) error {
	text, err := r.readUpTo(part, field)
	if err != nil {
		return err
	}
	if field.name == "manifest_file" {
		r.form.manifestFile = part.FileName()
	}
	return r.form.setText(field.name, text)
}

func (r *formReader) readUpTo(part *multipart.Part, field formField) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(part, field.most+1))
	if err != nil {
		return nil, r.malformed(err)
	}
	if int64(len(text)) > field.most {
		return nil, unprocessable("%s is larger than %s", field.name, byteSize(field.most))
	}
	return text, nil
}

// readDeletions reads a path to delete, or a list of them: in JSON, or a line each, which
// no path can be.
func (r *formReader) readDeletions(part *multipart.Part, field formField) error {
	text, err := r.readUpTo(part, field)
	if err != nil {
		return err
	}
	if list, ok := pathList(text); ok {
		return r.form.addDeletions(list...)
	}
	if strings.HasPrefix(strings.TrimSpace(string(text)), `["`) {
		return invalid(`delete begins like a list, and is not valid JSON; send one like this: ["old.html", "img"], or a path on each line`)
	}
	var list []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			list = append(list, line)
		}
	}
	if len(list) == 0 {
		list = []string{""}
	}
	return r.form.addDeletions(list...)
}

// pathList parses a list of paths in JSON.
func pathList(text []byte) (paths []string, ok bool) {
	var list []*string
	if json.Unmarshal(text, &list) != nil || list == nil || plainjson.Fault(text) != "" {
		return nil, false
	}
	for _, path := range list {
		if path == nil {
			return nil, false
		}
		paths = append(paths, *path)
	}
	return paths, true
}

// malformed returns what was wrong with the body, if the caller can do something about
// it.
func (r *formReader) malformed(err error) error {
	switch {
	case slowbody.Stalled(r.body.err):
		return invalid("%s", stalledDetail(r.body.read))
	case r.body.broken() != nil || errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("the upload broke off after %d bytes, before its end; send it again", r.body.read)
	case errors.Is(err, errPartHead):
		return invalid("the headers of a part are longer than %s; send %s and nothing else", byteSize(partHead), r.known())
	case r.body.read == 0:
		return r.shape.checkSource(r.form, r.example)
	}
	return invalid("the body is not the multipart form that its Content-Type announces; let the client write both, like this: %s", r.example)
}

// stalledDetail returns the detail for a body that was cut off after so many bytes.
func stalledDetail(read int64) string {
	return fmt.Sprintf("the upload stalled after %d bytes: nothing arrived for %s, or less than %s a second in all; send it again", read, slowbody.Stall, byteSize(slowbody.Least))
}

func (r *formReader) tooLarge() error {
	return stack.NewError(stack.TooLarge, fmt.Sprintf(
		"the upload is larger than %s; leave out what is not source (node_modules, .git, build output), for example: tar --exclude=node_modules --exclude=.git -czf app.tar.gz .",
		byteSize(r.maxSource)))
}

// known returns the names of the form's fields.
func (r *formReader) known() string { return join(r.shape.fields, ", ") }

// byteSize formats a size as the limits are written: 50 MB.
func byteSize(n int64) string {
	switch {
	case n%1e6 == 0:
		return fmt.Sprintf("%d MB", n/1e6)
	case n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

var errPartHead = errors.New("part headers too long")

// headReader limits what is read between two parts; mime/multipart keeps all of it in
// memory.
type headReader struct {
	r      io.Reader
	inHead bool
	left   int
}

func (h *headReader) beginHead() { h.inHead, h.left = true, partHead }
func (h *headReader) endHead()   { h.inHead = false }

// Read fails once the limit is reached.
func (h *headReader) Read(p []byte) (int, error) {
	if !h.inHead {
		return h.r.Read(p)
	}
	if h.left == 0 {
		return 0, errPartHead
	}
	n, err := h.r.Read(p[:min(len(p), h.left)])
	h.left -= n
	return n, err
}
