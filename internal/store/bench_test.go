package store_test

import (
	"testing"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// benchStack is a stack of two services as a deploy makes it.
func benchStack() *stack.Stack {
	env := map[string]stack.Env{"LOG_LEVEL": {Value: "info"}, "SESSION_KEY": {Generate: true}}
	k := stack.New("guestbook", []stack.Spec{
		{Name: "web", Install: "npm ci", Start: "node server.js", Env: env},
		{Name: "api", Build: "go build", Start: "./api", Env: env},
	}, stack.Now())
	k.Network = k.ID // of its own, as the cap finds few stacks in one
	k.ManageTokenHash, k.ClaimCodeHash = auth.Hash(auth.NewManageToken()), auth.Hash(auth.NewClaimCode())
	k.WebhookSecret = auth.NewWebhookSecret()
	k.Secrets["web/SESSION_KEY"] = auth.NewAPIKey()
	return k
}

func BenchmarkCreate(b *testing.B) { onBoth(b, benchCreate) }

func benchCreate(b *testing.B, s *store.Store) {
	for b.Loop() {
		k := benchStack()
		if err := s.Create(b.Context(), k, []stack.Event{k.Created()}, store.WithLimit(3)); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
}

func BenchmarkUpdate(b *testing.B) { onBoth(b, benchUpdate) }

func benchUpdate(b *testing.B, s *store.Store) {
	k := benchStack()
	if err := s.Create(b.Context(), k, nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Update(b.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) {
			return []stack.Event{k.Ready("web", "http://web.localhost")}, nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
}

func BenchmarkGet(b *testing.B) { onBoth(b, benchGet) }

func benchGet(b *testing.B, s *store.Store) {
	k := benchStack()
	if err := s.Create(b.Context(), k, nil); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Get(b.Context(), k.ID); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
}

// onBoth runs a benchmark on each kind of database. That of PostgreSQL waits for the disk,
// as that of SQLite does.
func onBoth(b *testing.B, bench func(*testing.B, *store.Store)) {
	b.Run("SQLite", func(b *testing.B) { bench(b, newSQLite(b).open(b)) })
	b.Run("PostgreSQL", func(b *testing.B) { bench(b, postgres(postgrestest.Start(b).Database(b)).open(b)) })
}

func perSecond(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}
