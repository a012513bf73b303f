package appserver

import (
	"bufio"
	"context"
	"errors"
	"io"

	"github.com/gofiber/fiber/v2"
)

// SendDownload answers with what write writes, as a download under a file name. An error
// before the first byte is returned; a later one breaks the answer off, so that nobody takes
// it for whole. The context of write ends when the caller leaves.
func (s *Server) SendDownload(c *fiber.Ctx, contentType, name string, write func(context.Context, io.Writer) error) error {
	guardContent(c)
	attach(c, contentType, name)
	if c.Method() == fiber.MethodHead { // fasthttp would end the answer with bytes that a HEAD must not have
		return nil
	}
	ctx, cancel := context.WithCancel(s.Context())
	r, w := io.Pipe()
	go func() {
		buffered := bufio.NewWriterSize(w, 64<<10)
		err := write(ctx, buffered)
		w.CloseWithError(errors.Join(err, buffered.Flush()))
	}()
	in := bufio.NewReaderSize(r, 64<<10)
	// The end itself is io.EOF and nothing else: Join wraps what write returns.
	if _, err := in.Peek(1); err != nil && err != io.EOF {
		cancel()
		c.Response().Header.Del(fiber.HeaderContentDisposition)
		return err
	}
	return c.SendStream(download{in, packing{r, cancel}})
}

// download is a download whose first bytes were read ahead.
type download struct {
	in   *bufio.Reader
	from packing
}

// Read is io.Reader's.
func (d download) Read(b []byte) (int, error) { return d.in.Read(b) }

// Close is io.Closer's.
func (d download) Close() error { return d.from.Close() }
