package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// copyRows copies a database, and returns how many rows of each table.
func copyRows(t *testing.T, from, to store.Options, belongs store.Belonging) (map[string]int64, error) {
	t.Helper()
	copied, err := store.Copy(t.Context(), store.Copying{
		From: from, To: to, Log: slog.New(slog.DiscardHandler),
		Decide: func(store.Source) (store.Belonging, error) { return belongs, nil },
	})
	rows := map[string]int64{}
	for _, c := range copied {
		rows[c.Table] = c.Rows
	}
	return rows, err
}

func mustCopy(t *testing.T, from, to store.Options, belongs store.Belonging) map[string]int64 {
	t.Helper()
	rows, err := copyRows(t, from, to, belongs)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// writeEverything writes rows of every kind that one machine has, and closes the store. Of
// stacks and sessions, the last number belongs to no row.
func writeEverything(t *testing.T, s *store.Store) *stack.Stack {
	t.Helper()
	full := fullStack(t, s)
	full.Node, full.Epoch = "", 0
	full.Error = "a\x00b \xff ü 'c' \U0001F600"
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Create(t.Context(), full, []stack.Event{full.Created(), {Type: stack.EventReady, Data: map[string]any{"service": "web", "n": nil}}}))
	must(s.Create(t.Context(), &stack.Stack{ID: "stk_zero"}, nil))
	for i := range 60 { // more than one statement takes
		create(t, s, stack.Event{Type: stack.EventLive, Data: map[string]any{"i": i}})
	}
	gone := hooked(t, s, stack.Event{Type: stack.EventLive})
	_, err := s.Update(t.Context(), gone.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	must(err)
	must(s.SetWebhookMark(t.Context(), "", 3))

	bo := newAccount(t, s, "bo@example.com")
	signIn(t, s, bo, "kept", time.Hour)
	signIn(t, s, bo, "ended", time.Hour)
	must(s.EndSession(t.Context(), []byte("ended")))
	must(s.SetMailOff(t.Context(), bo.ID, true))
	must(s.AskMail(t.Context(), store.Mail{Kind: store.MailReset, Address: "bo@example.com"}))
	must(s.AddMailToken(t.Context(), []byte("token"), store.MailToken{Kind: store.MailConfirm, Account: bo, StackID: full.ID}, stack.Now().Add(time.Hour)))
	must(s.AddDeliveries(t.Context(), []store.Delivery{delivery(full.ID, "words \x00"), delivery(full.ID, "")}))
	addCommand(t, s, full.ID, "still running")
	ended := addCommand(t, s, full.ID, "echo 'done'")
	code := 3
	ended.EndedAt, ended.ExitCode, ended.TimedOut, ended.Error = stack.Now(), &code, true, "it took too long"
	must(s.EndCommand(t.Context(), ended))
	keep(t, s, "open", 0)
	keep(t, s, "answered", 0)
	must(s.AnswerReceipt(t.Context(), "answered", `{"id":"x"}`))
	must(s.PutCertificate(t.Context(), "a/b", []byte("\x00\xff")))
	addDomain(t, s, full, "www.example.com")
	must(s.DisableAccount(t.Context(), bo.ID, "spam"))
	must(s.SetBan(t.Context(), store.Ban{Network: netip.MustParsePrefix("203.0.113.0/24"), CreatedAt: stack.Now()}))
	entry, err := s.Audit(t.Context(), store.AuditEntry{At: stack.Now(), UID: 1000, Command: "audit", Result: "begun"})
	must(err)
	must(s.EndAudit(t.Context(), entry, "ok"))
	must(s.Reserve(t.Context(), 5000))
	must(s.Close())
	return full
}

// rawDatabase is a database that is opened without a store.
type rawDatabase interface{ raw(testing.TB) *sql.DB }

// query returns all rows that a query finds, as texts, sorted. A boolean is 0 or 1.
func query(t *testing.T, from rawDatabase, query string) []string {
	t.Helper()
	db := from.raw(t)
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(query, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for rows.Next() {
		values := make([]any, len(columns))
		for i := range values {
			values[i] = new(any)
		}
		if err := rows.Scan(values...); err != nil {
			t.Fatal(err)
		}
		var row strings.Builder
		for i, column := range columns {
			value := *values[i].(*any)
			if truth, ok := value.(bool); ok {
				value = map[bool]int64{true: 1}[truth]
			}
			fmt.Fprintf(&row, "%s=%T:%q ", column, value, fmt.Sprint(value))
		}
		all = append(all, row.String())
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// copiedTables are the tables of a database whose rows stay as they are.
func copiedTables(t *testing.T, file sqliteFile) map[string]string {
	t.Helper()
	columns := map[string]string{}
	for _, row := range query(t, file, `SELECT m.name, group_concat(c.name ORDER BY c.name) AS c FROM sqlite_schema m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name <> 'goose_db_version' GROUP BY m.name`) {
		parts := strings.Split(row, `"`)
		columns[parts[1]] = parts[3]
	}
	delete(columns, "installation")
	return columns
}

// wantSame checks that two databases have the same rows, once the texts of the first are what
// PostgreSQL can have.
func wantSame(t *testing.T, tables map[string]string, from, to rawDatabase) {
	t.Helper()
	for table, columns := range tables {
		want := query(t, from, "SELECT "+columns+" FROM "+table)
		for i := range want {
			want[i] = strings.NewReplacer(`\x00`, "\uFFFD", `\xff`, "\uFFFD").Replace(want[i])
		}
		if diff := cmp.Diff(want, query(t, to, "SELECT "+columns+" FROM "+table)); diff != "" {
			t.Errorf("%s (-from +to):\n%s", table, diff)
		}
	}
}

func TestCopy_TakesRowsOfEveryKindToPostgresAndBack(t *testing.T) {
	first, db, last := newFile(t), newPostgres(t).(postgres), newFile(t)
	full := writeEverything(t, first.open(t))
	tables := copiedTables(t, first)
	mine := store.Installation{ID: "i", KeyPrint: "k", BaseURL: "b", AppsDomain: "a", Cluster: "off"}
	before := query(t, first, "SELECT * FROM stacks")
	rows := mustCopy(t, options(string(first)), db.options(), store.Belonging{Installation: &mine})
	for table := range tables {
		if n := rows[table]; n == 0 && !slices.Contains([]string{"nodes", "remains", "webhook_owed", "moves", "certificate_locks"}, table) {
			t.Errorf("no row of %s was copied, so the test shows nothing", table)
		}
	}
	if rows["stacks"] != 65 {
		t.Errorf("%d stacks were copied", rows["stacks"])
	}
	if diff := cmp.Diff(before, query(t, first, "SELECT * FROM stacks")); diff != "" {
		t.Errorf("the source changed:\n%s", diff)
	}
	wantSame(t, tables, first, db)
	if got := query(t, db, "SELECT id, key_print, base_url, apps_domain, cluster FROM installation"); len(got) != 1 || !strings.Contains(got[0], `cluster=string:"off"`) {
		t.Error(got)
	}
	s := db.open(t)
	got := get(t, s, full.ID)
	if got.Error != "a\uFFFDb \uFFFD ü 'c' \U0001F600" || !cmp.Equal(got.Secrets, full.Secrets) {
		t.Errorf("it is read as %q with %v", got.Error, got.Secrets)
	}
	if !isSignedIn(t, s, "kept") || isSignedIn(t, s, "ended") {
		t.Error("sessions differ")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustCopy(t, db.options(), options(string(last)), store.Belonging{})
	wantSame(t, tables, db, last)
	if info, err := os.Stat(string(last)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	checkNumbers(t, first, db, last)
	if got := get(t, last.open(t), full.ID); !cmp.Equal(got.Secrets, full.Secrets) {
		t.Errorf("it is read with %v", got.Secrets)
	}
}

// checkNumbers checks that all three databases number rows from the same numbers on.
func checkNumbers(t *testing.T, first sqliteFile, db postgres, last sqliteFile) {
	t.Helper()
	numbered := query(t, db, "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema() AND is_identity = 'YES' AND table_name <> 'goose_db_version'")
	if len(numbered) != 7 {
		t.Errorf("%d tables number their rows", len(numbered))
	}
	for _, row := range numbered {
		parts := strings.Split(row, `"`)
		table, column := parts[1], parts[3]
		var want, highest, got, back int64
		for _, read := range []struct {
			row *sql.Row
			to  *int64
		}{
			{first.row(t, "SELECT seq FROM sqlite_sequence WHERE name = ?", table), &want},
			{first.row(t, "SELECT max("+column+") FROM "+table), &highest},
			{db.row(t, "SELECT nextval('"+table+"_"+column+"_seq') - 1"), &got},
			{last.row(t, "SELECT seq FROM sqlite_sequence WHERE name = ?", table), &back},
		} {
			if err := read.row.Scan(read.to); err != nil {
				t.Fatal(table, err)
			}
		}
		if got != want || back != want || want < highest || want == 0 {
			t.Errorf("%s goes on after %d in PostgreSQL and %d back in SQLite, want %d; the highest is %d", table, got, back, want, highest)
		}
		if (table == "stacks" || table == "sessions") && want == highest {
			t.Errorf("%s has the row with its last number", table)
		}
	}
}

func TestCopy_MakesAMachineTheFirstNodeAndBack(t *testing.T) {
	file, db, back := newFile(t), newPostgres(t).(postgres), newFile(t)
	full := writeEverything(t, file.open(t))
	mustCopy(t, options(string(file)), db.options(), store.Belonging{Node: "n1", Installation: &store.Installation{ID: "i", Cluster: "swarm", Swarm: "s"}})
	s := db.open(t)
	if got := get(t, s, full.ID); got.Node != "n1" || got.Epoch != 1 {
		t.Errorf("node %q, epoch %d", got.Node, got.Epoch)
	}
	if mark, err := s.WebhookMark(t.Context(), "n1"); err != nil || mark != 3 {
		t.Errorf("mark %d, %v", mark, err)
	}
	found, known, err := s.Installation(t.Context())
	if want := (store.Installation{ID: "i", Cluster: "swarm", Swarm: "s"}); err != nil || !known || found != want {
		t.Errorf("%+v, %v", found, err)
	}

	// The life of a cluster: a node that came, got a stack and deleted it, and gave another back.
	register(t, s, nodeOne, time.Minute)
	deleted, returned := hookedOn(t, s, "n2"), createOn(t, s, "n2")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.SetWebhookMark(t.Context(), "n2", 7))
	_, err = s.AskMove(t.Context(), full.ID, "n2")
	must(err)
	_, err = s.LockCertificate(t.Context(), "issue", "n2", time.Hour)
	must(err)
	returned = moveTo(t, s, returned, "n1")
	_, err = s.Update(t.Context(), deleted.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	must(err)
	endLease(t, s, nodeOne)
	must(s.Close())

	mustCopy(t, db.options(), options(string(back)), store.Belonging{Before: "n1"})
	s = back.open(t)
	for _, table := range []string{"remains", "moves", "certificate_locks", "nodes", "installation"} {
		if rows := query(t, back, "SELECT * FROM "+table); len(rows) != 0 {
			t.Errorf("%s has %v", table, rows)
		}
	}
	if rows := query(t, back, "SELECT id FROM stacks WHERE node <> '' OR epoch <> 0"); len(rows) != 0 {
		t.Errorf("of a node are %v", rows)
	}
	if mark, err := s.WebhookMark(t.Context(), ""); err != nil || mark != 3 {
		t.Errorf("mark %d, %v", mark, err)
	}
	owed, err := s.OwedEvents(t.Context(), "")
	if err != nil || len(owed) != 2 || !slices.ContainsFunc(owed, ofStack(deleted.ID)) || !slices.ContainsFunc(owed, ofStack(returned.ID)) {
		t.Errorf("owed are %+v, %v; want those of %s and %s", owed, err, returned.ID, deleted.ID)
	}
}

// ofStack reports whether events of a stack are owed from those on that n2 has not begun to
// deliver.
func ofStack(id string) func(store.Owed) bool {
	return func(o store.Owed) bool { return o.StackID == id && o.After == 7 }
}

func TestCopy_TellsWhoOwnsStacks(t *testing.T) {
	db := newPostgres(t).(postgres)
	s := db.open(t)
	register(t, s, nodeOne, time.Minute)
	one := createOn(t, s, "n1")
	createOn(t, s, "n2")
	setStatus(t, s, createOn(t, s, "n3").ID, stack.Deleted)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("refused")
	var got store.Source
	file := newFile(t)
	_, err := store.Copy(t.Context(), store.Copying{From: db.options(), To: options(string(file)), Decide: func(source store.Source) (store.Belonging, error) {
		got = source
		return store.Belonging{}, refusal
	}})
	if !errors.Is(err, refusal) {
		t.Fatal(err)
	}
	if len(got.Owners) != 2 || got.Owners[0] != (store.Owner{Node: "n1", Name: nodeOne.Name, Stacks: 1, First: one.ID}) || got.Owners[1].Node != "n2" {
		t.Errorf("owners %+v", got.Owners)
	}
	if _, err := os.Stat(string(file)); err == nil {
		t.Error("there is a file")
	}
}

func TestCopy_RefusesInOneLine(t *testing.T) {
	file := newFile(t)
	writeEverything(t, file.open(t))
	source := options(string(file))
	changed := func(t *testing.T, query string) store.Options {
		t.Helper()
		other := newFile(t)
		data, err := os.ReadFile(string(file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(string(other), data, 0o600); err != nil {
			t.Fatal(err)
		}
		other.exec(t, query)
		return options(string(other))
	}
	filled := func(t *testing.T, query string) store.Options {
		t.Helper()
		db := newPostgres(t).(postgres)
		if err := db.open(t).Close(); err != nil {
			t.Fatal(err)
		}
		db.exec(t, query)
		return db.options()
	}
	empty := func(t *testing.T) store.Options { return newPostgres(t).(postgres).options() }
	for want, ends := range map[string]func(t *testing.T) (from, to store.Options){
		"there is no database": func(t *testing.T) (from, to store.Options) { return options(string(newFile(t))), empty(t) },
		"is not a database of Berth": func(t *testing.T) (from, to store.Options) {
			return changed(t, "ALTER TABLE stacks RENAME TO other"), empty(t)
		},
		"start this berthd on it once": func(t *testing.T) (from, to store.Options) {
			return changed(t, "DELETE FROM goose_db_version WHERE version_id > 16"), empty(t)
		},
		"use the berthd that wrote it": func(t *testing.T) (from, to store.Options) {
			return changed(t, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)"), empty(t)
		},
		"the table stacks has other columns": func(t *testing.T) (from, to store.Options) {
			return changed(t, "ALTER TABLE stacks ADD COLUMN more TEXT"), empty(t)
		},
		"has the table news, which this berthd does not copy": func(t *testing.T) (from, to store.Options) {
			return changed(t, "CREATE TABLE news (id TEXT)"), empty(t)
		},
		"is not empty: it has 1 rows in accounts": func(t *testing.T) (from, to store.Options) {
			return source, filled(t, "INSERT INTO accounts (id, email, key_hash, created_at) VALUES ('a', 'a', '', 0)")
		},
		"is not empty: it has the table foreign_one": func(t *testing.T) (from, to store.Options) {
			return source, filled(t, "CREATE TABLE foreign_one (id TEXT)")
		},
		"127.0.0.1:1": func(t *testing.T) (from, to store.Options) {
			return source, store.Options{Postgres: "postgres://berth@127.0.0.1:1/berth?sslmode=disable"}
		},
		"a server or a command uses it": func(t *testing.T) (from, to store.Options) {
			db := newPostgres(t).(postgres)
			db.open(t)
			return source, db.options()
		},
		"berth.db: open: a server or a command uses it": func(t *testing.T) (from, to store.Options) {
			sqliteFile(source.Path).open(t)
			return source, empty(t)
		},
	} {
		t.Run(want, func(t *testing.T) {
			from, to := ends(t)
			if _, err := copyRows(t, from, to, store.Belonging{}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// A server that has written nothing since PostgreSQL was restarted holds no lock, and goes on
// renewing the lease of its node.
func TestCopy_RefusesWhileANodeRenewsItsLease(t *testing.T) {
	db, file := newPostgres(t).(postgres), newFile(t)
	s := db.open(t)
	register(t, s, nodeOne, time.Minute)
	db.exec(t, "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE d.datname = current_database() AND l.locktype = 'advisory'")
	var renewing sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	renewing.Go(func() {
		for pause.For(ctx, 100*time.Millisecond) {
			_, _ = s.RenewLease(ctx, nodeOne, time.Minute) // again after an error
		}
	})
	_, err := copyRows(t, db.options(), options(string(file)), store.Belonging{})
	cancel()
	renewing.Wait()
	if err == nil || !strings.Contains(err.Error(), "a server runs on node "+nodeOne.Name) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(string(file)); err == nil {
		t.Error("there is a file")
	}
}

func TestCopy_WaitsForTheEndOfTheLeaseOfAStoppedServer(t *testing.T) {
	db := newPostgres(t).(postgres)
	s := db.open(t)
	until := register(t, s, nodeOne, 2*time.Second).At.Add(2 * time.Second)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mustCopy(t, db.options(), options(string(newFile(t))), store.Belonging{})
	s = db.open(t)
	if now, err := s.Now(t.Context()); err != nil || now.Before(until) {
		t.Errorf("copied at %s, %s before the lease was over, %v", now, until.Sub(now), err)
	}
}

func TestCopy_ThatFailsLeavesTheTargetEmpty(t *testing.T) {
	file, db := newFile(t), newPostgres(t).(postgres)
	writeEverything(t, file.open(t))
	file.exec(t, "PRAGMA foreign_keys = 0; INSERT INTO commands (id, stack_id, service, run_by, command_sealed, started_at, timed_out, error) VALUES ('x', 'stk_none', '', '', x'', 0, 0, '')")
	if _, err := copyRows(t, options(string(file)), db.options(), store.Belonging{}); err == nil || !strings.Contains(err.Error(), "copy commands") {
		t.Fatal(err)
	}
	for table := range copiedTables(t, file) {
		if rows := query(t, db, "SELECT * FROM "+table); len(rows) > 0 && table != "webhook_mark" {
			t.Errorf("%s has %d rows", table, len(rows))
		}
	}
	file.exec(t, "DELETE FROM commands WHERE id = 'x'")
	mustCopy(t, options(string(file)), db.options(), store.Belonging{})
}

// A server that starts meanwhile waits, as for a database that is away.
func TestOpen_IsRefusedWhileRowsAreCopied(t *testing.T) {
	db := newPostgres(t).(postgres)
	if err := db.open(t).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := store.Copy(t.Context(), store.Copying{From: db.options(), To: options(string(newFile(t))), Decide: func(store.Source) (store.Belonging, error) {
		_, err := store.Open(t.Context(), store.Options{Postgres: string(db), Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
		return store.Belonging{}, err
	}})
	if !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "berthd migrate") {
		t.Error(err)
	}
}
