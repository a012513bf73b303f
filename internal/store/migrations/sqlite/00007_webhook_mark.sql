-- webhook_mark has one row: the first attempt to deliver an event has begun for
-- every event up to this id. What was recorded before there was a mark counts
-- as attempted.

-- +goose Up
CREATE TABLE webhook_mark (event_id INTEGER NOT NULL) STRICT;
INSERT INTO webhook_mark SELECT coalesce(max(id), 0) FROM events;
