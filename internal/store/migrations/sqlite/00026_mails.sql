-- mails are what the holders of accounts are told by mail. A row stays for an hour: until then a
-- mail that could not be sent is tried again, and no second one of its kind is written. try_at
-- is NULL once it was sent or refused. mail_tokens are the hashes of the tokens in links.

-- +goose Up
ALTER TABLE accounts ADD COLUMN confirmed_at INTEGER;
ALTER TABLE accounts ADD COLUMN mail_off INTEGER NOT NULL DEFAULT 0;

CREATE TABLE mails (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    kind       TEXT NOT NULL,
    account    TEXT NOT NULL,
    address    TEXT NOT NULL,
    stack_id   TEXT NOT NULL,
    detail     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    try_at     INTEGER,
    tries      INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX mails_due ON mails (try_at) WHERE try_at IS NOT NULL;

CREATE TABLE mail_tokens (
    hash       BLOB PRIMARY KEY,
    kind       TEXT NOT NULL,
    account    TEXT NOT NULL REFERENCES accounts (id),
    stack_id   TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
CREATE INDEX mail_tokens_of ON mail_tokens (account);
