#!/bin/bash
# Runs Valkey on the data in $DATA_DIR, with the password $REDISCLI_AUTH. Every change is
# appended to a file before it is answered, and the file is synced once a second. Valkey does
# not sync it itself: while that takes long it would answer before it appends, and a kill would
# lose what it has answered.
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
appendfsync no
save ""
SETTINGS

# sync_changes syncs what was appended, once a second. It starts a program only if something was.
sync_changes() {
	local never synced file
	exec {never}<> <(:)
	synced=$(mktemp)
	while :; do
		read -rt 1 -u "$never" || :
		for file in "$DATA_DIR"/valkey/appendonlydir/*.incr.aof; do
			if [[ -e $file && ! $file -ot $synced ]]; then
				: >"$synced"
				sync --data "$file" || :
			fi
		done
	done
}
sync_changes &
exec valkey-server "$settings"
