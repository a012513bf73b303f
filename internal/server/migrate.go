package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/metrics"
	"github.com/berth-host/berth/internal/store"
)

// Migrated is what Migrate did.
type Migrated struct {
	From, To string         // the two databases, without passwords
	Copied   []store.Copied // how many rows of each table
	Next     []string       // what the operator has to do now, a sentence each
}

// migration copies the state of an installation from one database to another.
type migration struct {
	server   *Server
	from, to store.Options
	key      auth.Key
	instance string
}

// Migrate copies the state of the installation in the data directory to another database, of
// which it makes a cluster's if the configuration says so, with this machine as the first node.
// One of the two addresses may be "": it is the configured one. No server may be running.
func Migrate(ctx context.Context, cfg Config, from, to string, log *slog.Logger) (done Migrated, err error) {
	m := &migration{server: &Server{cfg: cfg, log: log, metrics: metrics.New()}}
	if err := m.name(from, to); err != nil {
		return Migrated{}, err
	}
	if err := m.readInstallation(); err != nil {
		return Migrated{}, err
	}
	defer func() { err = errors.Join(err, m.close()) }()
	free, err := m.server.tryLock()
	if err != nil {
		return Migrated{}, err
	}
	if !free {
		return Migrated{}, fmt.Errorf("a server uses the data directory %s; stop it and run this again", m.server.cfg.DataDir)
	}
	done = Migrated{From: m.from.Name(), To: m.to.Name()}
	done.Copied, err = store.Copy(ctx, store.Copying{
		From: m.from, To: m.to, Log: log,
		Decide: func(source store.Source) (store.Belonging, error) { return m.decide(ctx, source) },
	})
	if err != nil {
		return Migrated{}, err
	}
	done.Next = m.next()
	return done, nil
}

// close ends what was opened, and unlocks the data directory.
func (m *migration) close() error {
	var errs []error
	if m.server.engine != nil {
		errs = append(errs, m.server.engine.Close())
	}
	if m.server.lock != nil {
		errs = append(errs, m.server.lock.Close())
	}
	return errors.Join(errs...)
}

// name sets the two databases.
func (m *migration) name(from, to string) (err error) {
	configured := m.server.cfg.DatabaseURL
	if from == "" && to == "" || cmp.Or(from, configured) == "" || cmp.Or(to, configured) == "" {
		return errors.New("berthd migrate needs two databases, such as --from sqlite:///var/lib/berth/berth.db --to postgres://berth@db.example.com/berth?sslmode=verify-full; if you leave one out, it is BERTH_DATABASE_URL")
	}
	if m.from, err = databaseOf("--from", cmp.Or(from, configured), from != ""); err != nil {
		return err
	}
	if m.to, err = databaseOf("--to", cmp.Or(to, configured), to != ""); err != nil {
		return err
	}
	switch {
	case m.from.Name() == m.to.Name():
		return fmt.Errorf("--from and --to are both %s; name an empty database in --to", m.from.Name())
	case m.from.Postgres == "" && m.to.Postgres == "":
		return errors.New("--from and --to are both files of SQLite; stop the server and copy the file with sqlite3's .backup")
	}
	return nil
}

// databaseOf parses the address of a database, which is a flag's or BERTH_DATABASE_URL. A flag
// may have no password: other users of the machine see it.
func databaseOf(flag, address string, given bool) (store.Options, error) {
	called := "BERTH_DATABASE_URL"
	if given {
		called = flag
	}
	if given && hidePassword(address) != address {
		return store.Options{}, fmt.Errorf("%s has a password, which other users of this machine can see; put it into PGPASSWORD or a file that PGPASSFILE names, or leave out %s and set BERTH_DATABASE_URL in the environment", flag, flag)
	}
	path, err := parseDatabase(address)
	if err != nil {
		return store.Options{}, fmt.Errorf("%s: %w", called, err)
	}
	if path == "" {
		return store.Options{Postgres: address}, nil
	}
	return store.Options{Path: path}, nil
}

// readInstallation reads the id and the key that the rows were written with.
func (m *migration) readInstallation() error {
	s := m.server
	if err := s.locate(); err != nil {
		return err
	}
	text, err := os.ReadFile(s.dir().Instance())
	m.instance = strings.TrimSpace(string(text))
	if err != nil || m.instance == "" {
		return fmt.Errorf("there is no %s; run this on the machine of the server, with its BERTH_DATA_DIR", s.dir().Instance())
	}
	if m.key, err = auth.ReadKey(s.keyFile()); err != nil {
		return fmt.Errorf("%w; the copy needs the key that the database was written with, which BERTH_KEY_FILE or key in BERTH_DATA_DIR is", err)
	}
	if own := s.dir().Key(); s.cfg.KeyFile != "" && exists(own) {
		key, err := auth.ReadKey(own)
		if err != nil {
			return err
		}
		if key != m.key {
			return fmt.Errorf("BERTH_KEY_FILE is another key than %s, with which the database was written; set BERTH_KEY_FILE to a copy of that", own)
		}
	}
	return nil
}

