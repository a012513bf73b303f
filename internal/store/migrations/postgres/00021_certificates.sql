-- certificates has what an authority issued to the nodes of a cluster, with its keys and what
-- is needed to get more. Keys are ordered by their bytes. certificate_locks has who is at work
-- on something, until held_until by the clock of the database.

-- +goose Up
CREATE TABLE certificates (
    key          TEXT COLLATE "C" PRIMARY KEY,
    value_sealed BYTEA NOT NULL,
    modified_at  BIGINT NOT NULL
);

CREATE TABLE certificate_locks (
    name       TEXT PRIMARY KEY,
    holder     TEXT NOT NULL,
    held_until BIGINT NOT NULL
);
