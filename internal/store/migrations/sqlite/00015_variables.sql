-- variables_sealed holds the variables that are set outside the manifest of the served
-- generation, by service and name; NULL if there never were any.

-- +goose Up
ALTER TABLE stacks ADD COLUMN variables_sealed BLOB;