// decide returns whom the copy belongs to. It refuses another installation's rows, and those
// that other nodes own.
func (m *migration) decide(ctx context.Context, source store.Source) (store.Belonging, error) {
	s := m.server
	was, becomes := source.Installation.Cluster == clusterSwarm, m.to.Postgres != "" && s.cfg.InCluster()
	switch {
	case source.Known && m.from.Postgres != "" && source.Installation.ID != m.instance:
		return store.Belonging{}, fmt.Errorf("the database %s belongs to another installation than the data directory %s; set BERTH_DATA_DIR to its own", source.Name, s.cfg.DataDir)
	case source.Known && m.from.Postgres != "" && source.Installation.KeyPrint != m.key.Fingerprint():
		return store.Belonging{}, fmt.Errorf("the key %s is not the one of the database %s; set BERTH_KEY_FILE to the key of its installation", s.keyFile(), source.Name)
	case m.from.Postgres != "" && m.to.Postgres != "" && was == becomes:
		return store.Belonging{}, fmt.Errorf("BERTH_CLUSTER=%s is what the database already has; set it to what the copy is for, or copy the database as it is with pg_dump and pg_restore", s.cfg.Cluster)
	}
	var swarm docker.SwarmInfo
	if was || becomes {
		var err error
		if swarm, err = m.swarm(ctx); err != nil {
			return store.Belonging{}, err
		}
	}
	to := store.Belonging{}
	if was {
		to.Before = swarm.Node
	}
	if becomes {
		to.Node = swarm.Node
	}
	if m.to.Postgres != "" {
		installation := s.wanted(m.key, m.instance, swarm.ID)
		to.Installation = &installation
	}
	return to, checkOwners(source, to.Before)
}

// swarm returns this machine's part in its swarm.
func (m *migration) swarm(ctx context.Context) (docker.SwarmInfo, error) {
	s := m.server
	if err := s.tryEngine(ctx, engineAnswer); err != nil {
		return docker.SwarmInfo{}, err
	}
	swarm, err := s.engine.Swarm(ctx)
	if err == nil && !swarm.Active {
		err = fmt.Errorf("the Docker engine is not in a swarm (it is %s); this machine needs to be a node of the cluster while its rows are copied: run docker swarm init or docker swarm join", swarm.State)
	}
	return swarm, err
}

// checkOwners refuses to copy the rows of stacks that another node owns.
func checkOwners(source store.Source, node string) error {
	for _, o := range source.Owners {
		if o.Node == node {
			continue
		}
		name := cmp.Or(o.Name, o.Node, "one machine")
		return fmt.Errorf("node %s owns %s in %s, such as %s; start the cluster again, move them here with berthd nodes drain %s, and stop it",
			name, counted(o.Stacks, "stack"), source.Name, o.First, name)
	}
	return nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// next returns what an operator has to do after the copy.
func (m *migration) next() []string {
	s := m.server
	address := hidePassword(m.to.Postgres)
	if address == "" {
		address = "sqlite://" + m.to.Name()
	}
	start := fmt.Sprintf("Start berthd with BERTH_DATABASE_URL='%s', BERTH_CLUSTER=%s, and the BERTH_DATA_DIR and base URL of before.", address, m.mode())
	steps := []string{start}
	switch {
	case m.mode() == clusterSwarm:
		steps = append(steps, fmt.Sprintf("Its BERTH_KEY_FILE has to be %s or a copy of it; every other node needs a copy, too, and a data directory of its own.", s.keyFile()))
	case s.cfg.KeyFile != "":
		steps = append(steps, fmt.Sprintf("Keep BERTH_KEY_FILE=%s, or copy that file to %s.", s.cfg.KeyFile, s.dir().Key()))
	}
	return append(steps, fmt.Sprintf("%s is as it was. Keep it until the new server serves, and start no server on it again: it would undo what has happened since.", m.from.Name()))
}

// mode is the BERTH_CLUSTER of the copy.
func (m *migration) mode() string {
	if m.to.Postgres == "" {
		return clusterOff
	}
	return m.server.cfg.Cluster
}
