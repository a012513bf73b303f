package source

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/disk"
)

// The listing is a text: a heading, the manifest, a line for each entry, and the hash of
// all that.
const (
	heading  = "berth source 1\n"
	noGiven  = "-"
	trailer  = "sum "
	fileKind = "f"
	dirKind  = "d"
	linkKind = "l"
)

func listing(dir string) string { return filepath.Join(dir, "listing") }

// Save writes the listing with the request's manifest beside the tree. It returns once
// the listing is on disk, and, of what Overlay made, everything: the folders and the few
// files that are not on disk yet. A whole source is synced by whoever keeps it, which can
// be done beside the build.
func (s *Source) Save(m Manifest) error {
	s.manifest = m
	text := s.text()
	f, err := os.OpenFile(listing(s.dir), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("save the listing of a source: %w", err)
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil && s.laid {
		err = s.sync()
	}
	if err != nil {
		return fmt.Errorf("save the listing of a source: %w", err)
	}
	return nil
}

// syncsAtOnce is how many folders and files are synced in parallel: a file system
// combines the waiting ones in one write of its journal.
const syncsAtOnce = 64

// sync returns once the folders, and the files that are not links, are on disk.
func (s *Source) sync() error {
	var group errgroup.Group
	group.SetLimit(syncsAtOnce)
	add := func(name string) { group.Go(func() error { return disk.Sync(name) }) }
	add(s.dir)
	add(s.Tree())
	for i := range s.entries {
		if s.entries[i].Mode.IsDir() {
			add(filepath.Join(s.Tree(), s.entries[i].Path))
		}
	}
	for _, name := range s.written {
		add(filepath.Join(s.Tree(), name))
	}
	return group.Wait()
}

// text returns the listing.
func (s *Source) text() []byte {
	text := make([]byte, 0, 160*len(s.entries)+len(s.manifest.Sealed)+len(heading)+2*sha256.Size)
	text = append(text, heading...)
	if s.manifest.Sealed == nil {
		text = append(text, noGiven...)
	} else {
		text = strconv.AppendQuote(text, s.manifest.Name)
		text = append(text, ' ')
		text = strconv.AppendQuote(text, string(s.manifest.Sealed))
	}
	text = append(text, '\n')
	for i := range s.entries {
		text = strconv.AppendInt(text, s.entries[i].Modified, 10)
		text = append(text, ' ')
		text = append(appendEntry(text, &s.entries[i]), '\n')
	}
	sum := sha256.Sum256(text)
	return append(text, trailer+hex.EncodeToString(sum[:])+"\n"...)
}

// appendEntry appends an entry as it counts in the digest: all but a file's time. A path
// does not contain control characters, so it is not quoted.
func appendEntry(text []byte, e *Entry) []byte {
	switch {
	case e.Mode.IsDir():
		text = append(text, dirKind...)
		text = strconv.AppendUint(text, uint64(e.Mode.Perm()), 8)
	case e.Mode&fs.ModeSymlink != 0:
		text = append(text, linkKind...)
		text = strconv.AppendQuoteToASCII(text, e.Target)
	default:
		text = append(text, fileKind...)
		text = strconv.AppendUint(text, uint64(e.Mode.Perm()), 8)
		text = append(text, ' ')
		text = strconv.AppendInt(text, e.Size, 10)
		text = append(text, ' ')
		text = hex.AppendEncode(text, e.Sum[:])
	}
	text = append(text, ' ')
	return append(text, e.Path...)
}

// Load returns the source that was saved in dir, whose digest must be the given one. A
// listing that is missing, damaged or another one is an error of kind Conflict.
func Load(dir, digest string) (*Source, error) {
	text, err := os.ReadFile(listing(dir))
	if err != nil {
		return nil, damaged(err)
	}
	s, err := parse(dir, text)
	if err != nil {
		return nil, damaged(err)
	}
	if s.digest != digest {
		return nil, damaged(fmt.Errorf("%s has the digest %s, not %s", listing(dir), s.digest, digest))
	}
	return s, nil
}

var errListing = errors.New("the listing of a source is not as it was written")

// parse reads a listing.
func parse(dir string, text []byte) (*Source, error) {
	end := bytes.LastIndex(text, []byte("\n"+trailer)) + 1
	sum := sha256.Sum256(text[:end])
	if string(text[end:]) != trailer+hex.EncodeToString(sum[:])+"\n" {
		return nil, errListing
	}
	rest, ok := strings.CutPrefix(string(text[:end]), heading)
	given, rest, found := strings.Cut(rest, "\n")
	if !ok || !found {
		return nil, errListing
	}
	m, err := parseManifest(given)
	if err != nil {
		return nil, err
	}
	entries, err := parseEntries(rest)
	if err != nil {
		return nil, err
	}
	s := newSource(dir, entries)
	s.manifest = m
	return s, nil
}

func parseManifest(line string) (Manifest, error) {
	if line == noGiven {
		return Manifest{}, nil
	}
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		return Manifest{}, errListing
	}
	name, err := strconv.Unquote(quoted)
	if err != nil {
		return Manifest{}, errListing
	}
	text, err := strconv.Unquote(strings.TrimPrefix(line[len(quoted):], " "))
	return Manifest{Name: name, Sealed: []byte(text)}, err
}

func parseEntries(lines string) ([]Entry, error) {
	entries := make([]Entry, 0, strings.Count(lines, "\n"))
	for line := range strings.Lines(lines) {
		modified, line, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		e, err := parseEntry(line)
		if err != nil {
			return nil, err
		}
		if e.Modified, err = strconv.ParseInt(modified, 10, 64); err != nil {
			return nil, errListing
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// parseEntry reads what appendEntry wrote.
func parseEntry(line string) (e Entry, err error) {
	if len(line) == 0 {
		return Entry{}, errListing
	}
	if line[:1] == linkKind {
		return parseLink(line[1:])
	}
	perm, rest, _ := strings.Cut(line[1:], " ")
	mode, err := strconv.ParseUint(perm, 8, 9)
	if err != nil {
		return Entry{}, errListing
	}
	if line[:1] == dirKind {
		return Entry{Path: rest, Mode: fs.ModeDir | fs.FileMode(mode)}, nil
	}
	size, rest, _ := strings.Cut(rest, " ")
	sum, path, _ := strings.Cut(rest, " ")
	e = Entry{Path: path, Mode: fs.FileMode(mode)}
	if n, err := hex.Decode(e.Sum[:], []byte(sum)); err != nil || n != len(e.Sum) {
		return Entry{}, errListing
	}
	if e.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
		return Entry{}, errListing
	}
	return e, nil
}

func parseLink(line string) (Entry, error) {
	quoted, err := strconv.QuotedPrefix(line)
	if err != nil {
		return Entry{}, errListing
	}
	target, err := strconv.Unquote(quoted)
	if err != nil {
		return Entry{}, errListing
	}
	return Entry{Path: strings.TrimPrefix(line[len(quoted):], " "), Mode: fs.ModeSymlink | 0o777, Target: target}, nil
}
