-- A delivery is one attempt to hand an event to a stack's webhook. event_id is
-- below 0 for a test event, which is in no other table. The last ones of each
-- stack are kept; they go with it.

-- +goose Up
CREATE TABLE deliveries (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    stack_id TEXT NOT NULL REFERENCES stacks (id),
    event_id INTEGER NOT NULL,
    type     TEXT NOT NULL,
    attempt  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    duration INTEGER NOT NULL, -- microseconds
    status   INTEGER NOT NULL,
    error    TEXT NOT NULL,
    words    TEXT NOT NULL
) STRICT;

CREATE INDEX deliveries_of_stack ON deliveries (stack_id, id);
