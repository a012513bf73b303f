-- attempt counts the builds of a stack, since a generation that does not go live leaves
-- its number to the next. Images and published folders have its number; those of before
-- have that of their generation, which the count is never below. generation_attempt is
-- the attempt that made the generation, and source what it was deployed from: the name of
-- a folder and a digest, both left out where no source was kept.

-- +goose Up
ALTER TABLE stacks ADD COLUMN attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stacks ADD COLUMN generation_attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE stacks ADD COLUMN source TEXT NOT NULL DEFAULT '{}';
UPDATE stacks SET
	generation_attempt = generation,
	attempt = max(generation, deploying, CASE attempted WHEN 'null' THEN 0 ELSE generation + 1 END);
