// Package mcp offers Berth to agents as tools of the Model Context Protocol. The tools
// reach the server only through the HTTP API (package client), so the server's own /mcp
// and a program on standard input offer the same ones.
//
// A tool is named after what an agent wants. Results are short, since a model reads all
// of them, and end with what to do next; so do errors.
//
// Code in this package touches requests and answers. It reaches no file, no database and
// no engine.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-host/berth/internal/client"
)

// Config configures the tools.
type Config struct {
	API     *client.Client // without a token; it must not give up before wait=true does
	Version string         // of the program, which programs that call the tools show
	Log     *slog.Logger

	// Token returns the token for a stack if the call has none; stackID is "" for a new
	// stack, for which it is an API key. "" means none. It may be nil.
	Token func(ctx context.Context, stackID string) string
	// Created is called with each new stack and its one-time fields, so that they can
	// be stored. It may be nil.
	Created func(ctx context.Context, s *client.Stack) error
	// Pack writes a folder of this machine as a tar or tar.gz. With it the tools accept
	// a folder in addition to inline files. It is nil if no folder can be read.
	Pack func(ctx context.Context, folder string, out io.Writer) error
	// Forward lists the headers of a caller's HTTP request that are passed to the API,
	// in addition to Authorization.
	Forward []string
}

// instructions is what a model reads about the tools before it uses one.
const instructions = `Berth builds and runs what you deploy and gives it a public URL. You need no account: deploy returns a manage token for you and a claim URL for your human. A program must listen on 0.0.0.0:$PORT and keep its files in $DATA_DIR; a service with runtime: postgres or valkey in stack.yaml is a database, whose DATABASE_URL or REDIS_URL the others get. If a deploy fails, read the logs, fix the source and call redeploy; do not deploy the same project twice.`

// newServer returns a server with the tools.
func newServer(cfg Config) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "berth", Title: "Berth", Version: cmp.Or(cfg.Version, "v0")}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{}, // no log messages
	})
	t := &tools{cfg: cfg, schemas: map[string]*jsonschema.Schema{}}
	t.register(s)
	return s
}

// survive is middleware that answers a call which panics with an error. The SDK runs calls
// in goroutines of its own, where a panic would end the whole program.
func (t *tools) survive(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (res sdk.Result, err error) {
		defer func() {
			if v := recover(); v != nil {
				t.cfg.Log.Error("panic in a call of a tool", "method", method, "panic", v, "goroutine", string(debug.Stack()))
				res, err = nil, errors.New("internal error; try again, and tell the operator if it stays")
			}
		}()
		return next(ctx, method, req)
	}
}

// Serve offers the tools on standard input and output until they are closed or
// ctx ends.
func Serve(ctx context.Context, cfg Config) error {
	if err := newServer(cfg).Run(ctx, &sdk.StdioTransport{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the tools on standard input: %w", err)
	}
	return nil
}

// as returns a client of the API for the caller of a tool. A token among the arguments
// takes precedence over that of the caller's request, and that over the program's.
func (t *tools) as(ctx context.Context, req *sdk.CallToolRequest, in arguments) *client.Client {
	header, token := http.Header{}, in.Token
	if req.Extra != nil {
		for _, name := range append([]string{"Authorization"}, t.cfg.Forward...) {
			if values := req.Extra.Header.Values(name); len(values) > 0 {
				header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
			}
		}
	}
	if token == "" && header.Get("Authorization") == "" && t.cfg.Token != nil {
		token = t.cfg.Token(ctx, in.Stack)
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+strings.TrimPrefix(token, "Bearer "))
	}
	return t.cfg.API.WithHeader(header)
}
