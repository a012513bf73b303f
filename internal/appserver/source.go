package appserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"mime"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// downloadsAtOnce is how many archives of one stack's source are sent at once: each takes
// a core to compress.
const downloadsAtOnce = 4

// Limits of reading listings: one of a large source takes tens of megabytes and a tenth
// of a second.
const (
	loadsAtOnce = 4
	loadWait    = 10 * time.Second
)

// Sources sends the kept sources of stacks, for the API and the pages.
type Sources struct {
	server *Server
	dir    SourceDir
	places *fair.Places // of downloads, by stack
	loads  *fair.Queue  // slots for reading listings, by stack
	log    *slog.Logger
}

// SourceDir finds sources on disk; package datadir implements it.
type SourceDir interface {
	// TempDir creates a folder on the disk of the sources.
	TempDir() (string, error)
	// Source returns the folder of a kept source by the name that the stack's row gives.
	Source(id, name string) string
}

// NewSources returns a Sources that answers requests of a server.
func NewSources(s *Server, dir SourceDir, log *slog.Logger) *Sources {
	return &Sources{server: s, dir: dir, places: fair.NewPlaces(downloadsAtOnce), loads: fair.NewQueue(loadsAtOnce), log: log}
}

// Load returns the kept source of a stack. The error is a *stack.Error: NotFound if there
// is none, Conflict if it is damaged, Unavailable if too many are read at once.
func (x *Sources) Load(s *stack.Stack) (*source.Source, error) {
	kept := s.Generation.Source
	if kept.Folder == "" {
		return nil, stack.NewError(stack.NotFound, fmt.Sprintf(
			"no source of %s is kept: no generation of it is live yet, or it was deployed before this server kept sources; the source of its next whole deploy is kept", s.ID))
	}
	ctx, cancel := context.WithTimeout(x.server.Context(), loadWait)
	defer cancel()
	done, err := x.loads.Acquire(ctx, s.ID, func(int) {})
	if err != nil {
		return nil, &stack.Error{Kind: stack.Unavailable, RetryAfter: loadWait, Detail: "too many sources are being read at once; try again in a few seconds"}
	}
	defer done()
	src, err := source.Load(x.dir.Source(s.ID, kept.Folder), kept.Digest)
	if err != nil {
		x.log.Error("kept source is gone or damaged", "stack", s.ID, "error", err)
	}
	return src, err
}

// SendFile answers with a file of a source: as plain text, or, if it is not text, as an
// attachment. A browser runs nothing of it in either case.
func (x *Sources) SendFile(c *fiber.Ctx, src *source.Source, e source.Entry) error {
	f, err := src.Open(e)
	if err != nil {
		return err
	}
	text, err := source.IsText(f)
	if err != nil {
		f.Close()
		return fmt.Errorf("read a file of a source: %w", err)
	}
	guardContent(c)
	c.Set(fiber.HeaderContentType, fiber.MIMETextPlainCharsetUTF8)
	if !text {
		attach(c, fiber.MIMEOctetStream, path.Base(e.Path))
	}
	return c.SendStream(f, int(e.Size))
}

// SendArchive answers with all of a source as a tar.gz under a file name.
func (x *Sources) SendArchive(c *fiber.Ctx, s *stack.Stack, src *source.Source, name string) error {
	leave, ok := x.places.Take(s.ID)
	if !ok {
		return &stack.Error{Kind: stack.TooMany, RetryAfter: time.Minute, Detail: fmt.Sprintf(
			"%d downloads of this stack's source are under way already; wait for one, or try again in a minute", downloadsAtOnce)}
	}
	copied, err := x.snapshot(src)
	if err != nil {
		leave()
		return err
	}
	done := func() {
		leave()
		if err := os.RemoveAll(copied.Dir()); err != nil {
			x.log.Error("links to a source not removed; the next start tries again", "error", err)
		}
	}
	guardContent(c)
	attach(c, "application/gzip", name)
	if c.Method() == fiber.MethodHead { // fasthttp would end the answer with bytes that a HEAD must not have
		done()
		return nil
	}
	return c.SendStream(x.pack(copied, done))
}

// snapshot links a source into a new folder, so that it stays while it is sent, and
// checks it.
func (x *Sources) snapshot(src *source.Source) (*source.Source, error) {
	dir, err := x.dir.TempDir()
	if err != nil {
		return nil, err
	}
	copied, _, err := src.Overlay(x.server.Context(), source.Changes{}, dir, archive.Limits{MaxUnpacked: math.MaxInt64, MaxEntries: math.MaxInt})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return copied, nil
}

// packing is a source that is read as an archive. Closing it ends the packing.
type packing struct {
	pipe   *io.PipeReader
	cancel context.CancelFunc
}

// Read is io.Reader's.
func (p packing) Read(b []byte) (int, error) { return p.pipe.Read(b) }

// Close is io.Closer's.
func (p packing) Close() error {
	p.cancel()
	return p.pipe.Close()
}

// pack packs a source while it is read, and calls done at the end.
func (x *Sources) pack(src *source.Source, done func()) packing {
	ctx, cancel := context.WithCancel(x.server.Context())
	r, w := io.Pipe()
	go func() {
		defer done()
		buffered := bufio.NewWriterSize(w, 64<<10)
		err := src.Pack(ctx, buffered)
		w.CloseWithError(errors.Join(err, buffered.Flush()))
	}()
	return packing{r, cancel}
}

// guardContent sets the headers that keep a browser from running what a stranger wrote.
func guardContent(c *fiber.Ctx) {
	c.Set(fiber.HeaderXContentTypeOptions, "nosniff")
	c.Set(fiber.HeaderContentSecurityPolicy, "sandbox")
}

// attach makes the answer a download under a file name.
func attach(c *fiber.Ctx, contentType, name string) {
	c.Set(fiber.HeaderContentType, contentType)
	c.Set(fiber.HeaderContentDisposition, mime.FormatMediaType("attachment", map[string]string{"filename": name}))
}

// HasETag answers 304 if the request has what a tag names, and sets the tag. The tag of
// a source is its digest.
func HasETag(c *fiber.Ctx, digest string) bool {
	SetETag(c, digest)
	c.Set(fiber.HeaderCacheControl, "private, no-cache")
	if !slices.Contains(ETags(c.Get(fiber.HeaderIfNoneMatch)), digest) {
		return false
	}
	c.Status(fiber.StatusNotModified)
	return true
}

// SetETag sends the digest of a source.
func SetETag(c *fiber.Ctx, digest string) { c.Set(fiber.HeaderETag, `"`+digest+`"`) }

// ETags returns the tags in a header, without quotes. A proxy may have marked one as
// weak.
func ETags(header string) []string {
	var tags []string
	for tag := range strings.SplitSeq(header, ",") {
		if tag = strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`); tag != "" {
			tags = append(tags, tag)
		}
	}
	return tags
}
