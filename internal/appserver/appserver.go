// Package appserver has what the API and the pages share as servers behind the edge: it
// starts a Fiber app on an in-memory listener, recovers from panics, shuts it down,
// streams server-sent events, and maps errors to HTTP statuses. It may touch
// connections and answers; it knows no routes, no stacks and no text for callers.
package appserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/sse"
)

// Limits of a request's head. The edge has its own limits for requests from outside;
// these hold for all.
const (
	MaxHead     = 16 << 10 // bytes of the request line and all headers
	HeadTimeout = 30 * time.Second
	idleTimeout = 10 * time.Minute // longer than the edge keeps an idle connection
)

// Options configure a Server.
type Options struct {
	Name   string       // the server's name in errors: "the API"
	App    fiber.Config // New adds what all apps share
	Routes func(*fiber.App)

	// Around wraps the app's handler.
	Around func(next fasthttp.RequestHandler) fasthttp.RequestHandler
	// Malformed answers a connection that does not send a valid request; the connection
	// is closed afterwards. If nil, the app's error handler answers.
	Malformed func(*fasthttp.RequestCtx, error)
	// BodyTimeout is how long the first byte of a body may take to arrive; 0 means
	// HeadTimeout.
	BodyTimeout time.Duration

	Log *slog.Logger
}

// Server serves one Fiber app.
type Server struct {
	name    string
	log     *slog.Logger
	http    *fasthttp.Server
	streams *fair.Places

	base     context.Context // ends when Shutdown gives up waiting
	cancel   context.CancelFunc
	released chan struct{} // closed by Release
	release  sync.Once
}

// New returns a Server that is ready to serve.
func New(o Options) *Server {
	s := &Server{name: o.Name, log: o.Log, streams: fair.NewPlaces(sse.MostOpen), released: make(chan struct{})}
	s.base, s.cancel = context.WithCancel(context.Background())
	o.App.DisableStartupMessage = true
	o.App.CaseSensitive = true
	o.App.Immutable = true // strings of a Ctx outlive the handler
	o.App.ReadBufferSize = MaxHead
	o.App.ReadTimeout = HeadTimeout
	o.App.IdleTimeout = idleTimeout
	app := fiber.New(o.App)
	o.Routes(app)
	s.http = app.Server()
	s.http.Handler = o.Around(app.Handler()) // Handler finishes the table of routes
	if o.Malformed != nil {
		s.http.ErrorHandler = o.Malformed
	}
	if o.BodyTimeout > 0 {
		s.http.HeaderReceived = func(*fasthttp.RequestHeader) fasthttp.RequestConfig {
			return fasthttp.RequestConfig{ReadTimeout: o.BodyTimeout}
		}
	}
	return s
}

// Serve answers the connections of ln until Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.http.Serve(ln); err != nil {
		return fmt.Errorf("serve %s: %w", s.name, err)
	}
	return nil
}

// Context returns the context of all requests. It ends when Shutdown gives up
// waiting for them.
func (s *Server) Context() context.Context { return s.base }

// Released returns a channel that Release closes.
func (s *Server) Released() <-chan struct{} { return s.released }

// Release ends every stream at once and closes the channel of Released. Call it first
// when shutting down; calling it again does nothing.
func (s *Server) Release() { s.release.Do(func() { close(s.released) }) }

// Shutdown accepts no new connections and waits for open requests. If ctx ends first,
// it cancels what they wait for and returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Release()
	defer s.cancel()
	if err := s.http.ShutdownWithContext(ctx); err != nil {
		return fmt.Errorf("shut down %s: %w", s.name, err)
	}
	return nil
}

// Recover runs next. After a panic it resets the answer, calls broken to write another
// one, and ends the connection.
func Recover(ctx *fasthttp.RequestCtx, next fasthttp.RequestHandler, broken func(reason, trace string)) {
	defer func() {
		if v := recover(); v != nil {
			trace := string(debug.Stack())
			ctx.Response.Reset()
			broken(fmt.Sprint(v), trace)
			ctx.SetConnectionClose()
		}
	}()
	next(ctx)
}

// RequestID returns the id that the edge gave the request, or a new one if it has none.
func RequestID(ctx *fasthttp.RequestCtx) string {
	if id := ctx.Request.Header.Peek(fiber.HeaderXRequestID); len(id) > 0 {
		return string(id)
	}
	id := rand.Text()
	ctx.Request.Header.Set(fiber.HeaderXRequestID, id)
	return id
}
