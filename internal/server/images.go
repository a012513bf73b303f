package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/builder"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// BuildImages builds the base images of the named runtimes (node, node@22), or of all,
// unless the engine has them. It writes progress to out.
func BuildImages(ctx context.Context, cfg Config, names []string, out io.Writer) error {
	wanted, err := parseRuntimes(names)
	if err != nil {
		return err
	}
	engine, err := docker.Open(ctx, docker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer engine.Close()
	builder, err := newBuilder(cfg, docker.NewDriver(engine, docker.Info{}, cfg.driverOptions("")), nil, nil, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	for _, runtime := range wanted {
		ref, err := builder.BuildBase(ctx, runtime, out)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %s is ready\n", runtime, ref)
	}
	return nil
}

// parseRuntimes parses names like those in a manifest.
func parseRuntimes(names []string) ([]stack.Runtime, error) {
	var wanted []stack.Runtime
	for _, name := range names {
		name, version, _ := strings.Cut(name, "@")
		def, ok := runtimes.Lookup(name)
		if !ok || len(def.Versions) == 0 {
			return nil, fmt.Errorf("there is no base image %q; name one of %s", name, strings.Join(imageNames(), ", "))
		}
		wanted = append(wanted, stack.Runtime{Name: def.Name, Version: cmp.Or(version, def.Default)})
	}
	if len(names) == 0 {
		for _, image := range images.All() {
			wanted = append(wanted, stack.Runtime{Name: image.Name, Version: image.Version})
		}
	}
	return wanted, nil
}

// imageNames returns the runtimes that have a base image.
func imageNames() []string {
	var names []string
	for _, image := range images.All() {
		names = append(names, image.Name)
	}
	return slices.Compact(names) // they are sorted
}

// driverOptions returns the options for the installation with the id instance. Base
// images belong to none.
func (c *Config) driverOptions(instance string) docker.DriverOptions {
	return docker.DriverOptions{Instance: instance, Pool: c.NetworkPool, Runtime: c.ContainerRuntime}
}

// newBuilder returns a builder. Bases, layerKey and observe are those of builder.Config.
func newBuilder(cfg Config, driver engine.Driver, bases builder.Bases, layerKey []byte, observe func(runtime, result string, took time.Duration), log *slog.Logger) (*builder.Builder, error) {
	env, err := cfg.buildEnv()
	if err != nil {
		return nil, err
	}
	ca, err := cfg.buildCA()
	if err != nil {
		return nil, err
	}
	return builder.New(builder.Config{
		Engine:    driver,
		Slots:     cfg.MaxBuilds,
		Timeout:   cfg.BuildTimeout,
		Observe:   observe,
		Env:       env,
		CA:        ca,
		Memory:    cfg.BuildMemory,
		Pids:      cfg.ServicePids,
		DiskFloor: cfg.DiskFloor,
		CacheMax:  cfg.BuildCacheMax,
		Sites:     cfg.unpackLimits(),
		Log:       log,
		Bases:     bases,
		LayerKey:  layerKey,
	}), nil
}
