-- A receipt is what is kept of a request with an Idempotency-Key. key is a hash
-- of the key and of whom and what it is for. one_time_sealed is NULL when there
-- is nothing to hide, or once it is too late to show it again; answer is NULL
-- while the request has not been answered.

-- +goose Up
CREATE TABLE receipts (
    key             TEXT NOT NULL PRIMARY KEY,
    digest          BLOB NOT NULL,
    stack_id        TEXT NOT NULL REFERENCES stacks (id),
    address         TEXT NOT NULL,
    created_at      INTEGER NOT NULL,
    answer          TEXT,
    one_time_sealed BLOB
) STRICT;

CREATE INDEX receipts_by_age ON receipts (created_at);
