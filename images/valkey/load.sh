#!/bin/sh
# Makes the data in $DATA_DIR, which is empty, from an RDB on standard input. A server that
# nobody else reaches loads it, writes the file to which it will append, and is shut down.
set -eu
umask 077
data=$DATA_DIR/valkey
mkdir "$data"
cat >"$data/dump.rdb"
valkey-check-rdb "$data/dump.rdb" >&2

ask() { valkey-cli -s /tmp/valkey.sock "$@"; }
state() { ask INFO persistence | tr -d '\r' | sed -n "s/^$1://p"; }

valkey-server --port 0 --unixsocket /tmp/valkey.sock --dir "$data" --appendonly no --save '' --logfile /tmp/valkey.log &
server=$!
until [ "$(ask PING 2>/dev/null)" = PONG ]; do
	if ! kill -0 "$server" 2>/dev/null; then
		tail -n 3 /tmp/valkey.log >&2
		exit 1
	fi
	sleep 0.1
done
ask CONFIG SET appendonly yes >/dev/null
while [ "$(state aof_rewrite_in_progress)" != 0 ] || [ "$(state aof_rewrite_scheduled)" != 0 ]; do
	sleep 0.1
done
[ "$(state aof_last_bgrewrite_status)" = ok ]
ask SHUTDOWN
wait "$server"
rm "$data/dump.rdb"
