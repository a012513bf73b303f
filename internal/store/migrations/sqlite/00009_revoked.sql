-- revoked_token_hash is the hash of the manage token that the owner revoked, so that
-- whoever still uses it is told so; NULL where nothing was revoked, and where it was
-- before this column.

-- +goose Up
ALTER TABLE stacks ADD COLUMN revoked_token_hash BLOB;
