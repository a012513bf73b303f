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
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// publishSource makes the site a link to a folder of the source itself: nothing has run
// that could have changed its files.
func publishSource(job Job) error {
	src, err := source.Load(job.Source, job.Digest)
	if err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	folder, at, err := job.sourceFolder()
	if err != nil {
		return err
	}
	if err := job.linkSite(at); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	failpoint.Here("site-linked")
	files, paths := measureSource(src, at)
	return job.published(folder, files, paths)
}

// sourceFolder returns the folder of the source to publish: as the manifest names it,
// below the service's own, and as a path in the tree. If it is a link, the path is that of
// the folder that it leads to.
func (j *Job) sourceFolder() (folder, at string, err error) {
	root, err := os.OpenRoot(filepath.Join(source.Tree(j.Source), filepath.FromSlash(j.Spec.Root)))
	if err != nil {
		return "", "", fmt.Errorf("open the service's folder: %w", err)
	}
	defer root.Close()
	folder = j.Spec.Publish
	if folder == "" {
		if folder = runtimes.FindPublish(root.FS()); folder == "" {
			return "", "", fault(*j, "no index.html in any of %s; set publish to the folder to serve", publishFolders)
		}
	}
	if info, err := root.Stat(folder); err != nil || !info.IsDir() {
		return "", "", fault(*j, "the folder to publish, %q, is not in the source; set publish to one that is", folder)
	}
	if _, at, err = follow(filepath.Join(root.Name(), filepath.FromSlash(folder)), j.Source); err != nil {
		return "", "", fmt.Errorf("publish: %w", err)
	}
	return folder, at, nil
}

// linkSite makes the site a relative link to a folder of the source's tree.
func (j *Job) linkSite(at string) error {
	parent := filepath.Dir(j.Site)
	to, err := filepath.Rel(parent, filepath.Join(source.Tree(j.Source), at))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	return os.Symlink(to, j.Site)
}

// Linked returns the folder that a site serves which is a link into a source, and the
// names in it that are not served. It refuses a link that leads elsewhere.
func Linked(site, src string) (dir string, hidden []string, err error) {
	dir, at, err := follow(site, src)
	if err != nil {
		return "", nil, fmt.Errorf("follow the link of a site: %w", err)
	}
	return dir, hiddenIn(at), nil
}

// follow returns the folder or file that a path leads to, and where that is in the tree of
// a source; "." for the tree itself.
func follow(name, src string) (dir, at string, err error) {
	tree, err := filepath.EvalSymlinks(source.Tree(src))
	if err != nil {
		return "", "", err
	}
	if dir, err = filepath.EvalSymlinks(name); err != nil {
		return "", "", err
	}
	if at, err = filepath.Rel(tree, dir); err != nil || !filepath.IsLocal(at) {
		return "", "", fmt.Errorf("%s leads to %s, which is not in %s", name, dir, tree)
	}
	return dir, at, nil
}

// hiddenIn returns the names of files that are not published from a folder of the source,
// given by its path: those of the manifest, which describes other services too, if that is
// the archive's root.
func hiddenIn(folder string) []string {
	if folder == "." {
		return manifest.Files
	}
	return nil
}

// published records what is served, by number of files and bytes of all paths, and
// refuses an empty folder.
func (j *Job) published(folder string, files, paths int) error {
	switch {
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
			Args:  []string{"sh", "-c", fmt.Sprintf(`cd -- "$1" || exit %d; exec tar -cf - .`, noFolder), "sh", folder},
			User:  x.user(),
			Dir:   x.dir(),
		}, w, said)
		switch {
		case err == nil && code == noFolder:
			err = fault(x.job, "the build left no folder %q; set publish to the folder that it writes", folder)
		case err == nil && code != 0:
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
	for _, name := range hiddenIn(path.Join(x.job.Spec.Root, folder)) {
		if err := os.Remove(filepath.Join(x.job.Site, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("publish: %w", err)
		}
	}
	files, paths, err := measure(x.job.Site)
	if err != nil {
		return err
	}
	return x.job.published(folder, files, paths)
}

// noFolder is the exit code if the folder cannot be entered. tar never ends with it.
const noFolder = 66

// folder returns the folder to publish below the service's own; it searches the
// container if the manifest names none.
func (x *box) folder(ctx context.Context) (string, error) {
	if x.job.Spec.Publish != "" {
		return x.job.Spec.Publish, nil
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

// measureSource is measure for what is published from a folder of a source's tree.
func measureSource(src *source.Source, at string) (files, paths int) {
	folder, skip := at, len(at)+1
	if at == "." {
		folder, skip = "", 0
	}
	hidden := hiddenIn(at)
	for _, e := range src.Below(folder) {
		name := e.Path[skip:]
		if first, _, _ := strings.Cut(name, "/"); slices.Contains(hidden, first) {
			continue
		}
		if !e.Mode.IsDir() {
			files++
		}
		paths += len(name) + 1 // with the slash before it
	}
	return files, paths
}
