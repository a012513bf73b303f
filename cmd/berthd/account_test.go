package main

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// TestMain lets the test binary be berthd itself, in a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("BERTHD_TEST_RUN") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// berthd runs the command in a data directory, with nothing on standard input.
func berthd(t *testing.T, dir string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return berthdReading(t, dir, "", args...)
}

// berthdReading runs the command with a text on standard input.
func berthdReading(t *testing.T, dir, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append(args, "--data-dir", dir)...)
	cmd.Env = append(os.Environ(), "BERTHD_TEST_RUN=1")
	var out, talk bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &talk
	err = cmd.Run()
	return out.String(), talk.String(), err
}

// serving has the data directory as a running server has it.
func serving(t *testing.T, dir string) *store.Store {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	key, err := auth.LoadKey(filepath.Join(dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(context.Background(), store.Options{
		Path: filepath.Join(dir, "berth.db"), Sealer: auth.NewSealer(key), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var oneKey = regexp.MustCompile(`^as_live_[0-9A-Za-z]{32}\n$`)

func TestAccountCreate_PrintsJustTheKeyBesideARunningServer(t *testing.T) {
	dir := t.TempDir()
	s := serving(t, dir)
	stdout, stderr, err := berthd(t, dir, "account", "create", "Ana@example.com")
	if err != nil || !oneKey.MatchString(stdout) || !strings.Contains(stderr, "Ana@example.com") || strings.Contains(stderr, "as_live_") {
		t.Fatalf("stdout %q, stderr %q, %v", stdout, stderr, err)
	}
	account, ok, err := s.AccountByKey(t.Context(), auth.Hash(strings.TrimSpace(stdout)))
	if err != nil || !ok || account.Email != "Ana@example.com" {
		t.Errorf("the server finds %+v, %v, %v", account, ok, err)
	}
}

func TestAccountCreate_WorksBeforeTheFirstStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	stdout, stderr, err := berthd(t, dir, "account", "create", "ana@example.com")
	database := filepath.Join(dir, "berth.db")
	if err != nil || !oneKey.MatchString(stdout) || !strings.Contains(stderr, "there is no database yet") || !strings.Contains(stderr, database) {
		t.Fatalf("stdout %q, stderr %q, %v, want the key and that %s was made", stdout, stderr, err, database)
	}
	if _, ok, err := serving(t, dir).AccountByKey(t.Context(), auth.Hash(strings.TrimSpace(stdout))); !ok || err != nil {
		t.Errorf("the server does not know the key: %v", err)
	}
}

func TestAccount_MakesNoDatabaseToLookForAnAccount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "wrong")
	want := "berthd: there is no database " + filepath.Join(dir, "berth.db") + "; set BERTH_DATA_DIR to the data directory of the server\n"
	for _, args := range [][]string{{"account", "password", "ana@example.com"}, {"account", "delete", "ana@example.com", "--yes"}} {
		stdout, stderr, err := berthdReading(t, dir, "correct horse\n", args...)
		if err == nil || stdout != "" || stderr != want {
			t.Errorf("%q: stdout %q, stderr %q, %v", args, stdout, stderr, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%q made %s", args, dir)
		}
	}
}

func TestAccountCreate_SaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, stderr, err := berthd(t, dir, "account", "create", "ana@example.com"); err != nil {
		t.Fatal(stderr)
	}
	lost := t.TempDir()
	if err := os.WriteFile(filepath.Join(lost, "berth.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, dir string
		args      []string
		want      string
	}{
		{"not an email", dir, []string{"hello"}, `"hello" is not an email address; write it as in ana@example.com`},
		{"a name beside it", dir, []string{"Ana <ana@example.com>"}, "is not an email address"},
		{"empty", dir, []string{""}, "is not an email address"},
		{"exists", dir, []string{"ANA@example.com"}, "the email ANA@example.com already has an account"},
		{"no email", dir, nil, "berthd account create takes one email address, as in: berthd account create ana@example.com"},
		{"two", dir, []string{"a@example.com", "b@example.com"}, "takes one email address"},
		{"key lost", lost, []string{"ana@example.com"}, "restore the key"},
		{"no directory", "/dev/null/x", []string{"ana@example.com"}, "BERTH_DATA_DIR"},
	} {
		stdout, stderr, err := berthd(t, tt.dir, append([]string{"account", "create"}, tt.args...)...)
		if err == nil || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: stdout %q, stderr %q, %v, want one line with %q", tt.name, stdout, stderr, err, tt.want)
		}
	}
}

func TestAccount_ListsItsCommandsWithoutTheServersFlags(t *testing.T) {
	stdout, stderr, err := berthd(t, t.TempDir(), "account")
	if err != nil || stderr != "" || !strings.Contains(stdout, "berthd account create EMAIL") || strings.Contains(stdout, "--max-upload") || strings.Count(stdout, "\n") > 10 {
		t.Errorf("stdout %q, stderr %q, %v", stdout, stderr, err)
	}
	_, stderr, err = berthd(t, t.TempDir(), "account", "add")
	if err == nil || !strings.Contains(stderr, `berthd account has no command "add"`) {
		t.Errorf("stderr %q, %v", stderr, err)
	}
}

// owned stores a stack of an account, as a server does.
func owned(t *testing.T, s *store.Store, email string) *stack.Stack {
	t.Helper()
	account, _, ok, err := s.AccountByEmail(t.Context(), email)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	k := stack.New("shop", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Owner = account.ID
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	return k
}

func TestAccountDelete_TakesItsStacksBesideARunningServer(t *testing.T) {
	dir := t.TempDir()
	s := serving(t, dir)
	key, stderr, err := berthd(t, dir, "account", "create", "Ana@example.com")
	if err != nil {
		t.Fatal(stderr)
	}
	k := owned(t, s, "Ana@example.com")
	for _, typed := range []string{"", "y\n", "bo@example.com\n"} {
		stdout, stderr, err := berthdReading(t, dir, typed, "account", "delete", "ana@example.com")
		if err == nil || stdout != "" || !strings.Contains(stderr, "shop ("+k.ID+")") || !strings.HasSuffix(stderr, "\nberthd: nothing was deleted: type Ana@example.com when asked, or pass --yes\n") {
			t.Errorf("typed %q: stdout %q, stderr %q, %v", typed, stdout, stderr, err)
		}
	}
	if _, err := s.Get(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	_, stderr, err = berthdReading(t, dir, "ana@Example.com\n", "account", "delete", "ana@example.com")
	if err != nil || !strings.Contains(stderr, "Ana@example.com owns 1 stack") || !strings.Contains(stderr, "Deleted account ana@example.com and 1 stack.") {
		t.Fatalf("stderr %q, %v", stderr, err)
	}
	if _, ok, err := s.AccountByKey(t.Context(), auth.Hash(strings.TrimSpace(key))); ok || err != nil {
		t.Errorf("the key works, %v", err)
	}
	if _, err := s.Get(t.Context(), k.ID); err == nil {
		t.Error("the stack is there")
	}
	events, err := s.Events(t.Context(), k.ID, 0, 10)
	if err != nil || len(events) != 1 || events[0].Type != stack.EventDeleted {
		t.Errorf("events %v, %v, want stack.deleted", events, err)
	}
}

func TestAccountDelete_WithYesAsksNothing(t *testing.T) {
	dir := t.TempDir()
	if _, stderr, err := berthd(t, dir, "account", "create", "ana@example.com"); err != nil {
		t.Fatal(stderr)
	}
	stdout, stderr, err := berthd(t, dir, "account", "delete", "ana@example.com", "--yes")
	if err != nil || stdout != "" || stderr != "Deleted account ana@example.com. It owned no stacks.\n" {
		t.Errorf("stdout %q, stderr %q, %v", stdout, stderr, err)
	}
	_, stderr, err = berthd(t, dir, "account", "delete", "ana@example.com", "--yes")
	if err == nil || !strings.Contains(stderr, "ana@example.com has no account; nothing was deleted\n") {
		t.Errorf("stderr %q, %v", stderr, err)
	}
}

// verify reports whether a password is that of an account.
func verify(t *testing.T, s *store.Store, email, password string) bool {
	t.Helper()
	_, hash, ok, err := s.AccountByEmail(t.Context(), email)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	right, err := auth.NewPasswords(1).Verify(t.Context(), hash, password)
	if err != nil {
		t.Fatal(err)
	}
	return right
}

func TestAccountPassword_IsSetBesideARunningServer(t *testing.T) {
	dir := t.TempDir()
	s := serving(t, dir)
	if _, stderr, err := berthd(t, dir, "account", "create", "ana@example.com"); err != nil || !strings.Contains(stderr, "berthd account password ana@example.com") {
		t.Fatalf("stderr %q, %v", stderr, err)
	}
	for _, stdin := range []string{"correct horse\n", "another horse\r\n", "no line end", "  spaces count  \n"} {
		stdout, stderr, err := berthdReading(t, dir, stdin, "account", "password", "ANA@example.com")
		password := strings.TrimRight(stdin, "\r\n")
		if err != nil || stdout != "" || strings.Contains(stderr, password) {
			t.Fatalf("stdout %q, stderr %q, %v", stdout, stderr, err)
		}
		if !verify(t, s, "ana@example.com", password) {
			t.Errorf("%q is not the password", password)
		}
	}
}

func TestAccountCreate_TakesAPasswordFromStandardInput(t *testing.T) {
	dir := t.TempDir()
	s := serving(t, dir)
	stdout, stderr, err := berthdReading(t, dir, "correct horse\n", "account", "create", "ana@example.com", "--password-stdin")
	if err != nil || !oneKey.MatchString(stdout) || strings.Contains(stderr, "no password") {
		t.Fatalf("stdout %q, stderr %q, %v", stdout, stderr, err)
	}
	if !verify(t, s, "ana@example.com", "correct horse") {
		t.Error("it is not the password")
	}
}

func TestAccountPassword_SaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	if _, stderr, err := berthdReading(t, dir, "correct horse\n", "account", "create", "ana@example.com", "--password-stdin"); err != nil {
		t.Fatal(stderr)
	}
	for _, tt := range []struct{ stdin, args, want string }{
		{"", "account password ana@example.com", "no password on standard input"},
		{"\nlate password\n", "account password ana@example.com", "no password on standard input"},
		{"short\n", "account password ana@example.com", "8 characters"},
		{strings.Repeat("x", 10_000), "account password ana@example.com", "too long"},
		{"correct horse\n", "account password bo@example.com", "bo@example.com has no account; create one with berthd account create"},
		{"correct horse\n", "account password", "berthd account password takes one email address"},
		{"", "account create bo@example.com --password-stdin", "no password on standard input"},
		{"short\n", "account create bo@example.com --password-stdin", "8 characters"},
	} {
		stdout, stderr, err := berthdReading(t, dir, tt.stdin, strings.Fields(tt.args)...)
		if err == nil || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%s: stdout %q, stderr %q, %v, want one line with %q", tt.args, stdout, stderr, err, tt.want)
		}
	}
	if !verify(t, serving(t, dir), "ana@example.com", "correct horse") {
		t.Error("a refused command changed the password")
	}
}
