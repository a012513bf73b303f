-- moves are what an operator has asked for: that a stack goes to another node. Its owner acts
-- on it and removes the row, or says in error why the stack did not go.

-- +goose Up
CREATE TABLE moves (
    stack_id TEXT PRIMARY KEY REFERENCES stacks (id),
    target   TEXT NOT NULL,
    asked_at BIGINT NOT NULL,
    error    TEXT NOT NULL DEFAULT ''
);
