package web

import (
	"fmt"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/a-h/templ"
	"github.com/docker/go-units"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// mostFiles is how many files and folders of one folder a page lists.
const mostFiles = 2000

// folderView is a folder of a stack's source.
type folderView struct {
	Stack *stack.Stack
	Path  string // "" for the whole source
	Items []sourceItem
	More  int // files and folders that are not listed
}

// sourceItem is what a folder has at one name.
type sourceItem struct {
	Name   string
	Path   string
	Size   int64
	Folder bool
	Target string // of a symlink
}

// sourcePage answers GET /dashboard/stacks/{id}/source and everything below: a page for a
// folder, the content for a file.
func (w *pages) sourcePage(c *fiber.Ctx, s store.Session, st *stack.Stack) error {
	name, err := url.PathUnescape(c.Params("*"))
	if err != nil {
		return fiber.ErrNotFound
	}
	name = strings.TrimSuffix(name, "/")
	src, err := w.sources.Load(st)
	if err != nil {
		return err
	}
	if e, ok := src.Find(name); name != "" && (!ok || e.Mode&fs.ModeSymlink != 0) {
		return fiber.ErrNotFound
	} else if ok && e.Mode.IsRegular() {
		return w.sources.SendFile(c, src, e)
	}
	v := folderView{Stack: st, Path: name, Items: itemsOf(src, name)}
	if v.More = max(len(v.Items)-mostFiles, 0); v.More > 0 {
		v.Items = v.Items[:mostFiles]
	}
	return w.render(c, fiber.StatusOK, sourcePage(w.newPage(c, s, "Source of "+st.Name, "", "stacks"), v))
}

// sourceArchive answers GET /dashboard/stacks/{id}/source.tar.gz.
func (w *pages) sourceArchive(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	src, err := w.sources.Load(st)
	if err != nil {
		return err
	}
	return w.sources.SendArchive(c, st, src, fmt.Sprintf("%s-g%d.tar.gz", st.Name, st.Generation.Number))
}

// itemsOf returns what is in a folder of a source, folders first.
func itemsOf(src *source.Source, folder string) []sourceItem {
	var items []sourceItem
	for _, e := range src.Below(folder) {
		rest := strings.TrimPrefix(strings.TrimPrefix(e.Path, folder), "/")
		if strings.Contains(rest, "/") {
			continue
		}
		items = append(items, sourceItem{Name: rest, Path: e.Path, Size: e.Size, Folder: e.Mode.IsDir(), Target: e.Target})
	}
	slices.SortStableFunc(items, func(a, b sourceItem) int {
		switch {
		case a.Folder == b.Folder:
			return 0
		case a.Folder:
			return -1
		}
		return 1
	})
	return items
}

// sourceURL returns the address of a file or folder of a stack's source.
func sourceURL(id, name string) templ.SafeURL {
	if name == "" {
		return stackURL(id, "source")
	}
	return stackURL(id, append([]string{"source"}, strings.Split(name, "/")...)...)
}

// crumb is a folder on the way to another one.
type crumb struct{ Name, Path string }

// crumbs returns the folders above the one that is shown, and itself.
func (v folderView) crumbs() []crumb {
	if v.Path == "" {
		return nil
	}
	var all []crumb
	for at := v.Path; at != "."; at = path.Dir(at) {
		all = append(all, crumb{path.Base(at), at})
	}
	slices.Reverse(all)
	return all
}

// size returns a file's size in words.
func (i sourceItem) size() string { return units.HumanSize(float64(i.Size)) }
