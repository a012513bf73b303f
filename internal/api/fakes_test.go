package api

import (
	"context"
	"crypto/rand"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// fakeHost records stacks in the real store and keeps their sources; tests
// settle them.
type fakeHost struct {
	store       *store.Store
	dir         string
	readData    func(ctx context.Context, service string, stop bool, w io.Writer) error
	replaceData func(service string, data io.Reader) error

	logs func(ctx context.Context, service, kind string, v logfile.View, w io.Writer) error

	follow func(ctx context.Context, service, kind string, v logfile.View, emit func(logfile.News) error) error

	run func(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error)

	mu     sync.Mutex
	latest map[string]stack.Generation // what was uploaded last, by stack; under mu

	noneAnonymous, full error        // what Admit says
	tooLarge            error        // what CheckDisk says
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

// Source is the folder of a kept source.
func (h *fakeHost) Source(id, name string) string { return filepath.Join(h.dir, id+"-"+name) }

// source returns the tree that was uploaded last.
func (h *fakeHost) source(id string) string {
	return source.Tree(h.Source(id, h.uploaded(id).Source.Folder))
}

// uploaded returns what was uploaded to a stack last.
func (h *fakeHost) uploaded(id string) stack.Generation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest[id]
}

// note notes an upload to a stack. It comes no later than the change of the row, since
// whoever sees the change may end the build.
func (h *fakeHost) note(id string, g stack.Generation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.latest[id] = g
}

// keep notes a source that was uploaded, and returns the folder that it is to have.
func (h *fakeHost) keep(id string, src *source.Source, services []stack.Service) (folder string) {
	folder = rand.Text()
	h.note(id, stack.Generation{Source: stack.Source{Folder: folder, Digest: src.Digest()}, Services: services})
	return folder
}

// move moves a source to its stack.
func (h *fakeHost) move(id, folder string, src *source.Source) error {
	return os.Rename(src.Dir(), h.Source(id, folder))
}

func (h *fakeHost) Create(ctx context.Context, s *stack.Stack, src *source.Source, receipt *store.Receipt) error {
	folder := h.keep(s.ID, src, s.Generation.Services)
	if err := h.store.Create(ctx, s, []stack.Event{s.Created()}, store.WithLimit(3), store.WithReceipt(receipt)); err != nil {
		return err
	}
	return h.move(s.ID, folder, src)
}

func (h *fakeHost) Configure(ctx context.Context, id string, change stack.EnvChange, receipt *store.Receipt) (*stack.Stack, error) {
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) {
		next, events, err := s.Configure(change, stack.URLs{Base: &url.URL{Scheme: "http", Host: "localhost:8080"}, AppsDomain: "localhost"}, stack.Now())
		h.note(id, next)
		return events, err
	}, store.WithLimit(3), store.WithReceipt(receipt))
}

func (h *fakeHost) Deploy(ctx context.Context, id string, u source.Upload, receipt *store.Receipt) (*stack.Stack, error) {
	services, folder := stack.Services(u.Manifest.Services), ""
	s, err := h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) {
		if err := u.CheckOver(s); err != nil {
			return nil, err
		}
		deploy := s.Deploy
		if u.Supersede {
			deploy = s.Supersede
		}
		events, err := deploy(services, stack.Now())
		if u.Fresh {
			s.BuildFresh()
		}
		s.Notify(u.Manifest.Webhook, u.WebhookSecret)
		if err == nil {
			folder = h.keep(id, u.Source, services)
		}
		return events, err
	}, store.WithLimit(3), store.WithReceipt(receipt))
	if err != nil {
		return nil, err
	}
	return s, h.move(id, folder, u.Source)
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

func (h *fakeHost) Restart(ctx context.Context, id, service string) (*stack.Stack, error) {
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) { return s.RestartService(service) })
}

func (h *fakeHost) RunCommand(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error) {
	return h.run(ctx, c, timeout, out)
}

func (h *fakeHost) ReadData(ctx context.Context, id, service string, stop bool, w io.Writer) error {
	return h.readData(ctx, service, stop, w)
}

func (h *fakeHost) CheckDisk(context.Context, string) error { return h.tooLarge }

func (h *fakeHost) ReplaceData(ctx context.Context, id, service string, data io.Reader) (*stack.Stack, error) {
	if err := h.replaceData(service, data); err != nil {
		return nil, err
	}
	return h.store.Get(ctx, id)
}

func (h *fakeHost) FollowLogs(ctx context.Context, _ *stack.Stack, service, kind string, v logfile.View, emit func(logfile.News) error) error {
	return h.follow(ctx, service, kind, v, emit)
}

func (h *fakeHost) Logs(ctx context.Context, _ *stack.Stack, service, kind string, v logfile.View, w io.Writer) error {
	return h.logs(ctx, service, kind, v, w)
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
