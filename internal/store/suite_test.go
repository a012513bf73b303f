package store_test

import (
	"context"
	"database/sql"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// database is a database of one kind without rows, on which stores are opened.
type database interface {
	// open returns a store of the database, as a starting server opens it, until the
	// test ends.
	open(t testing.TB) *store.Store
	// exec and row query the database directly, as a shell would. Each ? stands for one
	// argument, in order.
	exec(t testing.TB, query string, args ...any)
	row(t testing.TB, query string, args ...any) *sql.Row
	// dump returns everything in the database.
	dump(t testing.TB) string
	// name is its name in errors.
	name() string
}

// suite is what every kind of database must pass: its methods are the tests.
type suite struct{ fresh func(testing.TB) database }

func (on suite) run(t *testing.T) {
	for method, test := range reflect.ValueOf(on).Methods() {
		t.Run(method.Name, test.Interface().(func(*testing.T)))
	}
}

// open opens a new database.
func (on suite) open(t testing.TB) (*store.Store, database) {
	db := on.fresh(t)
	return db.open(t), db
}

// openAndClose makes the tables of a database.
func openAndClose(opts store.Options) error {
	s, err := store.Open(context.Background(), opts)
	if err != nil {
		return err
	}
	return s.Close()
}

// openStore opens a store until the test ends.
func openStore(t testing.TB, opts store.Options) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// create stores a small stack of one network.
func create(t testing.TB, s *store.Store, events ...stack.Event) *stack.Stack {
	t.Helper()
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	k.Network = "192.0.2.1"
	if err := s.Create(t.Context(), k, events); err != nil {
		t.Fatal(err)
	}
	return k
}

func get(t testing.TB, s *store.Store, id string) *stack.Stack {
	t.Helper()
	k, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// fill gives every field below v a distinct value, so that a test notices a field that
// the store does not keep.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("it's <%d> ü", *n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.UnixMicro(1_800_000_000_123_456 + int64(*n)).UTC()))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("fill cannot make a " + v.Type().String())
	}
}

func fullStack(t *testing.T, s *store.Store) *stack.Stack {
	t.Helper()
	account, err := s.CreateAccount(t.Context(), "ana@example.com", "", store.Key{Hash: []byte("hash")})
	if err != nil {
		t.Fatal(err)
	}
	k := &stack.Stack{}
	fill(reflect.ValueOf(k).Elem(), new(int))
	k.Owner = account.ID
	return k
}

