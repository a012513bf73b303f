#!/bin/sh
# Exits with 0 if PostgreSQL accepts connections, with 1 while it starts or recovers, and
# with 2 if it does not answer.
exec pg_isready -h 127.0.0.1 -p "$PORT" -t 3
