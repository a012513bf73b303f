package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/backup"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/operator"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/supervisor"
)

// Names of what a backup has: the data directory as a restored server finds it, and images.
const (
	backupDir    = "dir"
	backupImages = "images.tar"
)

// Names of entries that a restore may put elsewhere than into the data directory.
var (
	backedUpKey      = path.Join(backupDir, datadir.Dir("").Key())
	backedUpDatabase = path.Join(backupDir, datadir.Dir("").Database())
)

// HasDatabase reports whether a backup has the database: one of PostgreSQL it has not.
func HasDatabase(m *backup.Manifest) bool { return m.Has(backedUpDatabase) }

// MovingData returns the entries of a backup with data of services that something may have
// written to while it was copied.
func MovingData(m *backup.Manifest) (names []string) {
	for _, name := range m.Moving {
		if datadir.IsBackedUp(strings.TrimPrefix(name, backupDir+"/")) {
			names = append(names, name)
		}
	}
	return names
}

// backUp writes a backup to w. Its moment is that of the database: what is copied afterwards,
// files and data, is of that moment or later, and what deploys remove meanwhile stays until it
// is copied.
func (s *Server) backUp(ctx context.Context, what operator.Backup, w io.Writer) error {
	if !s.backingUp.CompareAndSwap(false, true) {
		return errors.New("another backup is being made; try again once it has ended")
	}
	defer s.backingUp.Store(false)
	key, err := auth.ReadKey(s.keyFile())
	if err != nil {
		return err
	}
	instance, err := s.instance(ctx)
	if err != nil {
		return err
	}
	temp, err := s.dir().TempDir()
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	defer s.supervisor.HoldFiles()()
	m := backup.Manifest{At: stack.Now(), Version: version(), Instance: instance, Key: key.Fingerprint()}
	r := &backupRun{server: s, what: what, archive: backup.NewArchive(w, m)}
	if s.databaseFile == "" { // PostgreSQL has a copy of its own made
		stacks, err := s.store.Kept(ctx, s.node())
		if err != nil {
			return err
		}
		if err := r.write(ctx, stacks); err != nil {
			return err
		}
		return r.archive.Close()
	}
	return r.withCopy(ctx, filepath.Join(temp, "berth.db"), key)
}

// backupRun is a backup that is being written.
type backupRun struct {
	server  *Server
	what    operator.Backup
	archive *backup.Archive
}

// withCopy writes a backup with a copy of the database, which is made at a path. Stacks that are
// deleted while the rest is written are deleted in it, too: their files are gone.
func (r *backupRun) withCopy(ctx context.Context, path string, key auth.Key) error {
	s := r.server
	if err := s.store.CopyFile(ctx, path); err != nil {
		return err
	}
	copied, err := store.Open(ctx, store.Options{Path: path, Sealer: auth.NewSealer(key), Log: s.log})
	if err != nil {
		return err
	}
	stacks, err := copied.Kept(ctx, s.node())
	if err == nil {
		err = r.write(ctx, stacks)
	}
	for _, st := range stacks {
		if err != nil {
			break
		}
		if _, getting := s.store.Get(ctx, st.ID); stack.KindOf(getting) == stack.NotFound {
			_, err = copied.Update(ctx, st.ID, func(st *stack.Stack) ([]stack.Event, error) { return st.Delete(stack.Now()) })
		} else {
			err = getting
		}
	}
	if err = errors.Join(err, copied.Close()); err != nil {
		return err
	}
	if err := r.addFile(path, backedUpDatabase); err != nil {
		return err
	}
	return r.archive.Close()
}

// write writes all but the database.
func (r *backupRun) write(ctx context.Context, stacks []*stack.Stack) error {
	for _, st := range stacks {
		if err := r.addData(ctx, st); err != nil {
			return err
		}
	}
	if r.what.Images {
		if err := r.addImages(ctx, stacks); err != nil {
			return err
		}
	}
	if err := r.addTree(); err != nil || !r.what.Secrets {
		return err
	}
	return r.addFile(r.server.keyFile(), backedUpKey)
}

// addData writes the data of a stack.
func (r *backupRun) addData(ctx context.Context, st *stack.Stack) error {
	dir := r.server.dir()
	missing, err := r.server.supervisor.BackUpData(ctx, st.ID, func(d supervisor.ServiceData) error {
		name, err := filepath.Rel(string(dir), dir.BackedUpPath(st.ID, d.Service, d.Dump))
		if err != nil {
			return err
		}
		e := backup.Entry{Name: path.Join(backupDir, name), Mode: 0o600, ModTime: stack.Now(), Size: d.Size}
		return r.archive.Add(e, d.Content, func() bool { return d.Moving })
	})
	for service, why := range missing {
		r.archive.Miss(fmt.Sprintf("data of %s/%s: %s", st.ID, service, why))
	}
	return err
}

// addImages writes the images that the stacks run from.
func (r *backupRun) addImages(ctx context.Context, stacks []*stack.Stack) error {
	s := r.server
	refs, err := s.supervisor.Images(ctx, stacks)
	if err != nil || len(refs) == 0 {
		return err
	}
	file, err := s.dir().TempFile()
	if err != nil {
		return err
	}
	defer file.Close()
	if err := s.engine.SaveImages(ctx, refs, s.admission.RoomWriter(file)); err != nil {
		return err
	}
	return r.addOpen(file, backupImages)
}

// addTree writes the data directory without what is written elsewhere, is of no use after a
// restore, or is secret.
func (r *backupRun) addTree() error {
	root, err := os.OpenRoot(r.server.cfg.DataDir)
	if err != nil {
		return err
	}
	defer root.Close()
	return backup.AddTree(r.archive, root, backupDir, r.skips)
}

// skips reports whether a name in the data directory is left out: all but what a restored server
// needs, and what is written elsewhere.
func (r *backupRun) skips(name string) bool {
	dir := r.server.dir()
	top, _, _ := strings.Cut(name, "/")
	switch filepath.Join(string(dir), top) {
	case dir.Instance(), dir.Postgres():
		return false
	case dir.Certificates():
		return !r.what.Secrets
	case dir.StacksFolder():
		return datadir.IsBackedUp(name)
	}
	return true
}

// addFile writes a file under the name of an entry.
func (r *backupRun) addFile(file, name string) error {
	opened, err := os.Open(file)
	if err != nil {
		return err
	}
	defer opened.Close()
	return r.addOpen(opened, name)
}

func (r *backupRun) addOpen(file *os.File, name string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return r.archive.Add(backup.Entry{Name: name, Mode: 0o600, ModTime: info.ModTime(), Size: info.Size()}, file, nil)
}
