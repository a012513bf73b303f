package docker

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/berth-host/berth/internal/engine"
)

// Container is what the engine knows of a container. The method list leaves ExitCode,
// OOMKilled, Error, StartedAt and Pid unset: inspect fills them.
type Container struct {
	ID     string
	Name   string
	Labels Labels

	Running   bool
	OOMKilled bool
	ExitCode  int
	Error     string    // why the last start failed
	StartedAt time.Time // zero before the first start

	IP  string // on its network; "" while it does not run
	Pid int    // of the main process, on the host; 0 while it does not run
}

// copyIn is engine.Driver's. Never use it on a container in which a tenant's code ran.
func (e *Engine) copyIn(ctx context.Context, id string, tar io.Reader) error {
	err := e.api.CopyToContainer(ctx, id, "/", tar, container.CopyToContainerOptions{})
	return wrap(err, "copy into container %s at /", id)
}

// start starts a container; one that runs already stays as it is. When the
// answer is lost, a command that has run is not run once more.
func (e *Engine) start(ctx context.Context, id string) error {
	asked := time.Now()
	return again(ctx, func() error {
		err := wrap(e.api.ContainerStart(ctx, id, container.StartOptions{}), "start container %s", id)
		if !errors.Is(err, engine.ErrUnreachable) {
			return err
		}
		if c, lookErr := e.inspect(ctx, id); lookErr == nil && c.StartedAt.After(asked) {
			return nil
		}
		return err
	})
}

// stop asks the main process to end with SIGTERM, kills it once the time that
// the container was made with (ContainerSpec.StopTimeout) is over, and returns
// when it has ended. A container that does not run, or is gone, is stopped.
func (e *Engine) stop(ctx context.Context, id string) error {
	return persist(ctx, func() error {
		err := e.api.ContainerStop(ctx, id, container.StopOptions{})
		return unlessGone(wrap(err, "stop container %s", id))
	})
}

// remove kills and removes a container with its anonymous volumes and returns
// when it is gone, also when somebody else is removing it already.
func (e *Engine) remove(ctx context.Context, id string) error {
	opts := container.RemoveOptions{Force: true, RemoveVolumes: true}
	return insist(ctx, func(ctx context.Context) error {
		return unlessGone(wrap(e.api.ContainerRemove(ctx, id, opts), "remove container %s", id))
	}, ErrConflict)
}

// inspect returns everything known of one container, by id or name.
func (e *Engine) inspect(ctx context.Context, id string) (Container, error) {
	found, err := e.rawInspect(ctx, id)
	if err != nil {
		return Container{}, err
	}
	return fromInspect(&found), nil
}

func (e *Engine) rawInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	return answered(ctx, func() (container.InspectResponse, error) {
		found, err := e.api.ContainerInspect(ctx, id)
		return found, wrap(err, "inspect container %s", id)
	})
}

// list returns the containers that carry the labels, in every state.
func (e *Engine) list(ctx context.Context, labels Labels) ([]Container, error) {
	found, err := answered(ctx, func() ([]container.Summary, error) {
		found, err := e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: byLabel(labels)})
		return found, wrap(err, "list containers")
	})
	if err != nil {
		return nil, err
	}
	list := make([]Container, len(found))
	for i := range found {
		list[i] = fromSummary(&found[i])
	}
	return list, nil
}

func fromInspect(found *container.InspectResponse) Container {
	c := Container{
		ID:     found.ID,
		Name:   strings.TrimPrefix(found.Name, "/"),
		Labels: found.Config.Labels,
		IP:     address(found.NetworkSettings.Networks),
	}
	if s := found.State; s != nil {
		c.Running, c.OOMKilled = s.Running, s.OOMKilled
		c.ExitCode, c.Error, c.Pid = s.ExitCode, s.Error, s.Pid
		c.StartedAt = moment(s.StartedAt)
	}
	return c
}

func fromSummary(found *container.Summary) Container {
	c := Container{
		ID:      found.ID,
		Labels:  found.Labels,
		Running: found.State == container.StateRunning,
	}
	if len(found.Names) > 0 {
		c.Name = strings.TrimPrefix(found.Names[0], "/")
	}
	if found.NetworkSettings != nil {
		c.IP = address(found.NetworkSettings.Networks)
	}
	return c
}

// address is the container's address on the one network that create gives it.
func address(networks map[string]*network.EndpointSettings) string {
	for _, endpoint := range networks {
		if endpoint != nil && endpoint.IPAddress != "" {
			return endpoint.IPAddress
		}
	}
	return ""
}

// moment reads a time of the engine, which writes year 1 for "never".
func moment(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t
}
