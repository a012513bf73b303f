package api

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Host runs stacks; the supervisor implements it.
type Host interface {
	// Create records the stack and starts its first build from dir, an unpacked source
	// tree, which it moves away if it succeeds. It fails with a *stack.Error if the cap
	// of the stack's network is reached. The receipt, nil for none, is recorded with
	// the stack or not at all.
	Create(ctx context.Context, s *stack.Stack, dir string, receipt *store.Receipt) error
	// Deploy accepts a new generation of a stack and starts its build from dir, as
	// Create does. The secret is used if the stack gets its first webhook. The caller
	// owns the returned stack. Deploy fails with a *stack.Error if the stack's state
	// does not allow it. The receipt, nil for none, is recorded with the change or not
	// at all.
	Deploy(ctx context.Context, id string, m *stack.Manifest, webhookSecret, dir string, receipt *store.Receipt) (*stack.Stack, error)
	// Delete ends the stack and returns once nothing of it is left.
	Delete(ctx context.Context, id string) error
}

// Admission decides whether something new may begin; package admission implements it.
type Admission interface {
	// Admit returns a *stack.Error if this host cannot take an upload now, or cannot
	// take one for an unclaimed stack. It is asked before an upload begins and while
	// one is written to disk.
	Admit(unclaimed bool) error
}

// Dir holds uploads and logs; package datadir implements it.
type Dir interface {
	// TempDir creates a folder for an upload on the disk that holds the sources.
	TempDir() (string, error)
	// Logs writes a section for each service, or only for the named one, with at most
	// tail lines each, as the programs wrote them; kind is run or build.
	Logs(ctx context.Context, s *stack.Stack, service, kind string, tail int, w io.Writer) error
	// FollowLogs calls emit with the last tail lines of a service's log and then with
	// new ones, as programs wrote them, until ctx ends or emit fails; anew means that
	// the log began anew.
	FollowLogs(ctx context.Context, s *stack.Stack, service, kind string, tail int, emit func(lines []string, anew bool) error) error
}

// Store holds the recorded state; package store implements it. For an unknown or
// deleted stack its methods fail with a *stack.Error of kind NotFound.
type Store interface {
	Get(ctx context.Context, id string) (*stack.Stack, error)
	Owned(ctx context.Context, accountID string) ([]*stack.Stack, error)
	Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error), options ...store.Option) (*stack.Stack, error)
	Events(ctx context.Context, id string, after int64, limit int) ([]stack.Event, error)
	FindManageToken(ctx context.Context, hash []byte) (id string, ok bool, err error)
	AccountByKey(ctx context.Context, hash []byte) (store.Account, bool, error)
	// FindReceipt returns the receipt of a request with an Idempotency-Key.
	FindReceipt(ctx context.Context, key string) (r store.Receipt, ok bool, err error)
	AnswerReceipt(ctx context.Context, key, answer string) error
	DropReceipt(ctx context.Context, key string) error
	SweepReceipts(ctx context.Context) error
	Watch(id string) (wake <-chan struct{}, stop func())
}

// Limiter counts requests of one kind, by the caller's network or by stack.
type Limiter interface {
	account.Limiter
	// Quota returns the limit, the number of requests left, and the time until more are
	// left.
	Quota(ctx context.Context, network string) (limit, remaining int, reset time.Duration)
}

// Config is what the API needs from the rest of the server.
type Config struct {
	Store       Store
	Host        Host
	Admission   Admission
	Dir         Dir
	Creates     Limiter // of anonymous creates that make a stack
	Refusals    Limiter // of anonymous creates refused with 413 or 422
	Codes       Limiter // of claims
	Validations Limiter
	Extensions  Limiter // of changes of the TTL, by stack
	Claims      account.Claims
	URLs        stack.URLs
	Limits      stack.Limits
	Key         auth.Key // of the installation, for the hashes of claim codes

	MaxUpload int64          // bytes of the archive as uploaded
	Unpacked  archive.Limits // of the archive's content
	Wait      time.Duration  // how long wait=true holds a response at most

	Unpacks    *fair.Queue   // slots of uploads that are unpacked at once, by the caller's network
	UnpackWait time.Duration // how long an upload waits for a slot at most

	// CallerHeader is the request header in which the edge passes the caller's address.
	// The edge replaces whatever the caller sent under that name.
	CallerHeader string
	Log          *slog.Logger

	// Observe is called after each answer, with the route as the documentation writes
	// it, "" if there is none. It may be nil.
	Observe func(route, method string, status int, took time.Duration)
}

// API serves the routes of docs/api.md, "Endpoints".
type API struct {
	cfg      Config
	server   *appserver.Server
	routes   []route
	gate     gate
	quotas   quotas
	uploads  uploads
	receipts receipts
}

// New returns an API that is ready to serve.
func New(cfg Config) *API {
	if cfg.Observe == nil {
		cfg.Observe = func(string, string, int, time.Duration) {}
	}
	a := &API{cfg: cfg}
	a.routes = a.table()
	a.server = appserver.New(appserver.Options{
		Name: "the API",
		App: fiber.Config{
			StreamRequestBody:            true,
			DisablePreParseMultipartForm: true,
			BodyLimit:                    1, // read before the handler, which knows how slow a body may be
			ErrorHandler:                 a.answerError,
			JSONEncoder:                  plainjson.Marshal,
		},
		Routes:      a.addRoutes,
		Around:      a.around,
		Malformed:   a.answerMalformed,
		BodyTimeout: slowbody.Stall,
		Log:         cfg.Log,
	})
	base := a.server.Context()
	a.gate = gate{store: cfg.Store, base: base}
	a.quotas = quotas{creates: cfg.Creates, refusals: cfg.Refusals, callerHeader: cfg.CallerHeader, base: base}
	a.uploads = uploads{cfg: cfg, checks: fair.NewQueue(maxChecks), network: a.quotas.network, base: base}
	a.receipts = receipts{store: cfg.Store, callerHeader: cfg.CallerHeader, log: cfg.Log, base: base}
	return a
}

// Serve answers the connections of ln until Shutdown.
func (a *API) Serve(ln net.Listener) error {
	var sweeping sync.WaitGroup
	sweeping.Go(func() { a.receipts.sweep(a.server.Released()) })
	defer sweeping.Wait()
	defer a.Release()
	return a.server.Serve(listener{ln})
}

// Release ends every stream and every wait=true at once, with the stack as it is, and
// makes later ones return immediately. Call it first when shutting down.
func (a *API) Release() { a.server.Release() }

// Shutdown accepts no new connections and waits for open requests. If ctx ends first,
// it cancels what they wait for and returns the context's error.
func (a *API) Shutdown(ctx context.Context) error { return a.server.Shutdown(ctx) }
