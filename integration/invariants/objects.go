package invariants

import (
	"context"
	"errors"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
)

// Inventory lists what an engine has that a filter selects, by stack: names without the
// stack's own part, as in "running container web-g1".
func Inventory(ctx context.Context, docker *client.Client, of filters.Args) (map[string][]string, error) {
	all := map[string][]string{}
	note := func(kind, name string, labels map[string]string) {
		id := labels["berth.stack"]
		hex := strings.TrimPrefix(id, "stk_")
		name = strings.NewReplacer("berth-"+hex, "", "berth/"+hex+"-", "", "/", "").Replace(name)
		all[id] = append(all[id], strings.TrimSpace(kind+" "+strings.TrimPrefix(name, "-")))
	}
	containers, err1 := docker.ContainerList(ctx, container.ListOptions{All: true, Filters: of})
	for _, c := range containers {
		note(c.State+" container", c.Names[0], c.Labels)
	}
	images, err2 := docker.ImageList(ctx, image.ListOptions{Filters: of})
	for _, i := range images {
		for _, tag := range i.RepoTags {
			note("image", tag, i.Labels)
		}
	}
	volumes, err3 := docker.VolumeList(ctx, volume.ListOptions{Filters: of})
	for _, v := range volumes.Volumes {
		note("volume", v.Name, v.Labels)
	}
	networks, err4 := docker.NetworkList(ctx, network.ListOptions{Filters: of})
	for _, n := range networks {
		note("network", n.Name, n.Labels)
	}
	return all, errors.Join(err1, err2, err3, err4)
}
