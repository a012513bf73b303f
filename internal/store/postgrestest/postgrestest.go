// Package postgrestest runs servers of PostgreSQL for tests, from the programs that
// Debian's packages install. Code in it touches its processes and their folder in the
// temporary directory only.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Programs names the folder of PostgreSQL's programs, such as
// /usr/lib/postgresql/17/bin; without it the newest of Debian's is taken.
const Programs = "BERTH_TEST_POSTGRES"

// Password is the password of the user berth, who owns the server.
const Password = "word-to-pass"

// nobody runs the server in the tests of root, whom it refuses.
const nobody = 65534

// Server is a server of PostgreSQL on loopback.
type Server struct {
	programs, dir string
	port          int
	keeper        io.Closer // ends the server and removes its folder; so does the end of this process
	safe          bool
	databases     atomic.Int64
}

var shared = sync.OnceValues(func() (*Server, error) {
	s, err := prepare(false)
	if err != nil {
		return nil, err
	}
	return s, s.run()
})

// Shared returns the server that all tests of this process use, each with databases of
// its own. It does not wait for the disk.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	need(t, err)
	return s
}

// Start runs a server for one test, which may freeze and kill it. Its commits wait for the
// disk.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := prepare(true)
	need(t, err)
	t.Cleanup(func() {
		s.Kill(t)
		if err := os.RemoveAll(s.dir); err != nil {
			t.Error(err)
		}
	})
	s.Run(t)
	return s
}

// Open runs a server that waits for the disk, as in Start, for a program that is not a test.
// Close ends it.
func Open() (*Server, error) {
	s, err := prepare(true)
	if err != nil {
		return nil, err
	}
	return s, s.run()
}

// Close ends a server that Open runs, and removes its files.
func (s *Server) Close() error {
	s.signal(syscall.SIGKILL)
	err := s.keeper.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

var errMissing = errors.New("no PostgreSQL 15 or newer: make postgres installs it, or set " + Programs + " to the folder of its programs")

// need skips a test that PostgreSQL is missing for, unless it may not be skipped.
func need(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errMissing) && os.Getenv("BERTH_REQUIRE_ENGINE") != "1":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// Run starts the server again after Kill, and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Kill ends all processes of the server as a power cut would.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.signal(syscall.SIGKILL)
	if err := s.keeper.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}

// Make makes a new, empty database and returns its address, with the password in it.
func (s *Server) Make(ctx context.Context) (string, error) {
	name := fmt.Sprintf("made%d", s.databases.Add(1))
	conn, err := pgx.Connect(ctx, s.address("postgres"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	return s.address(name), err
}

// Freeze stops all processes of the server, so that it takes connections and never answers,
// until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets the server go on after Freeze.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

// Database returns the address of a new, empty database, with the password in it. It goes
// with the test.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	return s.create(t, "")
}

// Copy is like Database and copies what is in the database at an address, which nobody may use
// meanwhile.
func (s *Server) Copy(t testing.TB, address string) string {
	t.Helper()
	return s.create(t, " TEMPLATE "+address[strings.LastIndex(address, "/")+1:strings.LastIndex(address, "?")])
}

// create makes a database of the test with options.
func (s *Server) create(t testing.TB, options string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", s.databases.Add(1))
	s.exec(t, "CREATE DATABASE "+name+options)
	t.Cleanup(func() {
		if !s.safe { // else the whole server goes
			s.exec(t, "DROP DATABASE "+name+" WITH (FORCE)")
		}
	})
	return s.address(name)
}

func (s *Server) address(database string) string {
	return (&url.URL{
		Scheme: "postgres", User: url.UserPassword("berth", Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)), Path: "/" + database, RawQuery: "sslmode=disable",
	}).String()
}

func (s *Server) exec(t testing.TB, statement string) {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), s.address("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), statement); err != nil {
		t.Fatal(err)
	}
}

