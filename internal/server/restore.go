package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/backup"
	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
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
	r := &restoration{server: &Server{cfg: cfg}}
	if err := r.checkTargets(); err != nil {
		return nil, err
	}
	ids, err := backup.Identities(what.IdentityFile, what.PassphraseFile)
	if err != nil {
		return nil, err
	}
	source := backup.Source{Path: what.Path, Identities: ids, From: backupDir}
	if r.manifest, err = source.Check(ctx); err != nil {
		return nil, err
	}
	if err := r.findKey(what.KeyFile); err != nil {
		return nil, err
	}
	if r.engine, err = docker.Open(ctx, docker.Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	defer r.engine.Close()
	if err := r.checkEngine(ctx); err != nil {
		return nil, err
	}
	if err := source.Restore(ctx, cfg.DataDir, r); err != nil {
		return nil, err
	}
	return r.manifest, nil
}

// restoration is a backup that is being restored.
type restoration struct {
	server   *Server // that is not started
	manifest *backup.Manifest
	engine   *docker.Engine
	key      auth.Key // of the installation; zero until it is read from the backup
}

// checkTargets returns an error unless a backup can be restored as the configuration says.
func (r *restoration) checkTargets() error {
	s := r.server
	if err := s.locate(); err != nil {
		return err
	}
	if s.dir().IsLocked() {
		return fmt.Errorf("a berthd runs on %s; stop it (systemctl stop berthd), and restore into an empty data directory", s.cfg.DataDir)
	}
	if err := backup.CheckEmpty(s.cfg.DataDir); err != nil {
		return err
	}
	if r.isDatabaseElsewhere() {
		if exists(s.databaseFile) {
			return fmt.Errorf("%s is there, which BERTH_DATABASE_URL names for the database; move it away", s.databaseFile)
		}
		if err := needFolderOf(s.databaseFile, "BERTH_DATABASE_URL"); err != nil {
			return err
		}
	}
	if s.cfg.KeyFile != "" {
		return needFolderOf(s.cfg.KeyFile, "BERTH_KEY_FILE")
	}
	return nil
}

// needFolderOf returns an error unless the folder of a file that a setting names is there.
func needFolderOf(file, setting string) error {
	if exists(filepath.Dir(file)) {
		return nil
	}
	return fmt.Errorf("there is no folder %s, which %s names; make it first", filepath.Dir(file), setting)
}

// isDatabaseElsewhere reports whether the database is a file outside of the data directory.
func (r *restoration) isDatabaseElsewhere() bool {
	file := r.server.databaseFile
	return file != "" && filepath.Dir(file) != filepath.Dir(r.server.dir().Database())
}

// findKey reads the installation's key from the file that the operator or the configuration
// names. Without one the backup has it.
func (r *restoration) findKey(named string) error {
	var files []string
	if named != "" {
		files = append(files, named)
	}
	if file := r.server.cfg.KeyFile; file != "" && exists(file) {
		files = append(files, file)
	}
	if len(files) == 0 && !r.manifest.Has(backedUpKey) {
		return errors.New("the backup has no key, since it is not encrypted; name the file with the key of its installation by --key")
	}
	for _, file := range files {
		key, err := auth.ReadKey(file)
		if err != nil {
			return err
		}
		if key.Fingerprint() != r.manifest.Key {
			return fmt.Errorf("%s is not the key of the installation that the backup is of", file)
		}
		r.key = key
	}
	return nil
}

// checkEngine returns an error if the engine has something of the installation that the backup is
// of: a restored stack would find older or newer data than its own. Images that a restore has
// left which was cut off go later.
func (r *restoration) checkEngine(ctx context.Context) error {
	there, err := r.driver().Inventory(ctx, "")
	if err != nil {
		return fmt.Errorf("a restore needs a Docker engine; start it, or set DOCKER_HOST to its address: %w", err)
	}
	for id, objects := range there {
		if backup.Unfinished(r.server.cfg.DataDir) {
			objects.Images = nil
		}
		if !objects.IsEmpty() {
			return fmt.Errorf("the engine still has what the installation of the backup made, as %s of %s; remove all that has the label berth.instance=%s, by the commands in docs/operating.md, Restoring, or restore on another machine", objects.Names()[0], id, r.manifest.Instance)
		}
	}
	return nil
}

func (r *restoration) driver() *docker.Driver {
	return docker.NewDriver(r.engine, docker.Info{}, r.server.cfg.driverOptions(r.manifest.Instance))
}

// Clear implements backup.Elsewhere.
func (r *restoration) Clear(ctx context.Context) error {
	driver := r.driver()
	there, err := driver.Inventory(ctx, "")
	for _, objects := range there {
		err = errors.Join(err, driver.Discard(ctx, engine.Objects{Images: objects.Images}))
	}
	if r.isDatabaseElsewhere() {
		err = errors.Join(err, os.RemoveAll(r.incomingDatabase()))
	}
	return err
}

// Take implements backup.Elsewhere.
func (r *restoration) Take(ctx context.Context, e backup.Entry, content io.Reader) (bool, error) {
	switch {
	case e.Name == backupImages:
		return true, r.engine.LoadImages(ctx, content)
	case e.Name == backedUpKey:
		return true, r.readKey(content)
	case e.Name == backedUpDatabase && r.isDatabaseElsewhere():
		return true, r.writeDatabase(content)
	}
	return false, nil
}

// readKey reads the key that is in the backup.
func (r *restoration) readKey(content io.Reader) error {
	var key auth.Key
	if _, err := io.ReadFull(content, key[:]); err != nil || key.Fingerprint() != r.manifest.Key {
		return errors.New("the key in the backup is not that of its installation; name the file with it by --key")
	}
	r.key = key
	return nil
}

// incomingDatabase is where the database is written, if that is elsewhere, until all is there.
func (r *restoration) incomingDatabase() string { return r.server.databaseFile + ".restoring" }

func (r *restoration) writeDatabase(content io.Reader) error {
	file, err := os.OpenFile(r.incomingDatabase(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Sync(), file.Close())
}

// End implements backup.Elsewhere. The database comes last: it is what a restore may not replace.
func (r *restoration) End() error {
	if file := r.server.keyFile(); !exists(file) {
		if err := r.key.Write(file); err != nil {
			return err
		}
	}
	if !r.isDatabaseElsewhere() || !HasDatabase(r.manifest) {
		return nil
	}
	if err := os.Rename(r.incomingDatabase(), r.server.databaseFile); err != nil {
		return err
	}
	return disk.Sync(filepath.Dir(r.server.databaseFile))
}
