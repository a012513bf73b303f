// Package backup is the format of a backup: what is in it, how it is checked, encrypted and
// unpacked. It knows files with names, and neither stacks nor the engine.
//
// A backup is one tar, or a folder with the same files. Its last file, manifest.json, names the
// moment that the backup stands for and every entry with its sum. A tar may be written while it
// streams, so the manifest comes last; after it comes one file of fixed size with the sum of all
// that is before it, by which a reader knows a changed byte or a missing end anywhere. A tar may
// be encrypted as a whole, in the format of age. Whoever restores one reads it twice: first to
// check all sums, and then to write.
package backup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// format is the number of the format; it changes when an earlier berthd could not read it.
const format = 1

// Names of the files that say what the others are.
const (
	manifestName = "manifest.json"
	sumName      = "manifest.json.sha256"
)

// Manifest says what a backup has.
type Manifest struct {
	Format   int       `json:"format"`
	At       time.Time `json:"at"`             // the moment it stands for
	Version  string    `json:"version"`        // of the berthd that made it
	Instance string    `json:"instance"`       // id of the installation
	Key      string    `json:"key"`            // fingerprint of the installation's key
	Entries  []Entry   `json:"entries"`        // in the order of the archive
	Moving   []string  `json:"copied_running"` // entries copied while something wrote to them
	Missing  []string  `json:"missing"`        // what could not be read, with the reasons
}

// Entry is a file, a folder or a symbolic link of a backup.
type Entry struct {
	Name    string      `json:"name"` // relative, with slashes
	Mode    fs.FileMode `json:"mode"`
	ModTime time.Time   `json:"mod_time"`
	Size    int64       `json:"size"`
	Link    string      `json:"link,omitempty"`   // target of a symbolic link
	SHA256  string      `json:"sha256,omitempty"` // of a file, in hex; the writer sets it
}

// check refuses an entry that is not one of the three kinds, or whose name leads out of the folder
// that it is unpacked into. Where links lead is seen with all entries, by checkLinks.
func (e Entry) check() error {
	switch {
	case !filepath.IsLocal(e.Name) || e.Name == ".":
		return fmt.Errorf("the entry %q leads out of the data directory", e.Name)
	case path.Clean(e.Name) != e.Name:
		return fmt.Errorf("the entry %q does not have the shortest form of its name", e.Name)
	case e.Name == manifestName, e.Name == sumName:
		return fmt.Errorf("the entry %q has the name of the manifest", e.Name)
	case !e.Mode.IsRegular() && !e.Mode.IsDir() && e.Mode.Type() != fs.ModeSymlink:
		return fmt.Errorf("the entry %q is neither a file, a folder nor a link", e.Name)
	}
	return nil
}

// checkBelow refuses an entry that cannot be unpacked from a folder of the backup.
func (e Entry) checkBelow(from string) error {
	if e.Name == from && !e.Mode.IsDir() {
		return fmt.Errorf("the entry %q is not a folder", e.Name)
	}
	name, ok := strings.CutPrefix(e.Name, from+"/")
	if !ok {
		return nil
	}
	if top, _, _ := strings.Cut(name, "/"); top == unfinished {
		return fmt.Errorf("the entry %q has the name of the mark of a restore", e.Name)
	}
	return nil
}

// same reports whether two entries say the same of a file.
func (e Entry) same(other Entry) bool {
	timed := e.ModTime.Equal(other.ModTime)
	e.ModTime, other.ModTime = time.Time{}, time.Time{}
	return timed && e == other
}

// Has reports whether the backup has an entry.
func (m *Manifest) Has(name string) bool {
	return slices.ContainsFunc(m.Entries, func(e Entry) bool { return e.Name == name })
}

// encode returns the manifest's file.
func (m *Manifest) encode() ([]byte, error) {
	m.Format = format
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, fmt.Errorf("write the backup's manifest: %w", err)
	}
	return append(text, '\n'), nil
}

// decode reads the manifest's file.
func decode(text []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("the backup's manifest cannot be read: %w", err)
	}
	if m.Format != format {
		return nil, fmt.Errorf("the backup has format %d, and this berthd reads format %d; restore it with the berthd %s that made it", m.Format, format, m.Version)
	}
	return m, cmp.Or(m.checkNames(), m.checkLinks())
}

// checkNames refuses two entries of one name, and an entry below one that is not a folder.
func (m *Manifest) checkNames() error {
	isDir := map[string]bool{}
	for _, e := range m.Entries {
		if _, twice := isDir[e.Name]; twice {
			return fmt.Errorf("%w: %s is in it twice", errListed, e.Name)
		}
		isDir[e.Name] = e.Mode.IsDir()
	}
	for name := range isDir {
		for up := path.Dir(name); up != "."; up = path.Dir(up) {
			if dir, there := isDir[up]; there && !dir {
				return fmt.Errorf("%w: %s is below what is not a folder", errListed, name)
			}
		}
	}
	return nil
}

// Errors of a backup that is not as it was written.
var (
	errChanged = errors.New("the backup is cut off or was changed: its sum is not the one it was written with; use another backup")
	errListed  = errors.New("the backup was changed: its entries are not those of its manifest; use another backup")
)
