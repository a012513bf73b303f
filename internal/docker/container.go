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

// Container is what the engine knows of a container. List leaves ExitCode,
// OOMKilled, Error, StartedAt, FinishedAt and Pid unset: Inspect fills them.
type Container struct {
	ID     string
	Name   string
	Image  string // as it was named at creation
	Labels Labels

	State      string // created, running, paused, restarting, removing, exited or dead
	Running    bool
	OOMKilled  bool
	ExitCode   int
	Error      string    // why the last start failed
	StartedAt  time.Time // zero before the first start
	FinishedAt time.Time // zero before the first end

	IP  string // on its network; "" while it does not run
	Pid int    // of the main process, on the host; 0 while it does not run
}

// CopyIn unpacks a tar into the directory dir, which must exist in the
// container. Owner and mode are those of the tar's headers, and so become
// those of a directory that exists already. Files below a volume's path go to
// the volume. Never use it on a container in which a tenant's code ran.
func (e *Engine) CopyIn(ctx context.Context, id, dir string, tar io.Reader) error {
	err := e.api.CopyToContainer(ctx, id, dir, tar, container.CopyToContainerOptions{})
	return wrap(err, "copy into container %s at %s", id, dir)
}

// Start starts a container; one that runs already stays as it is. When the
// answer is lost, a command that has run is not run once more.
func (e *Engine) Start(ctx context.Context, id string) error {
	asked := time.Now()
	return again(ctx, func() error {
		err := wrap(e.api.ContainerStart(ctx, id, container.StartOptions{}), "start container %s", id)
		if !errors.Is(err, engine.ErrUnreachable) {
			return err
		}
		if c, lookErr := e.Inspect(ctx, id); lookErr == nil && c.StartedAt.After(asked) {
			return nil
		}
		return err
	})
}

// Stop asks the main process to end with SIGTERM, kills it once the time that
// the container was made with (ContainerSpec.StopTimeout) is over, and returns
// when it has ended. A container that does not run, or is gone, is stopped.
func (e *Engine) Stop(ctx context.Context, id string) error {
	return persist(ctx, func() error {
		err := e.api.ContainerStop(ctx, id, container.StopOptions{})
		return unlessGone(wrap(err, "stop container %s", id))
	})
}

// Remove kills and removes a container with its anonymous volumes and returns
// when it is gone, also when somebody else is removing it already.
func (e *Engine) Remove(ctx context.Context, id string) error {
	opts := container.RemoveOptions{Force: true, RemoveVolumes: true}
	return insist(ctx, func(ctx context.Context) error {
		return unlessGone(wrap(e.api.ContainerRemove(ctx, id, opts), "remove container %s", id))
	}, ErrConflict)
}

// Inspect returns everything known of one container, by id or name.
func (e *Engine) Inspect(ctx context.Context, id string) (Container, error) {
	found, err := e.inspect(ctx, id)
	if err != nil {
		return Container{}, err
	}
	return fromInspect(&found), nil
}

func (e *Engine) inspect(ctx context.Context, id string) (container.InspectResponse, error) {
	return answered(ctx, func() (container.InspectResponse, error) {
		found, err := e.api.ContainerInspect(ctx, id)
		return found, wrap(err, "inspect container %s", id)
	})
}

// List returns the containers that carry the labels, in every state.
func (e *Engine) List(ctx context.Context, labels Labels) ([]Container, error) {
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
		Image:  found.Config.Image,
		Labels: found.Config.Labels,
		IP:     address(found.NetworkSettings.Networks),
	}
	if s := found.State; s != nil {
		c.State, c.Running, c.OOMKilled = s.Status, s.Running, s.OOMKilled
		c.ExitCode, c.Error, c.Pid = s.ExitCode, s.Error, s.Pid
		c.StartedAt, c.FinishedAt = moment(s.StartedAt), moment(s.FinishedAt)
	}
	return c
}

func fromSummary(found *container.Summary) Container {
	c := Container{
		ID:      found.ID,
		Image:   found.Image,
		Labels:  found.Labels,
		State:   found.State,
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

// address is the container's address on the one network that Create gives it.
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
