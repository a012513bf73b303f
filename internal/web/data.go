package web

import (
	"context"
	"crypto/subtle"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// dataPage answers GET /dashboard/stacks/{id}/data.
func (w *pages) dataPage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	return w.render(c, fiber.StatusOK, dataPage(w.newPage(c, s, "Data of "+st.Name, "", "stacks"), w.showStack(st)))
}

// downloadData answers GET /dashboard/stacks/{id}/data/{service}.
func (w *pages) downloadData(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	service, stop := c.Params("service"), c.Query("stop") == "true"
	if err := st.CheckDataRead(service, stack.Now()); err != nil {
		return err
	}
	name, mediaType := st.DataFile(service)
	return w.server.SendDownload(c, mediaType, name, func(ctx context.Context, out io.Writer) error {
		return w.cfg.Host.ReadData(ctx, st.ID, service, stop, out)
	})
}

// uploadData answers POST /dashboard/stacks/{id}/data/{service}. The form's token comes
// before the file, which passes through as it arrives.
func (w *pages) uploadData(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	service := c.Params("service")
	body := uploadBody(c)
	file, err := w.uploadedFile(c, body)
	if err != nil {
		return err
	}
	_, err = w.cfg.Host.ReplaceData(w.server.Context(), st.ID, service, formFile{file, body})
	return w.backToStack(c, st, err, "The service "+service+" has the new data.")
}

// mostUnread is how much of an upload that is refused is read all the same, in bytes.
const mostUnread = 64 << 20

// drained reads the rest of an upload after the handler, since a browser that is still
// sending shows no answer, and then closes the connection.
func drained(next fiber.Handler) fiber.Handler {
	return func(c *fiber.Ctx) error {
		c.Context().SetConnectionClose()
		err := next(c)
		_, _ = io.CopyN(io.Discard, uploadBody(c), mostUnread)
		return err
	}
}

// formFile is the file of a form that is still arriving.
type formFile struct {
	file io.Reader
	body *slowbody.Reader
}

func (f formFile) Read(p []byte) (int, error) { return f.file.Read(p) }

// Abort makes a Read that waits, and each later one, fail.
func (f formFile) Abort() { f.body.Abort() }

// uploadBody returns the body of an upload, which takes as long as it takes.
func uploadBody(c *fiber.Ctx) *slowbody.Reader {
	stream := c.Context().RequestBodyStream()
	if stream == nil {
		stream = strings.NewReader("")
	}
	return slowbody.NewReader(stream, c.Context().Conn().SetReadDeadline)
}

// errNoFile is the answer to a form without its file.
var errNoFile = stack.NewError(stack.Invalid, "the form has no file; choose a tar or tar.gz, or the dump of a database, then try again")

// uploadedFile returns the file of a form whose token is right.
func (w *pages) uploadedFile(c *fiber.Ctx, body io.Reader) (io.Reader, error) {
	media, params, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || media != fiber.MIMEMultipartForm {
		return nil, errForged
	}
	parts := multipart.NewReader(body, params["boundary"])
	token, err := parts.NextRawPart()
	if err != nil || token.FormName() != tokenField || !w.isToken(c, token) {
		return nil, errForged
	}
	file, err := parts.NextRawPart()
	if err != nil || file.FormName() != "data" || file.FileName() == "" {
		return nil, errors.Join(errNoFile, err)
	}
	return file, nil
}

// isToken reports whether a part of a form has the token of this browser's forms.
func (w *pages) isToken(c *fiber.Ctx, part io.Reader) bool {
	tie := w.tie(c)
	want := w.cfg.Key.FormToken(tie)
	got, err := io.ReadAll(io.LimitReader(part, int64(len(want))+1))
	return err == nil && tie != "" && subtle.ConstantTimeCompare(got, []byte(want)) == 1
}

// uploadPath is the one path whose body may have any length.
const uploadPath = "/dashboard/stacks/:id/data/:service"

// limitBody refuses a body that is larger than any other form, or has no length.
func limitBody(c *fiber.Ctx) error {
	if fiber.RoutePatternMatch(c.Path(), uploadPath, fiber.Config{CaseSensitive: true}) {
		return c.Next()
	}
	if n := c.Request().Header.ContentLength(); n > maxBody || n == -1 {
		c.Context().SetConnectionClose()
		return fiber.ErrRequestEntityTooLarge
	}
	return c.Next()
}
