package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// sourceList is the listing of docs/api.md, "GET /v0/stacks/{id}/source".
type sourceList struct {
	Generation int          `json:"generation"`
	Digest     string       `json:"digest"`
	Files      []sourceFile `json:"files"`
}

// sourceFile is a file or a symlink of a source.
type sourceFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	Mode   string `json:"mode"`
	SHA256 string `json:"sha256"`
	Target string `json:"target,omitempty"`
}

// showSource answers GET /v0/stacks/{id}/source.
func (a *API) showSource(c *fiber.Ctx, s *stack.Stack, _ string) error {
	src, err := a.sources.Load(s)
	if err != nil || appserver.HasETag(c, src.Digest()) {
		return err
	}
	if wantsJSON(c) {
		return c.JSON(listSource(s, src, src.Entries()))
	}
	return a.sources.SendArchive(c, s, src, fmt.Sprintf("%s-g%d.tar.gz", s.Name, s.Generation.Number))
}

// showSourceFile answers GET /v0/stacks/{id}/source/{path}.
func (a *API) showSourceFile(c *fiber.Ctx, s *stack.Stack, role string) error {
	path, err := url.PathUnescape(c.Params("*"))
	if err != nil {
		return invalid("the path is not escaped as in a URL: %s", shorten(c.Params("*")))
	}
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return a.showSource(c, s, role)
	}
	src, err := a.sources.Load(s)
	if err != nil {
		return err
	}
	e, ok := src.Find(path)
	switch {
	case !ok:
		return stack.NewError(stack.NotFound, fmt.Sprintf("there is no %s in the source of generation %d; GET /v0/stacks/%s/source with Accept: application/json lists what there is",
			shorten(path), s.Generation.Number, s.ID))
	case appserver.HasETag(c, src.Digest()):
		return nil
	case e.Mode.IsDir():
		return c.JSON(listSource(s, src, src.Below(path)))
	case !e.Mode.IsRegular() || wantsJSON(c):
		return c.JSON(listSource(s, src, []source.Entry{e}))
	}
	return a.sources.SendFile(c, src, e)
}

// wantsJSON reports whether a request asks for JSON rather than for anything.
func wantsJSON(c *fiber.Ctx) bool {
	return slices.ContainsFunc(strings.Split(c.Get(fiber.HeaderAccept), ","), func(accepted string) bool {
		media, _, _ := strings.Cut(accepted, ";")
		return strings.EqualFold(strings.TrimSpace(media), fiber.MIMEApplicationJSON)
	})
}

// listSource returns the files and symlinks among the entries of a stack's source.
func listSource(s *stack.Stack, src *source.Source, entries []source.Entry) sourceList {
	list := sourceList{Generation: s.Generation.Number, Digest: src.Digest(), Files: []sourceFile{}}
	for i := range entries {
		e := &entries[i]
		if e.Mode.IsDir() {
			continue
		}
		sum, size := e.Sum, e.Size
		if e.Mode&fs.ModeSymlink != 0 {
			sum, size = sha256.Sum256([]byte(e.Target)), int64(len(e.Target))
		}
		list.Files = append(list.Files, sourceFile{
			Path: e.Path, Size: size, Mode: fmt.Sprintf("%04o", e.Mode.Perm()), SHA256: hex.EncodeToString(sum[:]), Target: e.Target,
		})
	}
	return list
}
