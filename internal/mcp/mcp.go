// Package mcp offers Berth to agents as tools of the Model Context Protocol. The
// tools run over the HTTP API alone, so that the server's own /mcp and a program
// that speaks on its standard input have the same ones.
//
// A tool's name is what an agent wants. Its result is short, since a model reads
// all of it, and ends with what to do next; so does every error.
package mcp

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Config is what the tools work with.
type Config struct {
	BaseURL string       // of the API: http://localhost:8080
	Client  *http.Client // sends the requests; nil: http.DefaultClient. It must not give up before wait=true does
	Version string       // of the program, which clients of the tools show

	// Token is the token for a stack that the call names none for; stackID is ""
	// for a new stack, where it is an API key. "" is none. May be nil.
	Token func(ctx context.Context, stackID string) string
	// Created is told of each new stack, with its one-time fields, so that they
	// can be kept. May be nil.
	Created func(ctx context.Context, s Stack) error
	// Pack writes a folder of this machine as a tar or tar.gz. With it the tools
	// take a folder beside inline files. nil: there are no folders to reach.
	Pack func(ctx context.Context, folder string, out io.Writer) error
	// Forward names the headers of an HTTP request to the tools that go on to the
	// API, besides Authorization.
	Forward []string
}

// instructions are what a model reads of the tools before it uses one.
const instructions = `Berth builds and runs what you deploy and gives it a public URL. No account is needed: deploy returns a manage token, for you, and a claim URL, for your human. A program must listen on 0.0.0.0:$PORT and keep its files in $DATA_DIR. When a deploy fails, read the logs, mend the source and call redeploy; do not deploy the same project twice.`

// New returns a server with the tools.
func New(cfg Config) *sdk.Server {
	cfg.BaseURL = strings.TrimSuffix(cfg.BaseURL, "/")
	if cfg.Client == nil {
		cfg.Client = http.DefaultClient
	}
	version := cfg.Version
	if version == "" {
		version = "v0"
	}
	s := sdk.NewServer(&sdk.Implementation{Name: "berth", Title: "Berth", Version: version}, &sdk.ServerOptions{
		Instructions: instructions,
		Capabilities: &sdk.ServerCapabilities{}, // no log messages
	})
	(&tools{cfg, map[string]*jsonschema.Schema{}}).add(s)
	return s
}

// Serve offers the tools on standard input and output until they are closed or
// ctx ends.
func Serve(ctx context.Context, cfg Config) error {
	if err := New(cfg).Run(ctx, &sdk.StdioTransport{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the tools on standard input: %w", err)
	}
	return nil
}

// caller is who a call comes from, as far as the API is to know.
type caller struct {
	header http.Header // of the API request
}

// caller collects what of the call's own request goes on to the API. A token
// among the arguments goes before the request's, and that before the program's.
func (t *tools) caller(ctx context.Context, req *sdk.CallToolRequest, stackID, token string) caller {
	who := caller{http.Header{}}
	if req.Extra != nil {
		for _, name := range append([]string{"Authorization"}, t.Forward...) {
			if values := req.Extra.Header.Values(name); len(values) > 0 {
				who.header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
			}
		}
	}
	if token == "" && who.header.Get("Authorization") == "" && t.Token != nil {
		token = t.Token(ctx, stackID)
	}
	if token != "" {
		who.header.Set("Authorization", "Bearer "+strings.TrimPrefix(token, "Bearer "))
	}
	return who
}
