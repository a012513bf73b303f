package integration

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"
)

// labelInstance is on every object that an installation makes.
const labelInstance = "berth.instance"

// instancePrefix begins the name of every installation of these tests; the
// process id of its run follows.
const instancePrefix = "integration-"

func instanceName(number int64) string {
	return instancePrefix + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(number, 10)
}

// objects counts what an installation has.
type objects struct{ containers, images, volumes, networks, files int }

// objects counts the installation's objects in the engine and on the disk.
func (h *Host) objects(t *testing.T) objects {
	t.Helper()
	found, err := listObjects(context.Background(), h.docker, h.instance)
	require.NoError(t, err)
	return objects{len(found.containers), len(found.images), len(found.volumes), len(found.networks), len(h.files(t))}
}

// engineObjects are the ids, or names, of an installation's objects.
type engineObjects struct{ containers, images, volumes, networks []string }

// engine opens the engine of this machine.
func engine() (*client.Client, error) {
	return client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
}

// docker opens the engine that the server uses.
func (h *Host) docker() (*client.Client, error) {
	if h.engine != nil {
		return h.engine.open()
	}
	return engine()
}

// byLabel is a filter: an instance, or everything that has one when it is "".
func byLabel(instance string) filters.Args {
	if instance == "" {
		return filters.NewArgs(filters.Arg("label", labelInstance))
	}
	return filters.NewArgs(filters.Arg("label", labelInstance+"="+instance))
}

func listObjects(ctx context.Context, open func() (*client.Client, error), instance string) (engineObjects, error) {
	var found engineObjects
	docker, err := open()
	if err != nil {
		return found, err
	}
	defer docker.Close()
	containers, err1 := docker.ContainerList(ctx, container.ListOptions{All: true, Filters: byLabel(instance)})
	for _, c := range containers {
		found.containers = append(found.containers, c.ID)
	}
	images, err2 := docker.ImageList(ctx, image.ListOptions{All: true, Filters: byLabel(instance)})
	for _, i := range images {
		found.images = append(found.images, i.ID)
	}
	volumes, err3 := docker.VolumeList(ctx, volume.ListOptions{Filters: byLabel(instance)})
	for _, v := range volumes.Volumes {
		found.volumes = append(found.volumes, v.Name)
	}
	networks, err4 := docker.NetworkList(ctx, network.ListOptions{Filters: byLabel(instance)})
	for _, n := range networks {
		found.networks = append(found.networks, n.ID)
	}
	return found, errors.Join(err1, err2, err3, err4)
}

// removeObjects removes what is left of an installation, as far as possible.
func removeObjects(open func() (*client.Client, error), instance string) {
	ctx := context.Background()
	docker, err := open()
	if err != nil {
		return
	}
	defer docker.Close()
	found, _ := listObjects(ctx, open, instance)
	for _, id := range found.containers {
		_ = docker.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	}
	for _, id := range found.images {
		_, _ = docker.ImageRemove(ctx, id, image.RemoveOptions{Force: true, PruneChildren: true})
	}
	for _, name := range found.volumes {
		_ = docker.VolumeRemove(ctx, name, true)
	}
	for _, id := range found.networks {
		_ = docker.NetworkRemove(ctx, id)
	}
}

// sweep removes what earlier runs of these tests left, when they were cut off.
// Other runs that are under way keep theirs.
func sweep() error {
	ctx := context.Background()
	docker, err := engine()
	if err != nil {
		return err
	}
	defer docker.Close()
	dead := map[string]bool{}
	note := func(labels map[string]string) {
		if instance := labels[labelInstance]; isDead(instance) {
			dead[instance] = true
		}
	}
	containers, err1 := docker.ContainerList(ctx, container.ListOptions{All: true, Filters: byLabel("")})
	for _, c := range containers {
		note(c.Labels)
	}
	images, err2 := docker.ImageList(ctx, image.ListOptions{All: true, Filters: byLabel("")})
	for _, i := range images {
		note(i.Labels)
	}
	volumes, err3 := docker.VolumeList(ctx, volume.ListOptions{Filters: byLabel("")})
	for _, v := range volumes.Volumes {
		note(v.Labels)
	}
	networks, err4 := docker.NetworkList(ctx, network.ListOptions{Filters: byLabel("")})
	for _, n := range networks {
		note(n.Labels)
	}
	for instance := range dead {
		removeObjects(engine, instance)
	}
	return errors.Join(err1, err2, err3, err4, sweepEngines())
}

// isDead reports whether an instance is of a run of these tests that has ended.
func isDead(instance string) bool {
	rest, ours := strings.CutPrefix(instance, instancePrefix)
	if !ours {
		return false
	}
	run, _, _ := strings.Cut(rest, "-")
	return hasEnded(run)
}

// hasEnded reports whether a run of these tests, named by its process id, is over.
func hasEnded(run string) bool {
	pid, err := strconv.Atoi(run)
	return err == nil && pid != os.Getpid() && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// lacks skips a test because of something that this machine does not have. With
// BERTH_REQUIRE_ENGINE=1, which make test sets, the test fails.
func lacks(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("BERTH_REQUIRE_ENGINE") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// needBase ends the test if the image from which all others are built is missing.
func needBase(t *testing.T) {
	t.Helper()
	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	_, err = docker.ImageInspect(context.Background(), baseImage)
	if client.IsErrConnectionFailed(err) {
		t.Fatal("no Docker engine answers: run make engine")
	}
	if err != nil {
		t.Fatalf("the engine has no %s: run make debian (%v)", baseImage, err)
	}
}

// inspect looks at the container that runs a service.
func (h *Host) inspect(t *testing.T, st *Stack, service string) container.InspectResponse {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	with := byLabel(h.instance)
	with.Add("label", "berth.stack="+st.ID)
	with.Add("label", "berth.service="+service)
	with.Add("name", "^/berth-"+st.hex()+"-"+service+"-g[0-9]") // one that builds has another
	list, err := docker.ContainerList(t.Context(), container.ListOptions{Filters: with})
	require.NoError(t, err)
	require.Len(t, list, 1, "running containers of service %s", service)
	c, err := docker.ContainerInspect(t.Context(), list[0].ID)
	require.NoError(t, err)
	return c
}

// stopContainer ends a container behind the server's back.
func (h *Host) stopContainer(t *testing.T, id string) {
	t.Helper()
	docker, err := h.docker()
	require.NoError(t, err)
	defer docker.Close()
	require.NoError(t, docker.ContainerStop(t.Context(), id, container.StopOptions{}))
}
