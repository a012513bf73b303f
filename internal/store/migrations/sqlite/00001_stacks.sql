-- Times are microseconds since 1970, NULL for none. Columns that end in
-- "_sealed" hold what a Sealer made of JSON, NULL for nothing to seal.

-- +goose Up
CREATE TABLE accounts (
    id         TEXT NOT NULL PRIMARY KEY,
    email      TEXT NOT NULL UNIQUE COLLATE NOCASE,
    key_hash   BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL
) STRICT;

CREATE TABLE stacks (
    seq                   INTEGER PRIMARY KEY AUTOINCREMENT,
    id                    TEXT NOT NULL UNIQUE,
    name                  TEXT NOT NULL,
    status                TEXT NOT NULL,
    owner                 TEXT REFERENCES accounts (id),
    claim_email           TEXT NOT NULL,
    network               TEXT NOT NULL,
    manage_token_hash     BLOB,
    claim_code_hash       BLOB,
    created_at            INTEGER,
    deployed_at           INTEGER,
    expires_at            INTEGER,
    expired_at            INTEGER,
    retained_until        INTEGER,
    generation            INTEGER NOT NULL,
    deploying             INTEGER NOT NULL,
    error                 TEXT NOT NULL,
    deploy_error          TEXT NOT NULL,
    webhook               TEXT NOT NULL,
    services              TEXT NOT NULL, -- JSON, in the manifest's order, without their env
    webhook_secret_sealed BLOB,
    secrets_sealed        BLOB,
    env_sealed            BLOB
) STRICT;

CREATE UNIQUE INDEX stacks_manage_token ON stacks (manage_token_hash) WHERE manage_token_hash IS NOT NULL;
CREATE UNIQUE INDEX stacks_claim_code ON stacks (claim_code_hash) WHERE claim_code_hash IS NOT NULL;
CREATE INDEX stacks_unclaimed ON stacks (network, status) WHERE owner IS NULL;
CREATE INDEX stacks_owned ON stacks (owner, seq) WHERE owner IS NOT NULL;
CREATE INDEX stacks_kept ON stacks (seq) WHERE status <> 'deleted';

CREATE TABLE events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    stack_id   TEXT NOT NULL REFERENCES stacks (id),
    type       TEXT NOT NULL,
    data       TEXT NOT NULL, -- JSON object
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX events_of_stack ON events (stack_id, id);
