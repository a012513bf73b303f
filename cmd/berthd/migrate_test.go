package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// newMachine makes the data directory of a server that is stopped, with an account and a
// stack.
func newMachine(t *testing.T) (dir string, site *stack.Stack) {
	t.Helper()
	dir = t.TempDir()
	if _, stderr, err := berthd(t, dir, "account", "create", "ana@example.com"); err != nil {
		t.Fatal(stderr)
	}
	if err := os.WriteFile(filepath.Join(dir, "instance"), []byte("0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := openMachine(t, dir, store.Options{Path: filepath.Join(dir, "berth.db")})
	site = stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	site.Secrets["web/KEY"] = "sealed"
	if err := s.Create(t.Context(), site, []stack.Event{site.Created()}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	return dir, site
}

// openMachine opens a database with the key of a data directory.
func openMachine(t *testing.T, dir string, opts store.Options) *store.Store {
	t.Helper()
	key, err := auth.ReadKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	opts.Sealer, opts.Log = auth.NewSealer(key), slog.New(slog.DiscardHandler)
	s, err := store.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func closeStore(t *testing.T, s *store.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// newTarget returns the address of an empty database of PostgreSQL, without its password,
// which the environment has from now on.
func newTarget(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(postgrestest.Shared(t).Database(t))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(u.User.Username())
	t.Setenv("PGPASSWORD", postgrestest.Password)
	return u.String()
}

// inSwarm makes this machine the node n1 of a swarm, and the settings those of a cluster.
func inSwarm(t *testing.T, dir string) {
	t.Helper()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"Name": "m1", "Swarm": {"NodeID": "n1", "NodeAddr": "10.0.0.1", "LocalNodeState": "active", "Cluster": {"ID": "swarm-1"}}}`)
	}))
	t.Cleanup(engine.Close)
	for name, value := range map[string]string{
		"DOCKER_HOST": "tcp://" + engine.Listener.Addr().String(), "BERTH_CLUSTER": "swarm",
		"BERTH_REDIS_URL": "redis://localhost", "BERTH_KEY_FILE": filepath.Join(dir, "key"),
	} {
		t.Setenv(name, value)
	}
}

func TestMigrate_CopiesTheStateAndBack(t *testing.T) {
	dir, site := newMachine(t)
	file, address := filepath.Join(dir, "berth.db"), newTarget(t)
	stdout, stderr, err := berthd(t, dir, "migrate", "--from", "sqlite://"+file, "--to", address)
	if err != nil || !strings.Contains(strings.Join(strings.Fields(stdout), " "), " stacks 1 events 1 ") || !strings.Contains(stderr, "BERTH_DATABASE_URL='"+address+"'") || strings.Contains(stderr, postgrestest.Password) {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	s := openMachine(t, dir, store.Options{Postgres: address})
	got, err := s.Get(t.Context(), site.ID)
	if err != nil || got.Secrets["web/KEY"] != "sealed" {
		t.Fatal(got, err)
	}
	if found, known, err := s.Installation(t.Context()); err != nil || !known || found.ID != "0123456789abcdef" || found.Cluster != "off" {
		t.Errorf("%+v, %v", found, err)
	}
	closeStore(t, s)

	t.Setenv("BERTH_DATABASE_URL", address)
	back := filepath.Join(dir, "back.db")
	if stdout, stderr, err = berthd(t, dir, "migrate", "--to", "sqlite://"+back); err != nil || !strings.Contains(stderr, "BERTH_DATABASE_URL='sqlite://"+back+"'") {
		t.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	again, err := openMachine(t, dir, store.Options{Path: back}).Get(t.Context(), site.ID)
	if diff := cmp.Diff(got, again); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestMigrate_MakesTheMachineTheFirstNodeAndBack(t *testing.T) {
	dir, site := newMachine(t)
	address := newTarget(t)
	inSwarm(t, dir)
	if _, stderr, err := berthd(t, dir, "migrate", "--from", "sqlite://"+filepath.Join(dir, "berth.db"), "--to", address); err != nil || !strings.Contains(stderr, "BERTH_KEY_FILE has to be "+filepath.Join(dir, "key")) {
		t.Fatal(stderr, err)
	}
	s := openMachine(t, dir, store.Options{Postgres: address})
	got, err := s.Get(t.Context(), site.ID)
	if err != nil || got.Node != "n1" || got.Epoch != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if found, _, err := s.Installation(t.Context()); err != nil || found.ID != "0123456789abcdef" || found.Cluster != "swarm" || found.Swarm != "swarm-1" {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := s.RegisterNode(t.Context(), store.Node{ID: "n2", Name: "w2", Holder: "b"}, 1); err != nil {
		t.Fatal(err)
	}
	other := placeStack(t, s, "n2")
	closeStore(t, s)

	back := filepath.Join(dir, "back.db")
	_, stderr, err := berthd(t, dir, "migrate", "--from", address, "--to", "sqlite://"+back, "--cluster", "off")
	if err == nil || !strings.Contains(stderr, "node w2 owns 1 stack") || !strings.Contains(stderr, other.ID) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("%v\n%s", err, stderr)
	}
	s = openMachine(t, dir, store.Options{Postgres: address})
	if _, err := s.Update(t.Context(), other.ID, func(k *stack.Stack) ([]stack.Event, error) { k.Node, k.Epoch = "n1", 2; return nil, nil }); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	t.Setenv("BERTH_DATABASE_URL", address)
	if _, stderr, err := berthd(t, dir, "migrate", "--to", "sqlite://"+back); err != nil || !strings.Contains(stderr, "BERTH_CLUSTER=off") {
		t.Fatal(stderr, err)
	}
	for _, id := range []string{site.ID, other.ID} {
		if got, err := openMachine(t, dir, store.Options{Path: back}).Get(t.Context(), id); err != nil || got.Node != "" || got.Epoch != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestMigrate_MakesAClusterOfOneMachinesPostgres(t *testing.T) {
	dir, site := newMachine(t)
	alone, many := newTarget(t), newTarget(t)
	if _, stderr, err := berthd(t, dir, "migrate", "--from", "sqlite://"+filepath.Join(dir, "berth.db"), "--to", alone); err != nil {
		t.Fatal(stderr)
	}
	if _, stderr, err := berthd(t, dir, "migrate", "--from", alone, "--to", many); err == nil || !strings.Contains(stderr, "pg_dump") {
		t.Errorf("%v\n%s", err, stderr)
	}
	inSwarm(t, dir)
	if _, stderr, err := berthd(t, dir, "migrate", "--from", alone, "--to", many); err != nil {
		t.Fatal(stderr)
	}
	if got, err := openMachine(t, dir, store.Options{Postgres: many}).Get(t.Context(), site.ID); err != nil || got.Node != "n1" || got.Epoch != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMigrate_SaysWhatIsWrong(t *testing.T) {
	dir, _ := newMachine(t)
	file, address := "sqlite://"+filepath.Join(dir, "berth.db"), newTarget(t)
	empty := t.TempDir()
	otherKey := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(otherKey, make([]byte, 32), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ dir, args, want string }{
		{dir, "", "needs two databases"},
		{dir, "--from " + file, "needs two databases"},
		{dir, "--from " + file + " --to mysql://localhost/berth", "--to: write postgres://"},
		{dir, "--from " + file + " --to postgres://berth:word@localhost/berth", "PGPASSFILE"},
		{dir, "--from " + file + " --to postgres://localhost/berth?password=word", "PGPASSFILE"},
		{dir, "--from " + file + " --to postgres://db.example.com/berth", "sslmode=verify-full"},
		{dir, "--from " + file + " --to postgres://berth@127.0.0.1:1/berth?sslmode=disable", "postgres://berth@127.0.0.1:1/berth"},
		{dir, "--from " + file + " --to " + file, "both"},
		{dir, "--from " + file + " --to sqlite:///elsewhere/berth.db", "both files of SQLite"},
		{dir, "--from " + file + "x --to " + address, "there is no database"},
		{dir, "--from " + file + " --to " + address + " --key-file " + otherKey, "another key"},
		{dir, "--from " + address + " --to sqlite:///elsewhere/berth.db", "is not a database of Berth"},
		{empty, "--from " + file + " --to " + address, "there is no " + empty + "/instance"},
		{dir, "now", "unknown command"},
	} {
		stdout, stderr, err := berthd(t, tt.dir, append([]string{"migrate"}, strings.Fields(tt.args)...)...)
		if err == nil || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 || strings.Contains(stderr, "word@") {
			t.Errorf("%s: stdout %q, stderr %q, %v, want one line with %q", tt.args, stdout, stderr, err, tt.want)
		}
	}
	s := serving(t, dir)
	if _, stderr, err := berthd(t, dir, "migrate", "--from", file, "--to", address); err == nil || !strings.Contains(stderr, "a server uses the data directory") {
		t.Errorf("%v\n%s", err, stderr)
	}
	closeStore(t, s)
}
