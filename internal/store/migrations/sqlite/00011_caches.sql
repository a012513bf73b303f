-- caches_dropped counts how often the build caches of a stack were given up.

-- +goose Up
ALTER TABLE stacks ADD COLUMN caches_dropped INTEGER NOT NULL DEFAULT 0;
