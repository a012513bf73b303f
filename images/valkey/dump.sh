#!/bin/sh
# Writes the data to standard output as of one moment, as an RDB.
set -eu
umask 077
rdb=$(mktemp -p "$DATA_DIR")
trap 'rm -f "$rdb"' EXIT
valkey-cli -h 127.0.0.1 -p "$PORT" --rdb "$rdb" >/dev/null
exec 3<"$rdb"
rm "$rdb"
cat <&3
