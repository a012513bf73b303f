-- password_hash is what package auth made of the password, NULL for an account
-- that has none and so cannot sign in. key_hint is the end of the API key.

-- +goose Up
ALTER TABLE accounts ADD COLUMN password_hash TEXT;
ALTER TABLE accounts ADD COLUMN key_hint TEXT NOT NULL DEFAULT '';
ALTER TABLE accounts ADD COLUMN key_made_at INTEGER;

CREATE TABLE sessions (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    token_hash   BLOB NOT NULL UNIQUE,
    account      TEXT NOT NULL REFERENCES accounts (id),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    ip           TEXT NOT NULL,
    user_agent   TEXT NOT NULL
) STRICT;

CREATE INDEX sessions_of_account ON sessions (account, id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
