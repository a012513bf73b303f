package archive

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/docker/go-units"
	"github.com/klauspost/compress/gzip"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// DataLimits limit what an archive of a service's data may become.
type DataLimits struct {
	MaxBytes   int64 // of all files; a sparse file counts in full
	MaxEntries int   // of every kind, dropped ones included

	// Root is the path at which a program finds the data: an absolute symlink may lead
	// there.
	Root string
	// Room is called now and then with how many bytes there are so far; if it fails, the
	// copying ends. Nil means that there is always room.
	Room func(bytes int64) error
}

func (lim *DataLimits) room(bytes int64) error {
	if lim.Room == nil {
		return nil
	}
	return lim.Room(bytes)
}

// CopyData reads a tar or tar.gz of a service's data from r and writes it to w as a tar
// that is safe to unpack: names are relative, in their shortest form, nothing leads out,
// and owners, set-id bits, devices and FIFOs are gone. A symlink may still lead out through
// others, which shows once all is unpacked. It holds one block in memory. An
// archive that is empty, foreign, cut short or damaged, or in which a name or a link leads
// out, is an Unprocessable *stack.Error, and one over the limits a TooLarge one.
func CopyData(ctx context.Context, w io.Writer, r io.Reader, lim DataLimits) error {
	in, err := openStream(ctx, r, int64(lim.MaxEntries)*headerBudget+baseBudget)
	u := unpacker{in: in, howTo: howToData} // for how it words faults
	if err != nil {
		return u.explain(err)
	}
	c := dataCopy{lim: lim, from: u, in: tar.NewReader(in), out: tar.NewWriter(w), buf: make([]byte, blockSize), seed: maphash.MakeSeed(), dropped: map[uint64]bool{}}
	for {
		h, err := c.in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return c.from.explain(err)
		}
		if err := c.entry(h); err != nil {
			return err
		}
	}
	if err := in.finish(); err != nil {
		return c.from.explain(err)
	}
	if c.entries == 0 {
		return badArchive("the archive is empty: it has no entry, not even for the folder itself; %s", howToData)
	}
	return c.out.Close()
}

// DumpFormat is the format of the dumps of a database.
type DumpFormat struct {
	Magic string // how they begin
	HowTo string // what is wrong with one that does not, and how to make one
}

