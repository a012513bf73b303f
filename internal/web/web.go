package web

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/appserver"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Accounts manages people, their sessions and their claims; package account implements
// it. An error meant for the person is a *stack.Error.
type Accounts interface {
	SignUp(ctx context.Context, v account.Visitor, email, password string) (account.Entry, error)
	SignIn(ctx context.Context, v account.Visitor, email, password string) (account.Entry, error)
	SignUpAndClaim(ctx context.Context, v account.Visitor, email, password, code string) (account.Entry, *stack.Stack, error)
	// SignInAndClaim fails with an Entry if only the claim failed.
	SignInAndClaim(ctx context.Context, v account.Visitor, email, password, code string) (account.Entry, *stack.Stack, error)
	Claim(ctx context.Context, v account.Visitor, who store.Account, code string) (*stack.Stack, error)
	// LookUp returns the state of a typed code, and claims nothing.
	LookUp(ctx context.Context, v account.Visitor, who store.Account, code string) (account.Code, error)
	// Session returns false for a token that is unknown, expired or revoked.
	Session(ctx context.Context, token string) (store.Session, bool, error)
	SignOut(ctx context.Context, token string) error
	Sessions(ctx context.Context, accountID string) ([]store.Session, error)
	EndSession(ctx context.Context, accountID string, sessionID int64) error
	EndOtherSessions(ctx context.Context, session store.Session) error
	RotateKey(ctx context.Context, accountID string) (string, error)
	ChangePassword(ctx context.Context, v account.Visitor, session store.Session, current, next string) error
	// Delete needs the account's email as the person typed it, the password, and the
	// account.Digest of the stacks that the person has seen. It returns how many stacks
	// were deleted with the account.
	Delete(ctx context.Context, v account.Visitor, session store.Session, typed, current, shown string) (stacks int, err error)
	// Mails reports whether mails are sent. Without, the methods below that ask for one fail
	// with NotFound.
	Mails() bool
	Forgot(ctx context.Context, v account.Visitor, email string) error
	// Linked returns what the token in a mail is for, and fails with NotFound if it does not
	// work.
	Linked(ctx context.Context, kind store.MailKind, token string) (store.MailToken, error)
	// ResetPassword reports whether the API key was replaced, too, by one that nobody has.
	ResetPassword(ctx context.Context, v account.Visitor, token, password string) (keyReplaced bool, err error)
	SendConfirmation(ctx context.Context, v account.Visitor, who store.Account) error
	// Confirm also claims a stack if the mail was about one, and fails with the account if
	// only the claim failed. With account.NeedsPassword it first signs the person in.
	Confirm(ctx context.Context, v account.Visitor, who store.Account, token, password string) (account.Entry, *stack.Stack, error)
	SetNotices(ctx context.Context, accountID string, on bool) error
	Stacks(ctx context.Context, accountID string) ([]*stack.Stack, error)
	// Stack also fails with NotFound for a stack of another account.
	Stack(ctx context.Context, accountID, stackID string) (*stack.Stack, error)
}

// Host acts on a stack for its owner; the supervisor implements it.
type Host interface {
	// Restart restarts a service, or for "" all. It returns once that is accepted.
	Restart(ctx context.Context, stackID, service string) (*stack.Stack, error)
	// Configure changes the variables that are set outside the manifest, and starts the
	// build of a generation with them unless nothing changes.
	Configure(ctx context.Context, stackID string, change stack.EnvChange, receipt *store.Receipt) (*stack.Stack, error)
	// ReadData writes the data of a service as a tar.gz, which has no end after an error, or
	// a database's dump.
	// The service stops for that time if stop says so.
	ReadData(ctx context.Context, stackID, service string, stop bool, w io.Writer) error
	// ReplaceData replaces the data of a service by a tar, tar.gz or dump, and returns once the
	// service has it. After an error the data is what it was.
	ReplaceData(ctx context.Context, stackID, service string, data io.Reader) (*stack.Stack, error)
	// Outdated returns the databases of a stack whose next restart takes a newer image.
	Outdated(ctx context.Context, stackID string) []string
	// Rebuild returns once a fresh build of the kept source is accepted.
	Rebuild(ctx context.Context, stackID string) (*stack.Stack, error)
	// Delete returns once nothing of the stack is left.
	Delete(ctx context.Context, stackID string) error
}

// Logs reads the logs of stacks; package datadir implements it.
type Logs interface {
	// FollowLogs calls emit with what a view of a log begins with, even if that is
	// nothing, and then with what is added, as programs wrote it, until ctx ends or emit
	// fails.
	FollowLogs(ctx context.Context, s *stack.Stack, service, kind string, v logfile.View, emit func(logfile.News) error) error
	// ReadLog returns lines of all that is kept of a service's log.
	ReadLog(s *stack.Stack, service, kind string, q logfile.Query) (logfile.Page, error)
	// CopyLog writes all that is kept of a service's log, as programs wrote it.
	CopyLog(s *stack.Stack, service, kind string, out io.Writer) error
}

// Config is what the pages need from the rest of the server.
type Config struct {
	Accounts Accounts
	Host     Host
	Logs     Logs
	Sources  appserver.SourceDir
	Metrics  Metrics
	Store    *store.Store
	Webhooks Webhooks
	Domains  Domains
	URLs     stack.URLs
	Key      auth.Key // of the installation, for the tokens of forms

	NodeName func(id string) string // of a node of the cluster; nil on one machine

	Quota     stack.Quota // of each account
	DiskLimit stack.DiskLimit

	CrashWindow time.Duration // over which crashes are counted

	Reference docs.Reference // of the API, shown at /docs

	// CallerHeader is the request header in which the edge passes the visitor's
	// address. The edge replaces whatever the visitor sent under that name.
	CallerHeader string
	Log          *slog.Logger
}

// pages serves the pages.
type pages struct {
	cfg      Config
	server   *appserver.Server
	sources  *appserver.Sources
	searches *fair.Queue // slots for searches of logs, by account
	sealer   *auth.Sealer
	https    bool
}

// maxBody limits the body of a request, in bytes. The largest form has a variable, whose
// value takes three times its size in a form.
const maxBody = 4 * stack.MaxEnvValue

// New returns the server of the pages. Browsers reconnect to the streams that its
// Release ends.
func New(cfg Config) *appserver.Server { return newPages(cfg).server }

func newPages(cfg Config) *pages {
	w := &pages{cfg: cfg, searches: fair.NewQueue(searchesAtOnce), sealer: auth.NewSealer(cfg.Key), https: cfg.URLs.Base.Scheme == "https"}
	w.server = appserver.New(appserver.Options{
		Name: "the pages",
		App:  fiber.Config{BodyLimit: maxBody, StreamRequestBody: true, DisablePreParseMultipartForm: true, ErrorHandler: w.answerError},
		Routes: func(app *fiber.App) {
			app.Use(limitBody)
			w.addRoutes(app)
		},
		Around: w.around,
		Log:    cfg.Log,
	})
	w.sources = appserver.NewSources(w.server, cfg.Sources, cfg.Log)
	return w
}

// Has reports whether a path belongs to the pages rather than to the API.
func Has(path string) bool {
	if path == "/" {
		return true
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch first {
	case "claim", "signup", "signin", "signout", "dashboard", "docs", "assets", "favicon.ico":
		return true
	}
	return false
}
