-- layers has what the install commands of a stack's services left for later builds: by
-- service, the reference of an image and keyed hashes of what the command could see.

-- +goose Up
ALTER TABLE stacks ADD COLUMN layers TEXT NOT NULL DEFAULT 'null';
