-- data_volumes has the number of the data volume of each service whose data was replaced.

-- +goose Up
ALTER TABLE stacks ADD COLUMN data_volumes TEXT NOT NULL DEFAULT 'null';
