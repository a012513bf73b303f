#!/bin/sh
# Runs PostgreSQL on the data in $DATA_DIR, which it makes the first time: the role $PGUSER
# with $PGPASSWORD, and the database $PGDATABASE, which belongs to the role.
set -eu
data=$DATA_DIR/postgres

# name_user gives the user that this runs as a name.
name_user() {
	users=$(mktemp -d)
	echo "postgres:x:$(id -u):$(id -g)::$HOME:/bin/sh" >"$users/passwd"
	: >"$users/group"
	export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$users/passwd" NSS_WRAPPER_GROUP="$users/group"
}

# The data gets its name once all of it is there and on disk, so that a start that was cut off
# is begun again. The superuser's commands run in single-user mode, which asks for no password;
# the first that fails ends it, and the log does not repeat it, since it may have the password.
make_data() (
	new=$DATA_DIR/.postgres-new
	name_user
	rm -rf "$new"
	initdb -D "$new" --username=postgres --auth=reject --encoding=UTF8 \
		--locale-provider=builtin --locale=C.UTF-8 >/dev/null
	postgres --single -j -D "$new" -c exit_on_error=on -c log_min_error_statement=panic \
		-c log_min_messages=warning -c log_checkpoints=off postgres <<-SQL >/dev/null
		CREATE ROLE "$PGUSER" LOGIN PASSWORD '$PGPASSWORD';

		CREATE DATABASE "$PGDATABASE" OWNER "$PGUSER";
	SQL
	mv "$new" "$data"
	sync "$DATA_DIR"
)

umask 077
if [ ! -e "$data" ]; then
	make_data
fi

# Some libraries insist on TLS if they are not told otherwise, and none of those can know whom
# to trust. So there is a certificate, which is made anew at each start.
tls=/tmp/postgres-tls
rm -rf $tls
mkdir $tls
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 \
	-subj /CN=postgres -keyout $tls/key -out $tls/certificate 2>/dev/null

# Shared memory lies in the data directory, since /dev/shm may be small.
exec postgres -D "$data" \
	-c listen_addresses='*' -c port="$PORT" -c unix_socket_directories=/tmp \
	-c hba_file=/usr/local/lib/postgres/access.conf \
	-c ssl=on -c ssl_cert_file=$tls/certificate -c ssl_key_file=$tls/key \
	-c dynamic_shared_memory_type=mmap -c log_checkpoints=off -c log_line_prefix= "$@"