func (on suite) TestStore_KeepsEveryFieldOfAStack(t *testing.T) {
	s, db := on.open(t)
	full := fullStack(t, s)
	for name, k := range map[string]*stack.Stack{
		"zero":  {ID: "stk_0"},
		"new":   stack.New("new", []stack.Spec{{Name: "web", Env: map[string]stack.Env{}}, {Name: "api"}}, stack.Now()),
		"large": {ID: "stk_1", Error: strings.Repeat("x", 1<<20), Secrets: map[string]string{"web/KEY": strings.Repeat("y", 1<<20)}},
		"full":  full,
	} {
		if err := s.Create(t.Context(), k, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(k, get(t, s, k.ID)); diff != "" {
			t.Errorf("%s, read back (-stored +read):\n%s", name, diff)
		}
		if diff := cmp.Diff(k, get(t, db.open(t), k.ID)); diff != "" {
			t.Errorf("%s, read after opening again (-stored +read):\n%s", name, diff)
		}
	}
}

func (on suite) TestStore_KeepsEveryFieldOfAnUpdate(t *testing.T) {
	s, _ := on.open(t)
	full := fullStack(t, s)
	k := create(t, s)
	for name, want := range map[string]stack.Stack{"full": *full, "zero": {}} {
		want.ID, want.Seq = k.ID, k.Seq
		got, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			*k = want
			k.ID, k.Seq = "stk_other", 77
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("%s, returned (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(&want, get(t, s, k.ID)); diff != "" {
			t.Errorf("%s, read back (-want +got):\n%s", name, diff)
		}
	}
}

func (on suite) TestStore_WritesNoSecretInTheClear(t *testing.T) {
	s, db := on.open(t)
	token, code, webhook := auth.NewManageToken(), auth.NewClaimCode(), auth.NewWebhookSecret()
	k := stack.New("guestbook", []stack.Spec{{Name: "web", Env: map[string]stack.Env{"API_TOKEN": {Value: "hunter2-in-env"}}}}, stack.Now())
	k.ManageTokenHash, k.ClaimCodeHash = auth.Hash(token), auth.Key{1}.HashClaimCode(code)
	k.WebhookSecret = webhook
	k.Secrets["web/SESSION_KEY"] = "generated-for-session"
	if err := s.Create(t.Context(), k, []stack.Event{k.Created()}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Secrets["web/SECOND"] = "generated-second"
		k.Generation.Variables = stack.Variables{"": {"STRIPE_KEY": {Value: "set-for-all"}}}
		return nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, k.ID); got.WebhookSecret != webhook || got.Secrets["web/SECOND"] != "generated-second" {
		t.Errorf("the secrets read back are %q and %v", got.WebhookSecret, got.Secrets)
	}
	files := db.dump(t)
	if !strings.Contains(files, k.ID) {
		t.Fatal("the database does not even hold the stack's id")
	}
	for _, secret := range []string{token, code, webhook, "hunter2-in-env", "API_TOKEN", "generated-for-session", "SESSION_KEY", "generated-second", "STRIPE_KEY", "set-for-all"} {
		if strings.Contains(files, secret) {
			t.Errorf("the database holds %q", secret)
		}
	}
}

func (on suite) TestStore_ForgetsTheSecretsOfADeletedStack(t *testing.T) {
	s, db := on.open(t)
	k := fullStack(t, s)
	k.Status = stack.Live
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	if err := s.ForgetWebhook(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	var left int
	err := db.row(t, `SELECT count(*) FROM stacks WHERE coalesce(
		manage_token_hash, claim_code_hash, webhook_secret_sealed, secrets_sealed, env_sealed, variables_sealed) IS NOT NULL`).Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("%d deleted stacks hold something secret, %v", left, err)
	}
}

func (on suite) TestUpdate_ADeletionClearsWhatIsNotNeededAfterIt(t *testing.T) {
	s, db := on.open(t)
	k := fullStack(t, s)
	k.Status = stack.Live
	if err := s.Create(t.Context(), k, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) }); err != nil {
		t.Fatal(err)
	}
	checkCleared(t, db, k)
}

// checkCleared looks into the row of a deleted stack, which had something in
// every field.
func checkCleared(t *testing.T, db database, was *stack.Stack) {
	t.Helper()
	var services, row string
	var sealed bool
	err := db.row(t, `SELECT services, claim_email || network || error || deploy_error,
		coalesce(secrets_sealed, env_sealed) IS NOT NULL FROM stacks WHERE id = ? AND status = 'deleted'`, was.ID).Scan(&services, &row, &sealed)
	if err != nil || strings.Contains(services, "start") || len(services) > len("null") || row != "" || sealed {
		t.Errorf("services %s and %q are kept, secrets %v, %v", services, row, sealed, err)
	}
}

// A second store of the same database, opened while the first is still there,
// simulates a server that starts after a crash.
func (on suite) TestStore_OpensWhatWasNeverClosed(t *testing.T) {
	s, db := on.open(t)
	k := create(t, s, stack.Event{Type: stack.EventCreated})
	second := db.open(t)
	if got := get(t, second, k.ID); got.Seq != k.Seq || len(eventsOf(t, second, k.ID)) != 1 {
		t.Errorf("read %+v with %v", got, eventsOf(t, second, k.ID))
	}
	setStatus(t, second, k.ID, stack.Live)
	if got := get(t, s, k.ID); got.Status != stack.Live {
		t.Errorf("the first store reads status %s, want live", got.Status)
	}
}
