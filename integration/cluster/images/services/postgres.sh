#!/bin/sh
# postgres.sh [OPTION…]: serves PostgreSQL with the options. Makes its files at the first
# start, with a superuser of the name and password in POSTGRES_USER and POSTGRES_PASSWORD.
set -eu
bin=/usr/lib/postgresql/17/bin
data=/var/lib/postgresql/data

as_postgres() { setpriv --reuid postgres --regid postgres --init-groups "$@"; }

if [ ! -e $data/PG_VERSION ]; then
	chown postgres: /var/lib/postgresql
	echo "$POSTGRES_PASSWORD" >/tmp/password
	chmod 644 /tmp/password
	as_postgres $bin/initdb -D $data --username "$POSTGRES_USER" --pwfile=/tmp/password --no-sync \
		--auth=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 >/dev/null
	echo 'host all all all scram-sha-256' >>$data/pg_hba.conf
fi
exec setpriv --reuid postgres --regid postgres --init-groups \
	$bin/postgres -D $data -c listen_addresses='*' -c unix_socket_directories=/tmp "$@"
