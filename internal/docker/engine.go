package docker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
)

// Options say where an Engine reports what happens.
type Options struct {
	Log *slog.Logger // gets the engine's warnings

	// Observe is called for each request that ended, such as "POST
	// /containers/{id}/start"; one that streams ends with its stream. It may be nil.
	Observe func(call string, ok bool, took time.Duration)
}

// Engine is a connection to one Docker engine. Many goroutines may use it at the same
// time.
type Engine struct {
	api *client.Client
	log *slog.Logger
}

// Info describes an engine.
type Info struct {
	RootDir string // where the engine keeps its images and volumes
	CPUs    int    // cores that containers may use

	Runtimes       map[string]Runtime // OCI runtimes by name
	DefaultRuntime string             // of containers that name none
}

// Runtime is a program that runs containers.
type Runtime struct {
	Path string // "" for a shim of containerd's
	Args []string
}

// Open connects to the engine of this machine at DOCKER_HOST (unix:///… or tcp://…), or
// at the local socket if that is empty, and agrees with it on a version of the API. It
// fails when no engine answers. At tcp:// it speaks TLS if DOCKER_CERT_PATH is set.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	return open(ctx, cmp.Or(os.Getenv(client.EnvOverrideHost), client.DefaultDockerHost), opts)
}

func open(ctx context.Context, host string, opts Options) (*Engine, error) {
	var settings []client.Opt
	if opts.Observe != nil {
		settings = append(settings, client.WithTraceProvider(observer{observe: opts.Observe}))
	}
	api, err := connect(ctx, host, settings...)
	if err != nil {
		return nil, fmt.Errorf("docker: open engine: %w", err)
	}
	if _, err := api.Ping(ctx); err != nil {
		_ = api.Close() // nothing was sent: only idle connections close here
		return nil, wrap(err, "ping engine at %s", api.DaemonHost())
	}
	return &Engine{api: api, log: opts.Log}, nil
}

// Close closes the connection. Nothing in the engine changes.
func (e *Engine) Close() error { return e.api.Close() }

// Info returns how the engine describes itself.
func (e *Engine) Info(ctx context.Context) (Info, error) {
	found, err := e.api.Info(ctx)
	if err != nil {
		return Info{}, wrap(err, "describe engine")
	}
	info := Info{RootDir: found.DockerRootDir, CPUs: found.NCPU, DefaultRuntime: found.DefaultRuntime, Runtimes: map[string]Runtime{}}
	for name, r := range found.Runtimes {
		info.Runtimes[name] = Runtime{Path: r.Path, Args: r.Args}
	}
	return info, nil
}

// Bridges returns the names of the interfaces on the engine's machine of all its bridge
// networks.
func (e *Engine) Bridges(ctx context.Context) ([]string, error) {
	found, err := e.networks(ctx, filters.NewArgs(filters.Arg("driver", network.NetworkBridge)))
	return each(found, func(n network.Summary) string {
		return cmp.Or(n.Options[bridgeName], "br-"+n.ID[:min(len(n.ID), 12)])
	}), err
}

// networks returns the networks that pass a filter.
func (e *Engine) networks(ctx context.Context, filter filters.Args) ([]network.Summary, error) {
	return retryGet(ctx, func() ([]network.Summary, error) {
		return e.api.NetworkList(ctx, network.ListOptions{Filters: filter})
	}, "list networks")
}

// SaveImages writes images to w with their references, and each layer once. ErrNotFound means
// that one is not there.
func (e *Engine) SaveImages(ctx context.Context, refs []string, w io.Writer) error {
	body, err := e.api.ImageSave(ctx, refs)
	if err != nil {
		return wrap(err, "save images")
	}
	defer body.Close() // only read
	_, err = io.Copy(w, body)
	return wrap(err, "save images")
}

// LoadImages makes the images that SaveImages has written.
func (e *Engine) LoadImages(ctx context.Context, r io.Reader) error {
	res, err := e.api.ImageLoad(ctx, r)
	return wrap(relay(io.Discard, res.Body, err), "load images")
}
