-- The row of a deleted stack is kept for its events. What else it held is cleared
-- when a stack is deleted; this clears it of those that were deleted before.

-- +goose Up
UPDATE stacks SET
    services     = '[]',
    claim_email  = '',
    network      = '',
    error        = '',
    deploy_error = '',
    secrets_sealed = NULL,
    env_sealed     = NULL
WHERE status = 'deleted';
