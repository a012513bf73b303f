-- node is the id of the node that owns a stack, '' on one machine, and epoch counts its
-- owners: whoever owned the stack before is refused by its older epoch.

-- +goose Up
ALTER TABLE stacks ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE stacks ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
CREATE INDEX stacks_of_node ON stacks (node, seq) WHERE status <> 'deleted';
