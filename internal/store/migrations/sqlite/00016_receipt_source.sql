-- source is the digest of the source that the request deploys, which its answers have as
-- their ETag; '' if none is kept, or the request is of before.

-- +goose Up
ALTER TABLE receipts ADD COLUMN source TEXT NOT NULL DEFAULT '';