// prepare makes the files of a server on a free port.
func prepare(safe bool) (*Server, error) {
	programs := find()
	if programs == "" {
		return nil, errMissing
	}
	dir, err := os.MkdirTemp("", "postgrestest")
	if err != nil {
		return nil, err
	}
	s := &Server{programs: programs, dir: dir, safe: safe}
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(Password), 0o600); err != nil {
		return nil, err
	}
	if err := s.handOver(dir, password); err != nil {
		return nil, err
	}
	out, err := s.command(filepath.Join(programs, "initdb"), "--pgdata", s.data(), "--username=berth", "--auth=scram-sha-256",
		"--pwfile", password, "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	return s, nil
}

// find returns the folder of the newest programs, or "".
func find() string {
	if dir := os.Getenv(Programs); dir != "" {
		return dir
	}
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres") // the pattern is well-formed
	newest, dir := 14, ""
	for _, path := range all {
		folder := filepath.Dir(path)
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(folder))); err == nil && n > newest {
			newest, dir = n, folder
		}
	}
	return dir
}

// handOver gives files to the user who runs the server.
func (s *Server) handOver(paths ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, nobody, nobody); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	return cmd
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// keep runs the server until its standard input ends, as it does with the process of the
// tests, however that ends.
const keep = `"$@" >>log 2>&1 & cat >/dev/null; kill -QUIT $!; wait; [ -z "$REMOVE" ] || rm -rf "$REMOVE"`

// run starts the server and waits until it answers.
func (s *Server) run() error {
	args := []string{
		"-c", keep, "keep", filepath.Join(s.programs, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "max_connections=300",
	}
	cmd := s.command("sh", args...)
	if !s.safe {
		cmd.Args = append(cmd.Args, "-c", "fsync=off", "-c", "full_page_writes=off")
		cmd.Env = append(os.Environ(), "REMOVE="+s.dir)
	}
	var err error
	if s.keeper, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // nobody needs to know how it ended
	return s.await()
}

func (s *Server) await() error {
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(context.Background(), s.address("postgres")); err == nil {
			return conn.Close(context.Background())
		}
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return fmt.Errorf("PostgreSQL does not answer: %w\n%s", err, log)
}

// signal sends a signal to all processes of the server, the first one first, so that it
// starts no other.
func (s *Server) signal(sig syscall.Signal) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return // it does not run
	}
	line, _, _ := strings.Cut(string(text), "\n")
	first, err := strconv.Atoi(line)
	if err != nil {
		return
	}
	if sig == syscall.SIGKILL {
		_ = syscall.Kill(first, syscall.SIGSTOP) // so that it starts no other until all are known
	}
	all := append([]int{first}, children(first)...)
	for _, pid := range all {
		_ = syscall.Kill(pid, sig) // it may have ended meanwhile
	}
	if sig == syscall.SIGKILL {
		awaitEnd(all)
		_ = os.Remove(filepath.Join(s.data(), "postmaster.pid"))
	}
}

// awaitEnd waits until processes have ended: one that is about to may still answer, and has the
// port and the shared memory that the next server needs.
func awaitEnd(pids []int) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if !slices.ContainsFunc(pids, runs) {
			return
		}
	}
}

// runs reports whether a process has not ended; nobody may have asked yet how it did.
func runs(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && !strings.HasPrefix(rest, "Z")
}

// children returns the processes that a process started.
func children(parent int) []int {
	var all []int
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && len(fields) > 1 && fields[1] == strconv.Itoa(parent) {
			all = append(all, pid)
		}
	}
	slices.Sort(all)
	return all
}

// freePort finds a port below the kernel's for outgoing connections, so that it stays free while
// the server is down. Other processes pick theirs at random, too.
func freePort() (int, error) {
	var err error
	for range 1000 {
		port := 10000 + rand.IntN(10000)
		var l net.Listener
		if l, err = net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no port is free: %w", err)
}
