-- domains are the hosts of owners that lead to services of their stacks, or are to. One stack
-- at most has a host active. next_check and next_order are when a check or an order of a
-- certificate is due, NULL for never. primary_hosts has, by service, the domain whose URL the
-- stack's next generations get.

-- +goose Up
CREATE TABLE domains (
    stack_id      TEXT NOT NULL REFERENCES stacks (id),
    host          TEXT NOT NULL,
    service       TEXT NOT NULL,
    status        TEXT NOT NULL,
    reason        TEXT NOT NULL,
    watched_since INTEGER NOT NULL,
    checked_at    INTEGER,
    missing_since INTEGER,
    next_check    INTEGER,
    failed_orders INTEGER NOT NULL,
    order_error   TEXT NOT NULL,
    next_order    INTEGER,
    PRIMARY KEY (stack_id, host)
) STRICT;

CREATE UNIQUE INDEX domains_active ON domains (host) WHERE status = 'active';
CREATE INDEX domains_of_host ON domains (host);
CREATE INDEX domains_due ON domains (next_check) WHERE next_check IS NOT NULL;

ALTER TABLE stacks ADD COLUMN primary_hosts TEXT NOT NULL DEFAULT 'null';
