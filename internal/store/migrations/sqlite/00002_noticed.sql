-- noticed is 1 once stack.expiring was recorded for the stack's expires_at.

-- +goose Up
ALTER TABLE stacks ADD COLUMN noticed INTEGER NOT NULL DEFAULT 0;
