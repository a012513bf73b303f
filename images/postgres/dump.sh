#!/bin/sh
# Writes the database to standard output as of one moment, in pg_dump's custom format.
set -eu
export PGHOST=127.0.0.1
exec pg_dump --format=custom --no-owner --no-acl
