package server

import (
	"context"
	"io"

	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/supervisor"
)

// host implements what the API and the pages need of this machine.
type host struct {
	supervisor *supervisor.Supervisor
	dir        datadir.Dir
	gate       *admission.Gate
}

func (h host) Admit(unclaimed bool) error { return h.gate.Admit(unclaimed) }

func (h host) TempDir() (string, error) { return h.dir.TempDir() }

func (h host) Create(ctx context.Context, st *stack.Stack, dir string, receipt *store.Receipt) error {
	return h.supervisor.Create(ctx, st, dir, receipt)
}

func (h host) Deploy(ctx context.Context, id string, m *stack.Manifest, secret, dir string, receipt *store.Receipt) (*stack.Stack, error) {
	return h.supervisor.Deploy(ctx, id, m, secret, dir, receipt)
}

func (h host) Delete(ctx context.Context, id string) error { return h.supervisor.Delete(ctx, id) }

func (h host) Restart(ctx context.Context, id, service string) (*stack.Stack, error) {
	return h.supervisor.Restart(ctx, id, service)
}

func (h host) Logs(ctx context.Context, st *stack.Stack, service, kind string, tail int, w io.Writer) error {
	return h.dir.Logs(ctx, st, service, kind, tail, w)
}

func (h host) FollowLogs(ctx context.Context, st *stack.Stack, service, kind string, tail int, emit func(lines []string, anew bool) error) error {
	return h.dir.FollowLogs(ctx, st, service, kind, tail, emit)
}
