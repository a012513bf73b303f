package docker

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"

	"github.com/berth-host/berth/internal/engine"
)

// Labels are those of package engine.
type Labels = engine.Labels

// Options say which engine to open.
type Options struct {
	Host string       // unix:///…, or tcp://… of this machine; "" means DOCKER_HOST, else the local socket
	Log  *slog.Logger // warnings of the engine; nil discards them

	// Observe is told of each call of the engine's API that ended, such as "POST
	// /containers/{id}/start"; one that streams ends with its stream. Nil is
	// nobody.
	Observe func(call string, ok bool, took time.Duration)
}

// Engine is a connection to one Docker engine. It may be used by many
// goroutines at once.
type Engine struct {
	api  *client.Client
	dial func(context.Context) (net.Conn, error) // opens a connection beside those of api
	log  *slog.Logger
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

// Attaches reports whether a container of a runtime, "" for the engine's own, can
// be put on a network while it runs. That takes a runtime whose containers have the
// host's kernel: gVisor sets its network up when it starts.
func (i Info) Attaches(runtime string) bool {
	name := cmp.Or(runtime, i.DefaultRuntime)
	program := filepath.Base(cmp.Or(i.Runtimes[name].Path, name))
	return slices.Contains([]string{"runc", "crun", "io.containerd.runc.v2"}, program)
}

// Open connects to an engine of this machine, agrees with it on a version of the
// API, and fails when none answers. At tcp:// it speaks TLS where the environment
// has DOCKER_CERT_PATH.
func Open(ctx context.Context, opts Options) (*Engine, error) {
	var settings []client.Opt
	if opts.Observe != nil {
		settings = append(settings, client.WithTraceProvider(observer{observe: opts.Observe}))
	}
	api, dial, err := connect(ctx, opts.Host, settings...)
	if err != nil {
		return nil, fmt.Errorf("docker: open engine: %w", err)
	}
	e := &Engine{api: api, dial: dial, log: opts.Log}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if err := e.ping(ctx); err != nil {
		_ = api.Close() // nothing was sent: only idle connections close here
		return nil, err
	}
	return e, nil
}

// Close gives up the connection. Nothing in the engine changes.
func (e *Engine) Close() error { return e.api.Close() }

// ping returns an error when the engine does not answer.
func (e *Engine) ping(ctx context.Context) error {
	_, err := e.api.Ping(ctx)
	return wrap(err, "ping engine at %s", e.api.DaemonHost())
}

// accepts returns an error unless the engine takes a new connection and answers
// on it before ctx ends. An engine that shuts down takes none any more, but
// answers on those that it has while it ends the containers: so this says
// whether the end of a container was its own.
func (e *Engine) accepts(ctx context.Context) error {
	return wrap(e.askAnew(ctx), "connect to engine at %s", e.api.DaemonHost())
}

func (e *Engine) askAnew(ctx context.Context) error {
	conn, err := e.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/_ping", nil)
	if err != nil {
		return err
	}
	req.Close = true
	if err := req.Write(conn); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // only read
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return nil
}

// Info describes the engine that answers.
func (e *Engine) Info(ctx context.Context) (Info, error) {
	info, err := e.api.Info(ctx)
	if err != nil {
		return Info{}, wrap(err, "describe engine")
	}
	described := Info{RootDir: info.DockerRootDir, CPUs: info.NCPU, DefaultRuntime: info.DefaultRuntime, Runtimes: map[string]Runtime{}}
	for name, r := range info.Runtimes {
		described.Runtimes[name] = Runtime{Path: r.Path, Args: r.Args}
	}
	return described, nil
}

// byLabel is the engine's filter for objects that carry all of labels.
func byLabel(labels Labels) filters.Args {
	args := filters.NewArgs()
	for key, value := range labels {
		args.Add("label", key+"="+value)
	}
	return args
}

// carries reports whether have holds every pair of want.
func carries(have, want Labels) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}
