#!/bin/sh
# Makes the data in $DATA_DIR, which is empty, from a dump in pg_dump's custom format on
# standard input. A server that nobody else reaches loads it, as the role $PGUSER, and is shut
# down.
set -eu
export PGHOST=/tmp
log=$(mktemp)

postgres-start -c listen_addresses= >"$log" 2>&1 &
server=$!
stop() {
	kill -INT "$server" 2>/dev/null || true
	wait "$server" || true
}
trap stop EXIT

until pg_isready -q; do
	if ! kill -0 "$server" 2>/dev/null; then
		cat "$log" >&2
		exit 1
	fi
	sleep 0.1
done
pg_restore --dbname="$PGDATABASE" --no-owner --no-acl --single-transaction --exit-on-error
trap - EXIT
kill -INT "$server"
wait "$server"
