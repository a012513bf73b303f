package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// publishSource puts a folder of the source itself into the site's folder, as
// links to the same files: nothing ran that could have changed them.
func publishSource(job Job) error {
	root, err := os.OpenRoot(filepath.Join(job.Source, filepath.FromSlash(job.Spec.Root)))
	if err != nil {
		return fmt.Errorf("open the service's folder: %w", err)
	}
	defer root.Close()
	folder := job.Spec.Publish
	if folder == "" {
		found, ok := runtimes.FindPublish(root.FS())
		if !ok {
			return fault(job, "no index.html in any of %s; set publish to the folder to serve", publishFolders)
		}
		folder = found
	}
	if info, err := root.Stat(folder); err != nil || !info.IsDir() {
		return fault(job, "the folder to publish, %q, is not in the source; set publish to one that is", folder)
	}
	// A folder that is a link inside the source is published as what it leads to.
	from, err := filepath.EvalSymlinks(filepath.Join(root.Name(), filepath.FromSlash(folder)))
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if err := linkTree(from, job.Site); err != nil {
		return err
	}
	failpoint.Here("site-linked")
	return job.published(folder)
}

// linkTree links every file below from into a new folder to. Symbolic links are made again as they are; package site follows none that
// leads out.
func linkTree(from, to string) error {
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(name, from))
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(link, target)
		}
		return os.Link(name, target)
	})
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	return nil
}

// published writes down what is served, and refuses an empty folder. The
// manifest is taken out where the archive's root is published: it tells of
// other services too.
func (j *Job) published(folder string) error {
	if path.Join(j.Spec.Root, folder) == "." {
		for _, name := range source.ManifestFiles {
			if err := os.Remove(filepath.Join(j.Site, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("publish: %w", err)
			}
		}
	}
	files, err := countFiles(j.Site)
	if err != nil {
		return err
	}
	if files == 0 {
		return noFiles(*j, folder)
	}
	fmt.Fprintf(j.Log, "published from %s; number of files: %d\n", folder, files)
	return nil
}

func noFiles(job Job, folder string) error {
	return fault(job, "the folder to publish, %q, holds no file; set publish to the one that does", folder)
}

var publishFolders = strings.Join(runtimes.PublishFolders, ", ")

// publish takes the published folder out of the container after its commands
// ran: as a tar that the tenant's own user writes, unpacked as carefully as an
// upload.
func (x *box) publish(ctx context.Context) error {
	folder, err := x.folder(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(x.job.Site, 0o700); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	r, w := io.Pipe()
	var said lastLines
	go func() {
		code, err := x.Engine.Output(ctx, x.id, docker.ExecSpec{
			Cmd:  []string{"tar", "-C", path.Join(x.dir(), folder), "-cf", "-", "."},
			User: x.user(),
		}, w, &said)
		if err == nil && code != 0 {
			err = fault(x.job, "the folder to publish, %q, could not be read%s", folder, &said)
		}
		w.CloseWithError(err)
	}()
	lost, err := source.Unpack(ctx, r, x.job.Site, x.Sites)
	r.CloseWithError(err)
	var unfit *stack.Error
	if errors.As(err, &unfit) {
		return fault(x.job, "the folder to publish, %q, cannot be served: %s", folder, unfit.Detail)
	}
	if err != nil {
		return err
	}
	for _, l := range lost {
		fmt.Fprintf(x.job.Log, "left out: %s\n", l)
	}
	return x.job.published(folder)
}

// folder is the folder to publish below the service's own, looked up in the
// container when the manifest names none.
func (x *box) folder(ctx context.Context) (string, error) {
	if x.job.Spec.Publish != "" {
		return x.checkFolder(ctx, x.job.Spec.Publish)
	}
	script := "for d in " + strings.Join(runtimes.PublishFolders, " ") + `; do
		f=$(find "$d" -maxdepth 3 -name node_modules -prune -o -name index.html -print 2>/dev/null | awk '{ print length, $0 }' | sort -n | head -n 1 | cut -d " " -f 2-)
		if [ -n "$f" ]; then dirname "$f"; exit; fi
	done`
	var out strings.Builder
	code, err := x.Engine.Output(ctx, x.id, docker.ExecSpec{Cmd: []string{"sh", "-c", script}, User: x.user(), Dir: x.dir()}, &out, io.Discard)
	if err != nil {
		return "", err
	}
	folder := strings.TrimSpace(out.String())
	if code != 0 || folder == "" {
		return "", fault(x.job, "the build left no index.html in any of %s; set publish to the folder that it writes", publishFolders)
	}
	return folder, nil
}

func (x *box) checkFolder(ctx context.Context, folder string) (string, error) {
	// find ends with an error when there is no such folder.
	var first strings.Builder
	code, err := x.Engine.Output(ctx, x.id, docker.ExecSpec{
		Cmd:  []string{"find", folder + "/", "-not", "-type", "d", "-print", "-quit"},
		User: x.user(), Dir: x.dir(),
	}, &first, io.Discard)
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fault(x.job, "the build left no folder %q; set publish to the folder that it writes", folder)
	}
	if first.Len() == 0 {
		return "", noFiles(x.job, folder)
	}
	return folder, nil
}

func countFiles(dir string) (files int, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	return files, err
}
