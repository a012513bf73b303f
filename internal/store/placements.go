package store

import (
	"context"
)

// Placement is the node that owns a stack; "" if the stack is deleted.
type Placement struct{ Stack, Node string }

// placement is the columns of a Placement.
const placement = "SELECT id, CASE WHEN status = 'deleted' THEN '' ELSE node END FROM stacks "

func placementPlaces(p *Placement) []any { return []any{&p.Stack, &p.Node} }

// Placements returns where the stacks are that are not deleted, and a mark of this
// moment for PlacementsSince.
func (s *Store) Placements(ctx context.Context) (all []Placement, mark int64, err error) {
	if mark, err = s.lastEvent(ctx); err != nil {
		return nil, 0, err
	}
	all, err = readAll(ctx, s, s.read, "read the stacks' nodes", placementPlaces, placement+"WHERE status <> 'deleted'")
	return all, mark, err
}

// PlacementsSince returns where the stacks are that have events after a mark, and the
// next mark. Whatever gives a stack another node records an event.
func (s *Store) PlacementsSince(ctx context.Context, mark int64) (changed []Placement, next int64, err error) {
	if next, err = s.lastEvent(ctx); err != nil || next == mark {
		return nil, next, err
	}
	changed, err = readAll(ctx, s, s.read, "read the stacks' nodes", placementPlaces,
		placement+"WHERE id IN (SELECT stack_id FROM events WHERE id > ?)", mark)
	return changed, next, err
}

// Placement returns where a stack is.
func (s *Store) Placement(ctx context.Context, id string) (Placement, error) {
	p, _, err := readOne(ctx, s, s.read, "read the node of stack "+id, placementPlaces, placement+"WHERE id = ?", id)
	p.Stack = id
	return p, err
}

// lastEvent returns the id of the latest event, 0 for none.
func (s *Store) lastEvent(ctx context.Context) (id int64, err error) {
	id, _, err = readOne(ctx, s, s.read, "read the latest event", onlyPlace[int64], "SELECT COALESCE(MAX(id), 0) FROM events")
	return id, err
}
