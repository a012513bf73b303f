-- data_key_sealed is the key of what a registry has of a stack; a delete clears it, and with
-- it all that was sealed. pushed is true while the registry may have something of the stack.

-- +goose Up
ALTER TABLE stacks ADD COLUMN data_key_sealed BYTEA;
ALTER TABLE stacks ADD COLUMN pushed BOOLEAN NOT NULL DEFAULT false;
CREATE INDEX stacks_to_forget ON stacks (seq) WHERE status = 'deleted' AND pushed;
