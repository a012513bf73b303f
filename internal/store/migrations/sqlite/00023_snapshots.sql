-- snapshot describes the last copy of a live stack's data that is kept apart from its node, as
-- JSON, and regained the one with which the stack began on another node; {} is none.

-- +goose Up
ALTER TABLE stacks ADD COLUMN snapshot TEXT NOT NULL DEFAULT '{}';
ALTER TABLE stacks ADD COLUMN regained TEXT NOT NULL DEFAULT '{}';
