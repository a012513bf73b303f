-- nodes are the machines of a cluster. A node holds its lease until lease_until, by the clock
-- of the database, and renewed it at renewed_at; if its lease was over then, it had ended at
-- lapsed_at. holder is the data directory whose server has the lease. empty is a JSON array of
-- stacks that had no data then. The columns from word_state on are what a manager of Swarm said
-- at word_at; a manager's server was last in contact with that of the node at seen_at. An
-- operator gave the node up at lost_at.
--
-- installation has one row: whom the database belongs to.

-- +goose Up
CREATE TABLE nodes (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    address       TEXT NOT NULL,
    version       TEXT NOT NULL,
    holder        TEXT NOT NULL,
    registered_at BIGINT NOT NULL,
    renewed_at    BIGINT NOT NULL,
    lease_until   BIGINT NOT NULL,
    lapsed_at     BIGINT,
    stacks        BIGINT NOT NULL DEFAULT 0,
    builds        BIGINT NOT NULL DEFAULT 0,
    room          BIGINT NOT NULL DEFAULT 0,
    empty         TEXT NOT NULL DEFAULT 'null',
    word_state    TEXT NOT NULL DEFAULT '',
    availability  TEXT NOT NULL DEFAULT '',
    labels        TEXT NOT NULL DEFAULT '{}',
    manager       BOOLEAN NOT NULL DEFAULT false,
    word_at       BIGINT,
    seen_at       BIGINT,
    lost_at       BIGINT,
    draining      BOOLEAN NOT NULL DEFAULT false
);

CREATE TABLE installation (
    one         BIGINT PRIMARY KEY CHECK (one = 1),
    id          TEXT NOT NULL,
    key_print   TEXT NOT NULL,
    base_url    TEXT NOT NULL,
    apps_domain TEXT NOT NULL,
    cluster     TEXT NOT NULL,
    swarm       TEXT NOT NULL,
    made_at     BIGINT NOT NULL
);
