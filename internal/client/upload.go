package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/pause"
)

// Upload is the form of a create, a deploy or a validation. Empty fields are left out.
type Upload struct {
	Archive io.ReaderAt // tar or tar.gz; nil for no source
	Size    int64       // of the archive, in bytes
	// Pack replaces Archive: it writes the archive while it is sent. Such an upload is
	// sent once, even if the connection is lost.
	Pack func(out io.Writer) error

	Manifest     []byte // goes before a manifest in the archive
	ManifestName string // its file name; "" for a text that is from no file

	Name, TTL, ClaimEmail string // for a create only
	Supersede             bool   // for a deploy only: ends the one under way
	Fresh                 bool   // for a deploy only: uses nothing that earlier builds left

	// For a deploy of changes: the served generation, the digest of its source, and the
	// paths to remove from it. Archive then has only what is new or changed.
	Base   int
	Digest string
	Delete []string

	// Progress is called with how many bytes of Archive have been sent, starting again
	// at 0 if the upload does. It may be nil.
	Progress func(sent int64)
}

// Create creates a stack and returns it in its first state, building, with its one-time
// fields.
func (c *Client) Create(ctx context.Context, u Upload) (*Stack, error) {
	return upload[Stack](ctx, c, "/v0/stacks", u)
}

// Deploy uploads the next generation of a stack.
func (c *Client) Deploy(ctx context.Context, id string, u Upload) (*Stack, error) {
	return upload[Stack](ctx, c, stackPath(id)+"/deploy", u)
}

// Validate returns what a create would make of a source, or of a manifest alone, without
// building anything.
// Faults of the source are in the plan, not an error. Servers older than this route
// answer 404 or 405.
func (c *Client) Validate(ctx context.Context, u Upload) (*manifest.Plan, error) {
	return upload[manifest.Plan](ctx, c, "/v0/validate", u)
}

const (
	uploadAttempts = 4
	longestRetry   = 15 * time.Second
)

