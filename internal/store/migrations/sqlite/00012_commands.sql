-- A command is one that somebody ran in a container of a stack: run_by is the email of
-- the owner, or empty for the manage token. ended_at is NULL while it runs, and
-- exit_code if it was ended from outside. The last ones of each stack are kept; they
-- go with it.

-- +goose Up
CREATE TABLE commands (
    seq            INTEGER PRIMARY KEY AUTOINCREMENT,
    id             TEXT NOT NULL UNIQUE,
    stack_id       TEXT NOT NULL REFERENCES stacks (id),
    service        TEXT NOT NULL,
    run_by         TEXT NOT NULL,
    command_sealed BLOB NOT NULL,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER,
    exit_code      INTEGER,
    timed_out      INTEGER NOT NULL,
    error          TEXT NOT NULL
) STRICT;

CREATE INDEX commands_of_stack ON commands (stack_id, seq);
