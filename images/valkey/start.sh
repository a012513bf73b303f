#!/bin/sh
# Runs Valkey on the data in $DATA_DIR, with the password $REDISCLI_AUTH. Every change is
# appended to a file, which is synced once a second, before it is answered, or up to 2 s later
# while a sync takes long.
set -eu
umask 077
mkdir -p "$DATA_DIR/valkey"
settings=$(mktemp)
cat >"$settings" <<SETTINGS
port $PORT
bind *
requirepass $REDISCLI_AUTH
dir $DATA_DIR/valkey
appendonly yes
appendfsync everysec
save ""
SETTINGS
exec valkey-server "$settings"