// upload posts a form. If the connection is lost, it posts the form again with the
// same Idempotency-Key, so that the server does it once.
func upload[T any](ctx context.Context, c *Client, path string, u Upload) (*T, error) {
	body, err := newForm(u)
	if err != nil {
		return nil, err
	}
	if u.Pack != nil {
		return stream[T](ctx, c, path, body)
	}
	key := rand.Text()
	for attempt := 1; ; attempt++ {
		answer, err := post[T](ctx, c, path, key, body)
		wait := retryUpload(err, attempt)
		if wait == 0 || attempt == uploadAttempts {
			return answer, err
		}
		if !pause.For(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

// retryUpload returns how long to wait before another attempt; 0 means not to try
// again. A 409 to a later attempt may be the first one, still under way.
func retryUpload(err error, attempt int) time.Duration {
	var dialing *net.OpError
	var refusal *Error
	switch {
	case errors.As(err, &dialing) && dialing.Op == "dial" && attempt == 1:
		return 0
	case IsUnreachable(err):
		return time.Second << (attempt - 1)
	case errors.As(err, &refusal) && refusal.Status == http.StatusConflict && attempt > 1:
		return min(refusal.RetryAfter, longestRetry)
	}
	return 0
}

func post[T any](ctx context.Context, c *Client, path, key string, body *form) (*T, error) {
	req, err := c.request(ctx, http.MethodPost, path, body.upload.query(), body.reader())
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", body.contentType)
	req.ContentLength = body.size()
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(body.reader()), nil }
	req.Header.Set("Idempotency-Key", key)
	setMatch(req, body.upload.Digest)
	return exchange[T](c, req)
}

// stream posts a form and packs its archive while sending it.
func stream[T any](ctx context.Context, c *Client, path string, body *form) (*T, error) {
	r, w := io.Pipe()
	defer r.Close()
	go func() { w.CloseWithError(body.write(w)) }()
	req, err := c.request(ctx, http.MethodPost, path, body.upload.query(), r)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", body.contentType)
	setMatch(req, body.upload.Digest)
	answer, err := exchange[T](c, req)
	if packing, ok := errors.AsType[*packError](err); ok {
		return nil, packing.err
	}
	return answer, err
}

// setMatch makes a request depend on the digest of the stack's source, "" for none.
func setMatch(req *http.Request, digest string) {
	if digest != "" {
		req.Header.Set("If-Match", `"`+digest+`"`)
	}
}

// query returns what stands in the query rather than in the form, so that the server
// knows it before it reads the form.
func (u Upload) query() url.Values {
	query := url.Values{}
	if u.Supersede {
		query.Set("supersede", "true")
	}
	if u.Fresh {
		query.Set("fresh", "true")
	}
	return query
}

// packError is the error of an archive that could not be packed, and so was not sent.
type packError struct{ err error }

func (e *packError) Error() string { return e.err.Error() }

// form is a multipart body that can be read any number of times. Only the parts around
// the archive are held in memory.
type form struct {
	head, tail  []byte
	upload      Upload
	contentType string
}

func newForm(u Upload) (*form, error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, field := range []struct{ name, value string }{
		{"name", u.Name}, {"ttl", u.TTL}, {"claim_email", u.ClaimEmail},
	} {
		if field.value == "" {
			continue
		}
		if err := w.WriteField(field.name, field.value); err != nil {
			return nil, fmt.Errorf("write the form: %w", err)
		}
	}
	if err := writeChanges(w, u); err != nil {
		return nil, fmt.Errorf("write the form: %w", err)
	}
	if err := writeManifest(w, u); err != nil {
		return nil, fmt.Errorf("write the form: %w", err)
	}
	if u.Archive != nil || u.Pack != nil {
		if _, err := w.CreateFormFile("source", "source.tar.gz"); err != nil {
			return nil, fmt.Errorf("write the form: %w", err)
		}
	}
	head := bytes.Clone(b.Bytes())
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("write the form: %w", err)
	}
	return &form{head: head, tail: b.Bytes()[len(head):], upload: u, contentType: w.FormDataContentType()}, nil
}

// writeChanges writes the fields of a deploy of changes.
func writeChanges(w *multipart.Writer, u Upload) error {
	if u.Base == 0 {
		return nil
	}
	err := w.WriteField("base", strconv.Itoa(u.Base))
	if err != nil || len(u.Delete) == 0 {
		return err
	}
	list, err := json.Marshal(u.Delete)
	if err != nil {
		return err
	}
	return w.WriteField("delete", string(list))
}

func writeManifest(w *multipart.Writer, u Upload) error {
	if u.Manifest == nil {
		return nil
	}
	if u.ManifestName == "" {
		return w.WriteField("manifest", string(u.Manifest))
	}
	part, err := w.CreateFormFile("manifest_file", u.ManifestName)
	if err != nil {
		return err
	}
	_, err = part.Write(u.Manifest)
	return err
}

func (f *form) size() int64 { return int64(len(f.head)) + f.upload.Size + int64(len(f.tail)) }

func (f *form) reader() io.Reader {
	if f.upload.Archive == nil {
		return io.MultiReader(bytes.NewReader(f.head), bytes.NewReader(f.tail))
	}
	archive := io.Reader(io.NewSectionReader(f.upload.Archive, 0, f.upload.Size))
	if f.upload.Progress != nil {
		archive = &counter{from: archive, tell: f.upload.Progress}
	}
	return io.MultiReader(bytes.NewReader(f.head), archive, bytes.NewReader(f.tail))
}

// write writes the form and packs its archive into it.
func (f *form) write(out io.Writer) error {
	if _, err := out.Write(f.head); err != nil {
		return err
	}
	if err := f.upload.Pack(out); err != nil {
		return &packError{err}
	}
	_, err := out.Write(f.tail)
	return err
}

// counter counts the bytes read and reports them.
type counter struct {
	from io.Reader
	sent int64
	tell func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.sent += int64(n)
	c.tell(c.sent)
	return n, err
}
