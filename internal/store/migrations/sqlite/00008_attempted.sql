-- attempted is the names of the services of the last redeploy that did not go live,
-- as a JSON array, or null.

-- +goose Up
ALTER TABLE stacks ADD COLUMN attempted TEXT NOT NULL DEFAULT 'null';
