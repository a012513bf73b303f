-- disk is what a stack takes on the disk of its node, as it was measured last.

-- +goose Up
ALTER TABLE stacks ADD COLUMN disk TEXT NOT NULL DEFAULT 'null';
