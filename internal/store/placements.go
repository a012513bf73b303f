package store

import (
	"context"
	"strings"
)

// Placement is the node that owns a stack; "" if the stack is deleted.
type Placement struct{ Stack, Node string }

// placement is the columns of a Placement.
const placement = "SELECT id, CASE WHEN status = 'deleted' THEN '' ELSE node END FROM stacks "

func placementPlaces(p *Placement) []any { return []any{&p.Stack, &p.Node} }

// Placements returns where the stacks are that are not deleted.
func (s *Store) Placements(ctx context.Context) ([]Placement, error) {
	return readAll(ctx, s, s.read, "read the stacks' nodes", placementPlaces, placement+"WHERE status <> 'deleted'")
}

// PlacementsOf returns where some stacks are. It leaves out unknown ones.
func (s *Store) PlacementsOf(ctx context.Context, ids []string) ([]Placement, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	return readAll(ctx, s, s.read, "read the stacks' nodes", placementPlaces,
		placement+"WHERE id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", args...)
}

// Placement returns where a stack is.
func (s *Store) Placement(ctx context.Context, id string) (Placement, error) {
	p, _, err := readOne(ctx, s, s.read, "read the node of stack "+id, placementPlaces, placement+"WHERE id = ?", id)
	p.Stack = id
	return p, err
}