// CopyDump copies the dump of a database from r to w. One that is empty or of another format
// is an Unprocessable *stack.Error, and one over the limit of bytes a TooLarge one.
func CopyDump(ctx context.Context, w io.Writer, r io.Reader, format DumpFormat, lim DataLimits) error {
	in, buf, size := bufio.NewReader(r), make([]byte, blockSize), int64(0)
	switch head, err := in.Peek(len(format.Magic)); {
	case err != nil && err != io.EOF:
		return err
	case len(head) > 0 && string(head) != format.Magic:
		return stack.NewError(stack.Unprocessable, format.HowTo)
	}
	for {
		n, err := in.Read(buf)
		if size += int64(n); size > lim.MaxBytes {
			return stack.NewError(stack.TooLarge, fmt.Sprintf("the dump is larger than %s", units.HumanSize(float64(lim.MaxBytes))))
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		switch {
		case err == io.EOF && size == 0:
			return stack.NewError(stack.Unprocessable, "the dump is empty")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := cmp.Or(context.Cause(ctx), lim.room(size)); err != nil {
			return err
		}
	}
}

// howToData ends the refusals of archives that a tool made another way.
const howToData = "make one in the folder with the data with: tar -czf /tmp/data.tar.gz ."

// dataCopy copies one archive of data.
type dataCopy struct {
	lim     DataLimits
	from    unpacker
	in      *tar.Reader
	out     *tar.Writer
	buf     []byte
	entries int
	bytes   int64
	seed    maphash.Seed
	dropped map[uint64]bool // hashes of the names of what is no file, so that hard links to it are dropped, too
}

// entry copies one entry, drops it, or refuses it.
func (c *dataCopy) entry(h *tar.Header) error {
	c.from.at = h.Name
	if err := c.count(h); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeXGlobalHeader || h.Typeflag == typeVolume {
		return nil
	}
	parts, err := splitName(h.Name)
	if err != nil {
		return c.from.explain(err)
	}
	clean := tar.Header{Typeflag: h.Typeflag, Name: path.Join(parts...), Mode: h.Mode & 0o777, ModTime: h.ModTime}
	switch {
	case isFolder(h):
		if len(parts) == 0 {
			return nil // the data's own folder, which is there
		}
		clean.Typeflag, clean.Name = tar.TypeDir, clean.Name+"/"
		clean.Mode |= 0o700
	case len(parts) == 0:
		return badArchive("the entry %s stands for the archive's root and must be a folder", safetext.Quote(h.Name))
	case h.Typeflag == tar.TypeReg || h.Typeflag == tar.TypeCont || h.Typeflag == tar.TypeGNUSparse:
		clean.Typeflag, clean.Size = tar.TypeReg, h.Size
	case h.Typeflag == tar.TypeSymlink:
		clean.Linkname, err = c.symlink(parts, h)
	case h.Typeflag == tar.TypeLink:
		clean.Linkname, err = hardLink(h)
		if c.dropped[maphash.String(c.seed, clean.Linkname)] {
			return nil
		}
	case h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeFifo:
		c.dropped[maphash.String(c.seed, clean.Name)] = true
		return nil
	default:
		err = badArchive("the entry %s is of the unknown type %q", safetext.Quote(h.Name), h.Typeflag)
	}
	if err != nil {
		return err
	}
	return c.write(&clean)
}

// count counts an entry and its bytes against the limits.
func (c *dataCopy) count(h *tar.Header) error {
	if c.entries++; c.entries > c.lim.MaxEntries {
		return stack.NewError(stack.TooLarge, fmt.Sprintf("with the entry %s the archive has more than the %d files and folders allowed", safetext.Quote(h.Name), c.lim.MaxEntries))
	}
	if h.Size > c.lim.MaxBytes-c.bytes {
		return stack.NewError(stack.TooLarge, fmt.Sprintf("the entry %s (%s) takes the archive over the limit of %s unpacked",
			safetext.Quote(h.Name), units.HumanSize(float64(h.Size)), units.HumanSize(float64(c.lim.MaxBytes))))
	}
	c.bytes += h.Size
	return c.lim.room(c.bytes)
}

// symlink returns the target of a symlink, which must not lead out of the data.
func (c *dataCopy) symlink(parts []string, h *tar.Header) (string, error) {
	target := h.Linkname
	if target == "" || len(target) > maxTarget || strings.ContainsRune(target, 0) {
		return "", badArchive("the entry %s is a symlink with a target of %d bytes; 1 to %d are allowed", safetext.Quote(h.Name), len(target), maxTarget)
	}
	if leadsOut(path.Join(parts...), target, c.lim.Root) {
		return "", badArchive("the entry %s is a symlink to %s, which leads out of the data; leave it out, or put a copy in its place", safetext.Quote(h.Name), safetext.Quote(target))
	}
	return target, nil
}

// leadsOut reports whether a symlink of data leads out of it; root is where programs find the data.
func leadsOut(name, target, root string) bool {
	to := path.Clean(path.Join(path.Dir(name), target))
	if path.IsAbs(target) {
		rest, inside := strings.CutPrefix(path.Clean(target)+"/", root+"/")
		if to = path.Clean(rest); !inside {
			return true
		}
	}
	return to == ".." || strings.HasPrefix(to, "../")
}

// hardLink returns the target of a hard link, which must be in the archive.
func hardLink(h *tar.Header) (string, error) {
	to, err := splitName(h.Linkname)
	if err != nil || len(to) == 0 {
		return "", badArchive("the entry %s is a hard link to %s, which is not in the archive", safetext.Quote(h.Name), safetext.Quote(h.Linkname))
	}
	return path.Join(to...), nil
}

// write writes an entry, and what it holds.
func (c *dataCopy) write(h *tar.Header) error {
	if err := c.out.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg {
		return nil
	}
	c.from.in.free = true // bounded by the size that was counted
	defer func() { c.from.in.free = false }()
	for {
		if err := c.from.in.stopped(); err != nil { // a sparse file's holes never reach the stream
			return c.from.explain(err)
		}
		n, err := c.in.Read(c.buf)
		if n > 0 {
			if err := c.lim.room(c.bytes); err != nil {
				return err
			}
			if _, err := c.out.Write(c.buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return c.from.explain(err)
		}
	}
}

// PackData reads a tar whose names all begin with a folder, and writes it to w as a tar.gz
// whose names are relative to that folder and whose owners are nobody's. Programs find the data
// at root. Symlinks that lead out of it, or may do so through others, are left out, so that what
// is written can be unpacked as data again; it holds the targets of symlinks in memory, 64 MB at
// most. It writes no end after an error.
func PackData(w io.Writer, r io.Reader, folder, root string) error {
	in, zip := tar.NewReader(r), gzip.NewWriter(w)
	out, links := tar.NewWriter(zip), newDataLinks(root)
	for {
		h, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		h.Name = relativeTo(folder, h.Name)
		if h.Typeflag == tar.TypeLink {
			h.Linkname = relativeTo(folder, h.Linkname)
			links.resolve(h)
		}
		h.Uid, h.Gid, h.Uname, h.Gname = 0, 0, "", ""
		if h.Typeflag == tar.TypeSymlink && !links.add(h) {
			continue
		}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	for _, h := range links.late() {
		if err := out.WriteHeader(h); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}

// dataLinks are the symlinks of data whose names go through none of them. If the target of each
// stays inside by its text, and goes up from folders only, none leads out: each link that it
// meets leads to a place inside, and from there it goes down.
type dataLinks struct {
	root    string
	seed    maphash.Seed
	targets map[uint64]string // by the hashes of their paths
	held    int               // bytes that these take
	waiting []*tar.Header     // those that go down before they go up
	bytes   int               // of the names and targets that wait
}

const (
	// maxHeld is how many bytes the targets of symlinks take.
	maxHeld = 64 << 20
	// aTarget is how many bytes a target takes beside its text.
	aTarget = 64
	// maxWaiting is how many bytes of names and targets wait; more are left out.
	maxWaiting = 1 << 20
)

func newDataLinks(root string) *dataLinks {
	return &dataLinks{root: root, seed: maphash.MakeSeed(), targets: map[uint64]string{}}
}

// resolve makes a symlink of a hard link to one: the symlink may be left out, and another name may
// lead elsewhere.
func (l *dataLinks) resolve(h *tar.Header) {
	if target, isLink := l.targets[l.hash(path.Join(l.root, h.Linkname))]; isLink {
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	}
}

func (l *dataLinks) hash(place string) uint64 { return maphash.String(l.seed, place) }

// add reports whether a symlink leads to a place inside whatever the others are.
func (l *dataLinks) add(h *tar.Header) bool {
	if l.held += aTarget + len(h.Linkname); l.held <= maxHeld {
		l.targets[l.hash(path.Join(l.root, h.Name))] = h.Linkname
	}
	if leadsOut(h.Name, h.Linkname, l.root) {
		return false
	}
	if !turnsUp(h.Linkname) {
		return true
	}
	if l.bytes += len(h.Name) + len(h.Linkname); l.bytes <= maxWaiting {
		l.waiting = append(l.waiting, h)
	}
	return false
}

// late returns the symlinks that wait and lead to a place inside, once all are added.
func (l *dataLinks) late() []*tar.Header {
	if l.held > maxHeld {
		return nil // they may go through others
	}
	return slices.DeleteFunc(l.waiting, func(h *tar.Header) bool {
		return slices.ContainsFunc(l.turns(h), func(place string) bool {
			_, isLink := l.targets[l.hash(place)]
			return isLink
		})
	})
}

// turnsUp reports whether the target of a symlink goes down before it goes up.
func turnsUp(target string) bool {
	down := false
	for step := range strings.SplitSeq(target, "/") {
		if step == ".." && down {
			return true
		}
		down = down || step != "" && step != "." && step != ".."
	}
	return false
}

// turns returns the places to which a symlink goes down before it goes up for the last time.
func (l *dataLinks) turns(h *tar.Header) (places []string) {
	at := path.Join(l.root, path.Dir(h.Name))
	if path.IsAbs(h.Linkname) {
		at = "/"
	}
	steps := strings.Split(h.Linkname, "/")
	for ; len(steps) > 0 && steps[len(steps)-1] != ".."; steps = steps[:len(steps)-1] {
	}
	for _, step := range steps {
		if at = path.Join(at, step); step != ".." {
			places = append(places, at)
		}
	}
	return places
}

// relativeTo returns a name of a tar without its folder; the folder itself is ".".
func relativeTo(folder, name string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
	if rest == "" {
		return "./"
	}
	return rest
}
