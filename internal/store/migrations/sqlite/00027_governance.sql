-- disabled_for is why an operator has disabled an account; NULL if none has. bans are client
-- networks that get no answer but a refusal. audit is what operators told running servers;
-- nothing removes a row of it.

-- +goose Up
ALTER TABLE accounts ADD COLUMN disabled_for TEXT;

CREATE TABLE bans (
    network    TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    ends_at    INTEGER
) STRICT;

CREATE TABLE audit (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    uid     INTEGER NOT NULL,
    command TEXT NOT NULL,
    result  TEXT NOT NULL
) STRICT;
