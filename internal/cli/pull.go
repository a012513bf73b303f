package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/archive"
)

func (a *app) pullCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "pull [STACK] [FOLDER]",
		Short: "Get the source that a stack serves",
		Long: `Get the source that a stack serves, into FOLDER or this folder. Other files in it
stay. Files that differ are not replaced without --force, and then nothing is
written at all. From then on berth deploy of the folder redeploys the stack, unless
the folder already has another one.`,
		Example: `berth pull
berth pull stk_3f2a9c1b7d4e shop
berth pull --force`,
	}
	cmd.Flags().BoolVar(&force, "force", false, "replace files that differ")
	return a.onStack(cmd, 1, func(ctx context.Context, t *target, args []string) error {
		return a.pull(ctx, t, argument(args, "."), force)
	})
}

// pull writes the source of a stack into a folder.
func (a *app) pull(ctx context.Context, t *target, folder string, force bool) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return &failure{code: exitOther, detail: "the folder cannot be made: " + err.Error(), next: "pull into another folder"}
	}
	p, err := newPuller(folder)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := p.fetch(ctx, t); err != nil {
		return err
	}
	if err := p.compare(force); err != nil {
		return err
	}
	if err := p.place(); err != nil {
		return err
	}
	a.ui.sayf("%s of generation %d of %s: %d new or changed, in %s", counted(p.files), t.stack.Generation, t.stack.ID, len(p.changed), folder)
	return a.connectFolder(t, folder)
}

// connectFolder makes a stack that of the folder with its source, unless the folder has
// another one.
func (a *app) connectFolder(t *target, folder string) error {
	key, err := folderKey(folder)
	if err != nil {
		return err
	}
	_, known, err := a.account()
	if err != nil {
		return err
	}
	switch its := known.Folders[key]; its {
	case t.stack.ID:
		return nil
	case "":
		a.ui.sayf("berth deploy of %s now redeploys %s", key, t.stack.ID)
	default:
		a.ui.sayf("berth deploy of %s still redeploys %s; pass it %s to redeploy that stack", key, its, t.stack.ID)
		return nil
	}
	err = a.memory.update(t.api.Server(), func(known *onServer) { known.Folders[key] = t.stack.ID })
	if err != nil {
		return fmt.Errorf("the source is in %s, but that the folder belongs to %s could not be saved: %w", folder, t.stack.ID, err)
	}
	return nil
}

// puller is a source on its way into a folder.
type puller struct {
	root    *os.Root
	temp    string // name of a folder in root with the unpacked source
	changed []string
	files   int
}

func newPuller(folder string) (*puller, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the folder: %w", err)
	}
	dir, err := os.MkdirTemp(folder, ".berth-pull-")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("write to %s: %w", folder, err)
	}
	return &puller{root: root, temp: filepath.Base(dir)}, nil
}

// Close removes what was not placed.
func (p *puller) Close() error {
	return errors.Join(p.root.RemoveAll(p.temp), p.root.Close())
}

// fetch unpacks the source into the temporary folder.
func (p *puller) fetch(ctx context.Context, t *target) error {
	packed, err := t.api.SourceArchive(ctx, t.stack.ID)
	if err != nil {
		return err
	}
	defer packed.Close()
	_, err = archive.Unpack(ctx, packed, filepath.Join(p.root.Name(), p.temp), unpackLimits)
	return err
}

// compare finds what is new or differs, and refuses to replace what differs unless it is
// forced to.
func (p *puller) compare(force bool) error {
	var differ []string
	err := p.walk(func(name string, d fs.DirEntry) error {
		state, err := p.state(name, d)
		switch {
		case err != nil || d.IsDir() && state != blocked:
			return err
		case state == blocked:
			return inTheWay(name, d)
		case state == differs:
			differ = append(differ, name)
		}
		p.files++
		if state != same {
			p.changed = append(p.changed, name)
		}
		return nil
	})
	if err != nil || len(differ) == 0 || force {
		return err
	}
	return &failure{code: exitConflict, detail: "these files differ from the source that is served: " + few(differ), next: "pass --force to replace them, or pull into another folder"}
}

// inTheWay is the error for what is a folder here and a file in the source, or the other
// way round.
func inTheWay(name string, d fs.DirEntry) error {
	detail := name + " is a file in the source and a folder here"
	if d.IsDir() {
		detail = name + " is a folder in the source and a file here"
	}
	return &failure{code: exitOther, detail: detail, next: "move it away, or pull into another folder"}
}

// What is at a path of the source in the folder.
const (
	missing = iota
	same
	differs
	blocked // by something of another kind
)

// walk calls do for everything in the source.
func (p *puller) walk(do func(name string, d fs.DirEntry) error) error {
	return fs.WalkDir(p.root.FS(), p.temp, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == p.temp {
			return err
		}
		return do(strings.TrimPrefix(path, p.temp+"/"), d)
	})
}

// state compares an entry of the source with the folder.
func (p *puller) state(name string, d fs.DirEntry) (int, error) {
	info, err := p.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing, nil
	case err != nil:
		return 0, err
	case info.IsDir() != d.IsDir():
		return blocked, nil
	case d.IsDir():
		return same, nil
	case info.Mode().Type() != d.Type():
		return differs, nil
	}
	equal, err := p.equal(name, d)
	if err != nil || !equal {
		return differs, err
	}
	return same, nil
}

// equal compares a file or a symlink of the source with that in the folder.
func (p *puller) equal(name string, d fs.DirEntry) (bool, error) {
	if d.Type() == fs.ModeSymlink {
		here, err := p.root.Readlink(name)
		there, err2 := p.root.Readlink(p.temp + "/" + name)
		return here == there, errors.Join(err, err2)
	}
	here, err := p.root.Open(name)
	if err != nil {
		return false, err
	}
	defer here.Close()
	there, err := p.root.Open(p.temp + "/" + name)
	if err != nil {
		return false, err
	}
	defer there.Close()
	return equalContent(here, there)
}

// equalContent compares two files.
func equalContent(a, b io.Reader) (bool, error) {
	one, two := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, err := io.ReadFull(a, one)
		m, err2 := io.ReadFull(b, two)
		switch {
		case n != m || !bytes.Equal(one[:n], two[:m]):
			return false, nil
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return true, nil
		case err != nil || err2 != nil:
			return false, errors.Join(err, err2)
		}
	}
}

// place moves what is new or changed to its place.
func (p *puller) place() error {
	for _, name := range p.changed {
		if dir := filepath.ToSlash(filepath.Dir(name)); dir != "." {
			if err := p.root.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		if err := p.root.Rename(p.temp+"/"+name, name); err != nil {
			return err
		}
	}
	return nil
}
