package archive

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/go-units"

	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// Limits limit what one archive may become on disk.
type Limits struct {
	MaxUnpacked int64 // bytes of all files; a sparse file and a hard link count in full
	MaxEntries  int   // entries of every kind, dropped ones and folders that only stand in other names included

	// Room is called before each entry and each block is written; if it fails,
	// unpacking ends. Nil means that there is always room.
	Room func() error
}

// Unpack reads a tar or tar.gz from r into dir, which must exist and be empty.
//
// Files and folders keep their executable bits and lose set-id, sticky and foreign
// write bits; files keep their time unless it lies in the future. Unpack drops symlinks
// that lead out of the project (see Root) or form a circle, devices, FIFOs and sockets,
// and returns the first of them for the build log. Any other fault is an Unprocessable
// *stack.Error that names the entry. After any error dir is empty again. A cancelled
// ctx ends Unpack within one block.
func Unpack(ctx context.Context, r io.Reader, dir string, lim Limits) ([]stack.Lost, error) {
	u, err := unpack(ctx, r, dir, unpacker{lim: lim})
	if err != nil {
		return nil, err
	}
	return u.lost.list(), nil
}

// unpack unpacks an archive with u, in which the caller has set what to unpack.
func unpack(ctx context.Context, r io.Reader, dir string, u unpacker) (*unpacker, error) {
	root, err := openEmpty(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u.root, u.tree, u.now, u.buf, u.howTo = root, newFileTree(), time.Now(), make([]byte, blockSize), howTo
	err = u.unpack(ctx, r)
	u.leave()
	if err == nil && u.sum != nil {
		u.made, err = u.tree.entries()
	}
	if err == nil {
		return &u, nil
	}
	if left := removeContent(root); left != nil {
		return nil, errors.Join(err, left)
	}
	return nil, err
}

// blockSize is how much is read and written at once.
const blockSize = 128 << 10

// openEmpty opens dir and checks that it is empty, since on failure its whole content
// is removed.
func openEmpty(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("unpack: %w", err)
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("folder %s is not empty", dir)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("unpack: %w", err)
	}
	return root, nil
}

func removeContent(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("clear a refused upload: %w", err)
	}
	for _, e := range entries {
		if err := root.RemoveAll(e.Name()); err != nil {
			return fmt.Errorf("clear a refused upload: %w", err)
		}
	}
	return nil
}

// unpacker unpacks one archive to disk.
type unpacker struct {
	lim  Limits
	root *os.Root
	tree *fileTree // what the archive has made so far; links are on disk only at the end
	in   *meter
	tr   *tar.Reader
	now  time.Time
	buf  []byte

	howTo string // what to do about a foreignError

	sum  hash.Hash // of the current file; nil unless the entries are asked for
	made []Entry   // if they are, once all is unpacked
	once bool      // a path may be named only once, and links are left to the caller

	at       string // name of the latest entry; "" before the first
	entries  int
	unpacked int64
	names    int // bytes of names and of symlinks' targets
	lost     losses

	here *fileNode // folder that dir holds open, so that its files cost one step each
	dir  *os.Root
}

func (u *unpacker) unpack(ctx context.Context, r io.Reader) error {
	in, err := openStream(ctx, r, int64(u.lim.MaxEntries)*headerBudget+baseBudget)
	if err != nil {
		return u.explain(err)
	}
	u.in, u.tr = in, tar.NewReader(in)
	for {
		h, err := u.tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return u.explain(err)
		}
		if err := u.entry(h); err != nil {
			return err
		}
		failpoint.Here("entry-extracted")
	}
	if err := u.in.finish(); err != nil {
		return u.explain(err)
	}
	if u.once {
		return nil
	}
	if u.tree.files == 0 {
		return badArchive("the archive is empty; %s", howTo)
	}
	return u.makeLinks()
}

// explain words an error of the stream. What the reader or ctx reported is not the
// archive's fault and is returned as it is; everything else is.
func (u *unpacker) explain(err error) error {
	var upload *uploadError
	var fault *streamFault
	var foreign *foreignError
	var refusal *stack.Error
	switch {
	case errors.As(err, &upload):
		return fmt.Errorf("unpack: %w", upload.err)
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &foreign):
		return badArchive("%s; %s", foreign.what, u.howTo)
	case errors.As(err, &fault):
		return badArchive("the archive %s%s", fault.what, u.position())
	case errors.Is(err, io.ErrUnexpectedEOF):
		return badArchive("the archive is cut short%s; send it again, whole", u.position())
	case errors.Is(err, tar.ErrHeader) && u.at == "":
		return u.explain(errNotTar)
	case errors.Is(err, tar.ErrFieldTooLong):
		return badArchive("the archive has a header of over 1 MiB%s", u.position())
	default:
		return badArchive("the archive is damaged%s: a tar header is not valid", u.position())
	}
}

func (u *unpacker) position() string {
	if u.at == "" {
		return " before its first entry"
	}
	return " after the entry " + safetext.Quote(u.at)
}

// charge counts size bytes against the limit before any of them is read.
func (u *unpacker) charge(size int64) error {
	if size > u.lim.MaxUnpacked-u.unpacked {
		return badArchive("the entry %s (%s) takes the archive over the limit of %s unpacked",
			safetext.Quote(u.at), units.HumanSize(float64(size)), units.HumanSize(float64(u.lim.MaxUnpacked)))
	}
	u.unpacked += size
	return nil
}

// room returns why no more may be written; nil if it may.
func (u *unpacker) room() error {
	if u.lim.Room == nil {
		return nil
	}
	return wrapDisk(u.lim.Room())
}

// count counts one entry, or one folder that no entry announced, and checks that there
// is room for it.
func (u *unpacker) count() error {
	if u.entries++; u.entries > u.lim.MaxEntries {
		return badArchive("with the entry %s the archive has more than the %d files and folders allowed; leave out what the build installs, such as node_modules",
			safetext.Quote(u.at), u.lim.MaxEntries)
	}
	return u.room()
}

// chargeName counts a name, or the target of a symlink, against the limit on their
// memory.
func (u *unpacker) chargeName(name string) error {
	if u.names += len(name); u.names > MaxNames {
		return badArchive("with the entry %s the names in the archive take more than %d MiB together, the targets of symlinks included; shorten them, or leave out what the build installs, such as node_modules",
			safetext.Quote(u.at), MaxNames>>20)
	}
	return nil
}

// howTo ends every refusal of a source that is not a tar or tar.gz.
const howTo = "make one in the project's folder with: tar -czf - . > /tmp/source.tar.gz"

func badArchive(format string, args ...any) error {
	return stack.NewError(stack.Unprocessable, fmt.Sprintf(format, args...))
}

// Root finds the project in an unpacked archive: dir itself, or, if the archive holds
// one folder and nothing else, that folder. It also returns the folder's name, "" for
// dir itself. It ignores what macOS adds beside files.
func Root(dir string) (root, name string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", "", fmt.Errorf("find the project's folder: %w", err)
	}
	for _, e := range entries {
		switch {
		case isNoise(e.Name()):
		case name == "" && e.IsDir():
			name = e.Name()
		default:
			return dir, "", nil
		}
	}
	return filepath.Join(dir, name), name, nil
}

// isNoise reports whether macOS, not the user, put name into a folder.
func isNoise(name string) bool {
	return strings.HasPrefix(name, "._") || name == ".DS_Store" || name == "__MACOSX"
}
