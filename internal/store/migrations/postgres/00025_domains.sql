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
    watched_since BIGINT NOT NULL,
    checked_at    BIGINT,
    missing_since BIGINT,
    next_check    BIGINT,
    failed_orders BIGINT NOT NULL,
    order_error   TEXT NOT NULL,
    next_order    BIGINT,
    PRIMARY KEY (stack_id, host)
);

CREATE UNIQUE INDEX domains_active ON domains (host) WHERE status = 'active';
CREATE INDEX domains_of_host ON domains (host);
CREATE INDEX domains_due ON domains (next_check) WHERE next_check IS NOT NULL;

ALTER TABLE stacks ADD COLUMN primary_hosts TEXT NOT NULL DEFAULT 'null';

-- +goose StatementBegin
CREATE FUNCTION berth_notify_domain() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('berth', OLD.stack_id);
    ELSE
        PERFORM pg_notify('berth', NEW.stack_id);
    END IF;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER domains_notify AFTER INSERT OR DELETE ON domains FOR EACH ROW EXECUTE FUNCTION berth_notify_domain();
CREATE TRIGGER domains_notify_change AFTER UPDATE ON domains FOR EACH ROW
    WHEN (OLD.status <> NEW.status OR OLD.service <> NEW.service) EXECUTE FUNCTION berth_notify_domain();
