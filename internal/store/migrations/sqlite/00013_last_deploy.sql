-- last_deploy is the latest attempt to deploy the stack, as a JSON object: its numbers,
-- how far it is, how it ended. It is empty for a stack whose latest attempt was made by
-- an earlier version.

-- +goose Up
ALTER TABLE stacks ADD COLUMN last_deploy TEXT NOT NULL DEFAULT '{}';
