package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/sse"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Host runs stacks; the supervisor implements it.
type Host interface {
	// Admit tells whether an upload may begin, and whether one that is on its way
	// to disk may go on. It fails with a *stack.Error when this host cannot take
	// one now, or none for an unclaimed stack.
	Admit(unclaimed bool) error
	// Create records the stack and starts its first build from dir, an
	// unpacked source tree, which it moves away when it succeeds. It fails
	// with a *stack.Error when the cap of the stack's network is reached.
	// The receipt, nil for none, is recorded with the stack or not at all.
	Create(ctx context.Context, s *stack.Stack, dir string, receipt *store.Receipt) error
	// Deploy accepts a new generation of a stack and starts its build from
	// dir, as Create does. The secret is for a stack that gets its first
	// webhook. The stack that it returns is the caller's own. It fails with a
	// *stack.Error when the stack's state does not allow it. The receipt, nil
	// for none, is recorded with the change or not at all.
	Deploy(ctx context.Context, id string, m *stack.Manifest, webhookSecret, dir string, receipt *store.Receipt) (*stack.Stack, error)
	// Delete ends the stack and returns once nothing of it is left.
	Delete(ctx context.Context, id string) error
	// Logs writes one section per service, or the one of the named service,
	// with at most tail lines each, which hold the bytes that programs wrote; kind
	// is run or build.
	Logs(ctx context.Context, s *stack.Stack, service, kind string, tail int, w io.Writer) error
	// FollowLogs gives emit the last tail lines of a service's log and then
	// those that come, as programs wrote them, until ctx ends or emit fails; anew
	// says that the log began anew.
	FollowLogs(ctx context.Context, s *stack.Stack, service, kind string, tail int, emit func(lines []string, anew bool) error) error
	// TempDir makes a folder for an upload, on the disk where sources are kept.
	TempDir() (string, error)
}

// Store is what is recorded; package store implements it. An unknown or deleted
// stack is a *stack.Error of kind NotFound.
type Store interface {
	Get(ctx context.Context, id string) (*stack.Stack, error)
	Owned(ctx context.Context, accountID string) ([]*stack.Stack, error)
	Update(ctx context.Context, id string, fn func(*stack.Stack) ([]stack.Event, error)) (*stack.Stack, error)
	Events(ctx context.Context, id string, after int64, limit int) ([]stack.Event, error)
	FindManageToken(ctx context.Context, hash []byte) (id string, ok bool, err error)
	AccountByKey(ctx context.Context, hash []byte) (store.Account, bool, error)
	// FindReceipt finds what is kept of a request with an Idempotency-Key.
	FindReceipt(ctx context.Context, key string) (r store.Receipt, ok bool, err error)
	AnswerReceipt(ctx context.Context, key, answer string) error
	DropReceipt(ctx context.Context, key string) error
	SweepReceipts(ctx context.Context) error
	Watch(id string) (wake <-chan struct{}, stop func())
}

// Limiter counts requests of one sort by client network, or by stack.
type Limiter interface {
	account.Limiter
	// Quota tells the limit, how many requests are left of it, and after what
	// time there are more.
	Quota(ctx context.Context, network string) (limit, remaining int, reset time.Duration)
}

// Config is what the API needs from the rest of the server.
type Config struct {
	Store       Store
	Host        Host
	Limiter     Limiter // of anonymous creates that make a stack
	Refusals    Limiter // of anonymous creates that are refused with 413 or 422
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

	Unpacks    *fair.Queue   // slots of uploads that are unpacked at once, by client network
	UnpackWait time.Duration // how long an upload waits for one at most

	// ClientHeader names the request header in which the edge passes the
	// client's address, whatever the client itself sent under that name.
	ClientHeader string
	Log          *slog.Logger

	// Observe is told of each request that was answered: its route as the
	// documentation writes it, "" where there is none. Nil is nobody.
	Observe func(route, method string, status int, took time.Duration)
}

// API serves the routes of docs/api.md, "Endpoints".
type API struct {
	Config
	app    *fiber.App
	server *fasthttp.Server
	routes []route

	checks   *fair.Queue     // slots of requests that are checked at once, by client network
	running  keySet          // keys of receipts whose requests are under way
	streams  sse.Places      // by stack
	base     context.Context // ends when Shutdown gives up waiting
	cancel   context.CancelFunc
	released chan struct{} // closed by Release
	release  sync.Once
}

// Header limits and patience. The edge has limits of its own for what comes
// from outside; these hold whoever connects.
const (
	maxHead     = 16 << 10 // bytes of the request line and all headers
	headTimeout = 30 * time.Second
	idleTimeout = 10 * time.Minute // longer than the edge keeps an idle connection
)

// New returns an API that is ready to serve.
func New(cfg Config) *API {
	a := &API{Config: cfg, checks: fair.NewQueue(maxChecks), released: make(chan struct{})}
	if a.Observe == nil {
		a.Observe = func(string, string, int, time.Duration) {}
	}
	a.base, a.cancel = context.WithCancel(context.Background())
	a.app = fiber.New(fiber.Config{
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		BodyLimit:                    1, // read before the handler, which knows how slow a body may be
		DisableStartupMessage:        true,
		CaseSensitive:                true,
		Immutable:                    true, // strings of a Ctx outlive the handler
		ReadBufferSize:               maxHead,
		ReadTimeout:                  headTimeout,
		IdleTimeout:                  idleTimeout,
		ErrorHandler:                 a.answerError,
		JSONEncoder:                  encodeJSON,
	})
	a.routes = a.table()
	for _, r := range a.routes {
		a.app.Add(r.method, r.path, named(r))
		if r.method == fiber.MethodGet {
			a.app.Add(fiber.MethodHead, r.path, named(r))
		}
	}
	a.server = a.app.Server()
	a.server.Handler = a.border(a.app.Handler())
	a.server.ErrorHandler = a.answerMalformed
	a.server.HeaderReceived = func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
		return fasthttp.RequestConfig{ReadTimeout: slowbody.Stall} // of the body's first byte
	}
	return a
}

// Serve answers the connections of ln until Shutdown.
func (a *API) Serve(ln net.Listener) error {
	var sweeping sync.WaitGroup
	sweeping.Go(a.sweepReceipts)
	defer sweeping.Wait()
	defer a.Release()
	if err := a.server.Serve(listener{ln}); err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// Release ends every wait=true at once, with the stack as it is, and makes
// later ones return immediately. It is the first step of a shutdown.
func (a *API) Release() { a.release.Do(func() { close(a.released) }) }

// Shutdown takes no new connection and waits for open requests. When ctx ends
// first, it cancels what they wait for and returns the context's error.
func (a *API) Shutdown(ctx context.Context) error {
	a.Release()
	defer a.cancel()
	if err := a.server.ShutdownWithContext(ctx); err != nil {
		return fmt.Errorf("shut down the API: %w", err)
	}
	return nil
}
