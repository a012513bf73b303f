package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/backup"
	"github.com/berth-host/berth/internal/docker"
)

// Restoring says what Restore restores. Names of files are "" if they are not needed.
type Restoring struct {
	Path           string // of a backup, a file or a folder
	KeyFile        string // with the installation's key, which a backup that is not encrypted does not have
	IdentityFile   string // with private keys of age
	PassphraseFile string
}

// Restore writes what is in a backup to the data directory, which must be empty, and to the
// engine, which must have nothing of the installation. It checks all of it before it writes. A
// server that starts then brings the stacks back.
func Restore(ctx context.Context, cfg Config, what Restoring) (*backup.Manifest, error) {
	s := &Server{cfg: cfg}
	if err := s.locate(); err != nil {
		return nil, err
	}
	if s.dir().IsLocked() {
		return nil, fmt.Errorf("a berthd runs on %s; stop it (systemctl stop berthd), and restore into an empty data directory", s.cfg.DataDir)
	}
	if err := s.checkRestorable(); err != nil {
		return nil, err
	}
	ids, err := backup.Identities(what.IdentityFile, what.PassphraseFile)
	if err != nil {
		return nil, err
	}
	source := backup.Source{Path: what.Path, Identities: ids}
	m, err := source.Check()
	if err != nil {
		return nil, err
	}
	engine, err := s.emptyEngine(ctx, m)
	if err != nil {
		return nil, err
	}
	defer engine.Close()
	key, err := s.restoredKey(m, what.KeyFile)
	if err != nil {
		return nil, err
	}
	err = source.Restore(backupDir, s.cfg.DataDir, func(e backup.Entry, content io.Reader) error {
		if e.Name != backupImages {
			return nil
		}
		return engine.LoadImages(ctx, content)
	})
	if err != nil {
		return nil, err
	}
	return m, errors.Join(s.placeKey(key), s.placeDatabase())
}

// checkRestorable returns an error unless a backup can be restored as the configuration says.
func (s *Server) checkRestorable() error {
	if err := backup.CheckEmpty(s.cfg.DataDir); err != nil {
		return err
	}
	if s.databaseFile != "" && exists(s.databaseFile) && filepath.Dir(s.databaseFile) != s.cfg.DataDir {
		return fmt.Errorf("%s is there, which BERTH_DATABASE_URL names for the database; move it away", s.databaseFile)
	}
	return nil
}

// emptyEngine returns the engine if it has nothing of the installation that a backup is of: a
// restored stack would find older or newer data than its own.
func (s *Server) emptyEngine(ctx context.Context, m *backup.Manifest) (*docker.Engine, error) {
	engine, err := docker.Open(ctx, docker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	there, err := docker.NewDriver(engine, docker.Info{}, s.cfg.driverOptions(m.Instance)).Inventory(ctx, "")
	if err != nil {
		err = fmt.Errorf("a restore needs a Docker engine; start it, or set DOCKER_HOST to its address: %w", err)
	}
	for id, objects := range there {
		if err == nil && !objects.IsEmpty() {
			err = fmt.Errorf("the engine still has what the installation of the backup made, as %s of %s; remove all with the label berth.instance=%s, or restore on another machine", objects.Names()[0], id, m.Instance)
		}
	}
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return engine, nil
}

// restoredKey returns the file with the key of a restored installation; "" if the backup has it.
func (s *Server) restoredKey(m *backup.Manifest, named string) (string, error) {
	has := m.Has(path.Join(backupDir, filepath.Base(s.dir().Key())))
	file := cmp.Or(named, s.cfg.KeyFile)
	if file == "" {
		if has {
			return "", nil
		}
		return "", errors.New("the backup has no key, since it is not encrypted; name the file with the key of its installation by --key")
	}
	key, err := auth.ReadKey(file)
	if err != nil {
		return "", err
	}
	if key.Fingerprint() != m.Key {
		return "", fmt.Errorf("%s is not the key of the installation that the backup is of", file)
	}
	return file, nil
}

// placeKey copies the key to the data directory, unless it is there or the configuration names
// its file.
func (s *Server) placeKey(file string) error {
	if exists(s.dir().Key()) || s.cfg.KeyFile != "" {
		return nil
	}
	key, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(s.dir().Key(), key, 0o600)
	}
	if err != nil {
		return fmt.Errorf("all is restored but the key; copy %s to %s: %w", file, s.dir().Key(), err)
	}
	return nil
}

// placeDatabase moves the database to where the configuration says.
func (s *Server) placeDatabase() error {
	restored := s.dir().Database()
	if s.databaseFile == "" || s.databaseFile == restored || !exists(restored) {
		return nil
	}
	if err := os.Rename(restored, s.databaseFile); err != nil {
		return fmt.Errorf("all is restored; move %s to %s, which BERTH_DATABASE_URL names: %w", restored, s.databaseFile, err)
	}
	return nil
}
