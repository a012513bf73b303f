package builder

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

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// publishSource copies a folder of the source itself into the site's folder, as links
// to the same files: nothing has run that could have changed them.
func publishSource(job Job) error {
	root, err := os.OpenRoot(filepath.Join(job.Source, filepath.FromSlash(job.Spec.Root)))
	if err != nil {
		return fmt.Errorf("open the service's folder: %w", err)
	}
	defer root.Close()
	folder := job.Spec.Publish
	if folder == "" {
		if folder = runtimes.FindPublish(root.FS()); folder == "" {
			return fault(job, "no index.html in any of %s; set publish to the folder to serve", publishFolders)
		}
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

// linkTree links every file below from into a new folder to. It recreates symbolic
// links as they are; package site does not follow links that lead out.
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

// published records what is served, and refuses an empty folder. If the archive's root
// is published, it removes the manifest, which describes other services too.
func (j *Job) published(folder string) error {
	if path.Join(j.Spec.Root, folder) == "." {
		for _, name := range manifest.Files {
			if err := os.Remove(filepath.Join(j.Site, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("publish: %w", err)
			}
		}
	}
	files, paths, err := measure(j.Site)
	switch {
	case err != nil:
		return err
	case files == 0:
		return noFiles(*j, folder)
	case paths > maxPaths:
		return fault(*j, "the paths of all files and folders in the folder to publish, %q, are %d MiB together, and at most %d MiB can be served; publish fewer files, or give them shorter names and fewer folders",
			folder, (paths+1<<20-1)>>20, maxPaths>>20)
	}
	fmt.Fprintf(j.Log, "published from %s; number of files: %d\n", folder, files)
	return nil
}

func noFiles(job Job, folder string) error {
	return fault(job, "the folder to publish, %q, is empty; set publish to the folder with the site's files", folder)
}

var publishFolders = strings.Join(runtimes.PublishFolders, ", ")

// publish copies the published folder out of the container after its commands ran.
// Processes that they left run as the same user as the search for the folder there:
// they may stop that and write to its output. A command that killed them first could be
// stopped in the same way.
func (x *box) publish(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	err := x.takeOut(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fault(x.job, "publishing took longer than %s and was stopped; publish less, or stop what the commands leave running", x.cfg.Timeout)
	case errors.Is(err, engine.ErrTooMuch):
		return fault(x.job, "the folder to publish was not found: something else wrote into the answer; stop what the commands leave running")
	}
	return err
}

// takeOut fetches the folder as a tar that the tenant's own user writes, and unpacks it
// as carefully as an upload.
func (x *box) takeOut(ctx context.Context) error {
	folder, err := x.folder(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(x.job.Site, 0o700); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	r, w := io.Pipe()
	said := lastlines.OfOutput(lastBytes)
	go func() {
		code, err := x.cfg.Engine.Exec(ctx, x.id, engine.Cmd{
			Whole: true,
			Args:  []string{"tar", "-C", path.Join(x.dir(), folder), "-cf", "-", "."},
			User:  x.user(),
		}, w, said)
		if err == nil && code != 0 {
			err = fault(x.job, "the folder to publish, %q, could not be read%s", folder, said.Phrase())
		}
		w.CloseWithError(err)
	}()
	lost, err := archive.Unpack(ctx, r, x.job.Site, x.cfg.Sites)
	r.CloseWithError(err)
	if unfit, ok := errors.AsType[*stack.Error](err); ok {
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

// folder returns the folder to publish below the service's own; it searches the
// container if the manifest names none.
func (x *box) folder(ctx context.Context) (string, error) {
	if x.job.Spec.Publish != "" {
		return x.checkFolder(ctx, x.job.Spec.Publish)
	}
	script := "for d in " + strings.Join(runtimes.PublishFolders, " ") + `; do
		f=$(find "$d" -maxdepth 3 -name node_modules -prune -o -name index.html -print 2>/dev/null | awk '{ print length, $0 }' | sort -n | head -n 1 | cut -d " " -f 2-)
		if [ -n "$f" ]; then dirname "$f"; exit; fi
	done`
	out, code, err := engine.Answer(ctx, x.cfg.Engine, x.id, engine.Cmd{Args: []string{"sh", "-c", script}, User: x.user(), Dir: x.dir()})
	if err != nil {
		return "", err
	}
	folder := strings.TrimSpace(out)
	if code != 0 || folder == "" {
		return "", fault(x.job, "the build left no index.html in any of %s; set publish to the folder that it writes", publishFolders)
	}
	return folder, nil
}

func (x *box) checkFolder(ctx context.Context, folder string) (string, error) {
	// find ends with an error when there is no such folder.
	first, code, err := engine.Answer(ctx, x.cfg.Engine, x.id, engine.Cmd{
		Args: []string{"find", folder + "/", "-not", "-type", "d", "-print", "-quit"},
		User: x.user(), Dir: x.dir(),
	})
	if err != nil {
		return "", err
	}
	if code != 0 {
		return "", fault(x.job, "the build left no folder %q; set publish to the folder that it writes", folder)
	}
	if first == "" {
		return "", noFiles(x.job, folder)
	}
	return folder, nil
}

// maxPaths limits the paths of a site, in bytes of all of them: they are in memory
// while it is served.
const maxPaths = 16 << 20

// measure counts the files of a folder and the bytes of all paths below it.
func measure(dir string) (files, paths int, err error) {
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		paths += len(name) - len(dir)
		return err
	})
	return files, paths, err
}
