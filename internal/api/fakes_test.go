package api

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// fakeHost records stacks in the real store and keeps their sources; tests
// settle them.
type fakeHost struct {
	store *store.Store
	dir   string
	logs  func(ctx context.Context, service, kind string, tail int, w io.Writer) error

	follow func(ctx context.Context, service, kind string, tail int, emit func([]string, bool) error) error

	noneAnonymous, full error        // what Admit says
	room                atomic.Int64 // how often Admit does not yet say that it is full
}

func (h *fakeHost) Admit(unclaimed bool) error {
	if unclaimed && h.noneAnonymous != nil {
		return h.noneAnonymous
	}
	if h.room.Add(-1) >= 0 {
		return nil
	}
	return h.full
}

func (h *fakeHost) TempDir() (string, error) {
	return os.MkdirTemp(h.dir, "upload-")
}

func (h *fakeHost) uploads(t *testing.T) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(h.dir, "upload-*"))
	require.NoError(t, err)
	return left
}

func (h *fakeHost) source(id string) string { return filepath.Join(h.dir, id) }

func (h *fakeHost) Create(ctx context.Context, s *stack.Stack, dir string, receipt *store.Receipt) error {
	if err := h.store.Create(ctx, s, []stack.Event{s.Created()}, store.WithLimit(3), store.WithReceipt(receipt)); err != nil {
		return err
	}
	return os.Rename(dir, h.source(s.ID))
}

func (h *fakeHost) Deploy(ctx context.Context, id string, m *stack.Manifest, secret, dir string, receipt *store.Receipt) (*stack.Stack, error) {
	services := stack.Services(m.Services)
	s, err := h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) {
		events, err := s.Deploy(services, stack.Now())
		s.Notify(m.Webhook, secret)
		return events, err
	}, store.WithLimit(3), store.WithReceipt(receipt))
	if err != nil {
		return nil, err
	}
	return s, errors.Join(os.RemoveAll(h.source(id)), os.Rename(dir, h.source(id)))
}

func (h *fakeHost) Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error) {
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Claim(owner, email, stack.Now())
	})
}

func (h *fakeHost) Delete(ctx context.Context, id string) error {
	_, err := h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) { return s.Delete(stack.Now()) })
	return err
}

func (h *fakeHost) FollowLogs(ctx context.Context, _ *stack.Stack, service, kind string, tail int, emit func([]string, bool) error) error {
	return h.follow(ctx, service, kind, tail, emit)
}

func (h *fakeHost) Logs(ctx context.Context, _ *stack.Stack, service, kind string, tail int, w io.Writer) error {
	return h.logs(ctx, service, kind, tail, w)
}

// fakeLimiter admits a number of creates in all.
type fakeLimiter struct {
	mu       sync.Mutex
	left     int
	networks []string
}

func (l *fakeLimiter) Allow(ctx context.Context, network string) bool {
	_, ok := l.Take(ctx, network)
	return ok
}

func (l *fakeLimiter) Take(_ context.Context, network string) (func(), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left == 0 {
		return nil, false
	}
	l.left--
	l.networks = append(l.networks, network)
	return l.giveBack, true
}

func (l *fakeLimiter) Quota(context.Context, string) (limit, remaining int, reset time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return 1000, l.left, 90 * time.Second
}

func (l *fakeLimiter) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left++
}
