-- remains is what a node may still have of a stack that another one owns now. Data there
-- stays, unless all of it may go, as after a move. volumes are those in which the node has
-- found data, seen_at when it last did; NULL until it has looked. A node that is expected
-- to become the owner has got copies of the stack.
--
-- webhook_mark has a row for each node. webhook_owed has the events that the owner before
-- may not have begun to deliver when it handed over a stack: those after an id, up to
-- another.

-- +goose Up
CREATE TABLE remains (
    stack_id TEXT NOT NULL REFERENCES stacks (id),
    node     TEXT NOT NULL,
    all_go   BOOLEAN NOT NULL,
    expected BOOLEAN NOT NULL,
    since    BIGINT NOT NULL,
    volumes  TEXT NOT NULL DEFAULT 'null',
    seen_at  BIGINT,
    PRIMARY KEY (stack_id, node)
);

CREATE TABLE webhook_owed (
    node     TEXT NOT NULL,
    stack_id TEXT NOT NULL REFERENCES stacks (id),
    after_id BIGINT NOT NULL,
    up_to_id BIGINT NOT NULL,
    PRIMARY KEY (node, stack_id)
);

ALTER TABLE webhook_mark ADD COLUMN node TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX webhook_mark_of_node ON webhook_mark (node);
