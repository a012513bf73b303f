package docker

import (
	"context"
	"maps"

	"github.com/docker/docker/api/types/swarm"
)

// SwarmInfo is what an engine says of its part in a swarm.
type SwarmInfo struct {
	Active  bool   // the engine is in a swarm
	State   string // as the engine calls it, such as inactive, locked or error
	Node    string // its id in the swarm
	Name    string // of the engine's machine
	Address string // of the machine, without a port
	Manager bool
	ID      string // of the swarm; "" unless the engine is a manager
}

// SwarmNode is a node as a manager sees it.
type SwarmNode struct {
	ID, State, Availability string
	Labels                  map[string]string
	Manager                 bool
}

// Swarm returns the engine's part in a swarm.
func (e *Engine) Swarm(ctx context.Context) (SwarmInfo, error) {
	found, err := e.api.Info(ctx)
	if err != nil {
		return SwarmInfo{}, wrap(err, "describe engine")
	}
	s := found.Swarm
	info := SwarmInfo{
		Active: s.LocalNodeState == swarm.LocalNodeStateActive, State: string(s.LocalNodeState),
		Node: s.NodeID, Name: found.Name, Address: s.NodeAddr, Manager: s.ControlAvailable,
	}
	if s.Cluster != nil {
		info.ID = s.Cluster.ID
	}
	return info, nil
}

// SwarmNodes returns all nodes of the swarm. It fails on an engine that is not a manager, and
// on one that reaches too few others.
func (e *Engine) SwarmNodes(ctx context.Context) ([]SwarmNode, error) {
	found, err := e.api.NodeList(ctx, swarm.NodeListOptions{})
	if err != nil {
		return nil, wrap(err, "list nodes of the swarm")
	}
	return each(found, func(n swarm.Node) SwarmNode {
		labels := maps.Clone(n.Spec.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		return SwarmNode{
			ID: n.ID, State: string(n.Status.State), Availability: string(n.Spec.Availability),
			Labels: labels, Manager: n.ManagerStatus != nil,
		}
	}), nil
}
