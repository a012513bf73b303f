package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/volume"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

// ofStacks selects the objects of stacks. There is one installation at a time in the lab.
func ofStacks() filters.Args { return filters.NewArgs(filters.Arg("label", "berth.instance")) }

// inventory lists what the node's engine and disk have, by stack: names without the
// stack's own part.
func (h *Host) inventory(ctx context.Context) (map[string][]string, error) {
	all, err := invariants.Inventory(ctx, h.node.Engine, ofStacks())
	if err != nil {
		return nil, err
	}
	found, err := h.node.Machine.Run(ctx, "", "sh", "-c", `cd "$0" && for f in stacks/*/logs stacks/*/sources/* stacks/*/sites/*/* uploads/*; do [ ! -e "$f" ] || echo "$f"; done`, h.c.dir)
	for path := range strings.Lines(found) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(path), "/")
		if kind == "uploads" {
			all[""] = append(all[""], "file uploads/"+rest)
			continue
		}
		hex, name, _ := strings.Cut(rest, "/")
		all["stk_"+hex] = append(all["stk_"+hex], "file "+name)
	}
	return all, err
}

// removeStacks removes every object of stacks from the node, as far as possible.
func (n *Node) removeStacks(ctx context.Context) error {
	containers, err1 := n.Engine.ContainerList(ctx, container.ListOptions{All: true, Filters: ofStacks()})
	for _, c := range containers {
		err1 = errors.Join(err1, n.Engine.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	images, err2 := n.Engine.ImageList(ctx, image.ListOptions{All: true, Filters: ofStacks()})
	for _, i := range images {
		_, _ = n.Engine.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true, PruneChildren: true}) // it may be gone with another
	}
	volumes, err3 := n.Engine.VolumeList(ctx, volume.ListOptions{Filters: ofStacks()})
	for _, v := range volumes.Volumes {
		err3 = errors.Join(err3, n.Engine.VolumeRemove(ctx, v.Name, true))
	}
	networks, err4 := n.Engine.NetworkList(ctx, network.ListOptions{Filters: ofStacks()})
	for _, w := range networks {
		err4 = errors.Join(err4, n.Engine.NetworkRemove(ctx, w.ID))
	}
	return errors.Join(err1, err2, err3, err4)
}

// has lists what there is of a stack on the node.
func (h *Host) has(t *testing.T, st *Stack) []string {
	t.Helper()
	all, err := h.inventory(t.Context())
	require.NoError(t, err)
	return all[st.ID]
}

// hasNothing waits until there is nothing of any stack on the node.
func (h *Host) hasNothing(t *testing.T) {
	t.Helper()
	eventually(t, "nothing is left on "+h.node.Name, func() error {
		all, err := h.inventory(context.Background())
		maps.DeleteFunc(all, func(_ string, found []string) bool { return len(found) == 0 })
		if err == nil && len(all) > 0 {
			err = fmt.Errorf("there is %q", all)
		}
		return err
	})
}
