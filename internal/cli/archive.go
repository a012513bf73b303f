package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/go-units"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/pack"
)

// origin is the source of a deploy.
type origin struct {
	path     string // a folder, an archive, or - for an archive on standard input
	include  []string
	manifest string // a file to use instead of the folder's manifest; "" for none
}

// spool is an archive in a temporary file, so that its size is known and it can
// be sent twice.
type spool struct {
	from    origin
	file    *os.File
	form    client.Upload // of a request with this archive
	leftOut []string
	files   map[string]pack.File // of the whole folder; nil for an archive
}

// newSpool makes the temporary file of an archive.
func newSpool(o origin) (*spool, error) {
	f, err := os.CreateTemp("", "berth-*.tar.gz")
	if err != nil {
		return nil, fmt.Errorf("create a temporary archive: %w", err)
	}
	return &spool{from: o, file: f}, nil
}

// folder returns the key under which a stack from here is remembered: the folder or
// archive, or the working directory for standard input.
func (o origin) folder() (string, error) {
	if o.path == "-" {
		return folderKey(".")
	}
	return folderKey(o.path)
}

// archive packs the folder, or opens the archive as it is. The caller closes it.
func (a *app) archive(ctx context.Context, o origin) (_ *spool, err error) {
	info, statErr := os.Stat(o.path)
	if o.path != "-" && statErr != nil {
		return nil, usagef("there is no folder or archive %s", o.path)
	}
	s, err := newSpool(o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if o.path != "-" && info.IsDir() {
		err = s.pack(ctx, a.ui)
	} else {
		err = s.take(ctx, a.ui)
	}
	if err == nil {
		err = s.fillForm()
	}
	return s, err
}

func (s *spool) pack(ctx context.Context, u *ui) error {
	sum, err := pack.Write(ctx, s.from.path, s.from.include, s.file)
	if err != nil {
		return err
	}
	if sum.Files == 0 {
		return usagef("there is nothing to pack in %s%s", s.from.path, s.aside(" (left out: ", ")", sum.LeftOut))
	}
	s.leftOut, s.files = sum.LeftOut, sum.Packed
	s.sayPacked(u, sum)
	return nil
}

func (s *spool) sayPacked(u *ui, sum pack.Summary) {
	u.sayf("packed %s%s", filesOf(sum), s.aside(", left out ", "", sum.LeftOut))
}

func filesOf(sum pack.Summary) string {
	if sum.Files == 1 {
		return fmt.Sprintf("1 file (%s)", units.HumanSize(float64(sum.Bytes)))
	}
	return fmt.Sprintf("%d files (%s)", sum.Files, units.HumanSize(float64(sum.Bytes)))
}

// mostNamed is how many names a line lists.
const mostNamed = 6

// few lists the first of some names, and how many more there are.
func few(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		names = append(names[:mostNamed:mostNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// aside lists what was left out; "" if there is nothing to say.
func (s *spool) aside(before, after string, names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return filepath.Base(name) == ".git" })
	if len(names) == 0 {
		return ""
	}
	return before + few(names) + after
}

// missed returns what was left out and may be the reason for a refusal: with a
// manifest, only what the refusal names.
func (s *spool) missed(refusal string) []string {
	if s.form.Manifest == nil && manifestIn(s.from.path) == "" {
		return s.leftOut
	}
	return slices.DeleteFunc(slices.Clone(s.leftOut), func(name string) bool {
		return !strings.Contains(refusal, filepath.Base(name))
	})
}

func (s *spool) take(ctx context.Context, u *ui) error {
	if len(s.from.include) > 0 {
		return usagef("--include is for folders; an archive is sent as it is")
	}
	from := u.in
	if s.from.path != "-" {
		file, err := os.Open(s.from.path)
		if err != nil {
			return err
		}
		defer file.Close()
		from = file
	}
	n, err := interruptible(ctx, func() (int64, error) { return io.Copy(s.file, from) })
	if err == nil && n == 0 {
		return usagef("the archive is empty; send one like this: tar -cz . | berth deploy -")
	}
	return err
}

// Close removes the file.
func (s *spool) Close() error {
	s.file.Close()
	return os.Remove(s.file.Name())
}

// fillForm makes the form when the archive has been written.
func (s *spool) fillForm() (err error) {
	s.form.Archive = s.file
	if s.form.Size, err = s.file.Seek(0, io.SeekCurrent); err != nil || s.from.manifest == "" {
		return err
	}
	s.form.ManifestName = filepath.Base(s.from.manifest)
	if s.form.Manifest, err = os.ReadFile(s.from.manifest); err != nil {
		return usagef("--manifest: %v", err)
	}
	return nil
}
