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
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/slowbody"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/usage"
)

// Host runs stacks; the supervisor implements it.
type Host interface {
	// Create records the stack and starts its first build from a source that was just
	// saved, whose folder it moves away if it succeeds. It fails with a *stack.Error if
	// the cap of the stack's network is reached. The receipt, nil for none, is recorded
	// with the stack or not at all.
	Create(ctx context.Context, s *stack.Stack, src *source.Source, receipt *store.Receipt) error
	// Deploy accepts a new generation of a stack and starts its build, as Create does.
	// The caller owns the returned stack. Deploy fails with a *stack.Error if the
	// stack's state does not allow it. The receipt, nil for none, is recorded with the
	// change or not at all.
	Deploy(ctx context.Context, id string, u source.Upload, receipt *store.Receipt) (*stack.Stack, error)
	// Configure changes the variables that are set outside the manifest of a stack, and
	// starts the build of a generation with them unless nothing changes. The caller owns
	// the returned stack. It fails with a *stack.Error if the stack's state does not
	// allow it or a variable is refused. The receipt, nil for none, is recorded with the
	// change or not at all.
	Configure(ctx context.Context, id string, change stack.EnvChange, receipt *store.Receipt) (*stack.Stack, error)
	// Restart restarts the process of a service, or for "" those of all services, and
	// returns once that is accepted. It fails with a *stack.Error if the stack's state
	// does not allow it.
	Restart(ctx context.Context, id, service string) (*stack.Stack, error)
	// Delete ends the stack and returns once nothing of it is left.
	Delete(ctx context.Context, id string) error
	// RunCommand runs a one-off command, writes its output to out, and returns it once it
	// has ended. It ends the command when the timeout is over, or ctx ends; if the cause of
	// ctx is a *stack.Error, the command has it as its error. An error means that the
	// command did not run. Nothing is written to out afterwards.
	RunCommand(ctx context.Context, c stack.Command, timeout time.Duration, out io.Writer) (stack.Command, error)
	// ReadData writes the data of a service as a tar.gz, which has no end after an error, or
	// a database's dump.
	// The process of the service stops for that time if stop says so. It fails with a
	// *stack.Error if the stack's state does not allow it.
	ReadData(ctx context.Context, id, service string, stop bool, w io.Writer) error
	// CheckDisk returns a NoRoom error if a stack takes too much of the disk for a deploy.
	CheckDisk(ctx context.Context, id string) error
	// ReplaceData replaces the data of a service by a tar, tar.gz or dump, and returns the stack
	// once that serves. After an error the data is what it was. The caller owns the
	// returned stack.
	ReplaceData(ctx context.Context, id, service string, data io.Reader) (*stack.Stack, error)
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
	appserver.SourceDir
	// Logs writes a section for each service, or only for the named one, with a view of
	// its log, as the programs wrote it; kind is run or build.
	Logs(ctx context.Context, s *stack.Stack, service, kind string, v logfile.View, w io.Writer) error
	// FollowLogs calls emit with what a view of a service's log begins with, even if that
	// is nothing, and then with what is added, as programs wrote it, until ctx ends or
	// emit fails.
	FollowLogs(ctx context.Context, s *stack.Stack, service, kind string, v logfile.View, emit func(logfile.News) error) error
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
	// CheckAccount returns a Forbidden error if an account is disabled.
	CheckAccount(ctx context.Context, accountID string) error
	// AccountEmail returns the email of an account that exists.
	AccountEmail(ctx context.Context, accountID string) (string, error)
	// FindReceipt returns the receipt of a request with an Idempotency-Key.
	FindReceipt(ctx context.Context, key string) (r store.Receipt, ok bool, err error)
	AnswerReceipt(ctx context.Context, key, answer string) error
	// DropReceipt removes the receipt that a request recorded at a time.
	DropReceipt(ctx context.Context, key string, createdAt time.Time) error
	SweepReceipts(ctx context.Context) error
	Watch(id string) (wake <-chan struct{}, stop func())
}

// Metrics reads what was measured of stacks; package usage implements it.
type Metrics interface {
	// Read returns the history of a stack, with the services that are named and all others
	// that were measured. It fails with a *stack.Error while it cannot be read.
	Read(ctx context.Context, id string, named []string, w usage.Window) (usage.History, error)
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
	Metrics     Metrics
	Creates     Limiter // of anonymous creates that make a stack
	Refusals    Limiter // of anonymous creates refused with 413 or 422
	Codes       Limiter // of claims
	Validations Limiter
	Extensions  Limiter // of changes of the TTL, by stack
	Claims      account.Claims
	Domains     Domains
	URLs        stack.URLs
	Limits      stack.Limits
	Key         auth.Key // of the installation, for the hashes of claim codes

	MaxUpload int64          // bytes of the archive as uploaded
	Unpacked  archive.Limits // of the archive's content
	Wait      time.Duration  // how long wait=true holds a response at most

	Unpacks    *fair.Queue   // slots of uploads that are unpacked at once, by the caller's network
	UnpackWait time.Duration // how long an upload waits for a slot at most

	// Ready returns an error for a balancer while this server should not be asked. It may
	// be nil.
	Ready func() error

	// Lost reports whether a node is lost, so that its stacks wait for it. It may be nil.
	Lost func(node string) bool

	// CallerHeader is the request header in which the edge passes the caller's address.
	// The edge replaces whatever the caller sent under that name.
	CallerHeader string
	Log          *slog.Logger

	// Held is called with the id of a request when all of its work is done but its answer,
	// which wait=true holds. It may be nil.
	Held func(requestID string)

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
	commands *fair.Places // by stack
	sources  *appserver.Sources
}

// New returns an API that is ready to serve.
func New(cfg Config) *API {
	if cfg.Observe == nil {
		cfg.Observe = func(string, string, int, time.Duration) {}
	}
	if cfg.Held == nil {
		cfg.Held = func(string) {}
	}
	if cfg.Ready == nil {
		cfg.Ready = func() error { return nil }
	}
	a := &API{cfg: cfg, commands: fair.NewPlaces(stack.CommandsAtOnce)}
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
	a.sources = appserver.NewSources(a.server, cfg.Dir, cfg.Log)
	a.gate = gate{store: cfg.Store, base: base}
	a.quotas = quotas{creates: cfg.Creates, refusals: cfg.Refusals, callerHeader: cfg.CallerHeader, base: base}
	a.uploads = uploads{cfg: cfg, checks: fair.NewQueue(maxChecks), network: a.quotas.network, base: base, sealer: auth.NewSealer(cfg.Key)}
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
