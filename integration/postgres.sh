#!/bin/sh
# Provides PostgreSQL, 15 or newer, for the tests, which run its programs themselves. Uses
# those of Debian's packages if they are there. On Debian, as root, installs the package
# postgresql without starting a server. Otherwise fails with one line that says what to
# install.
#
# BERTH_TEST_POSTGRES names the folder of other programs.
set -eu

say() { echo "postgres.sh: $*" >&2; }

there() {
	[ -z "${BERTH_TEST_POSTGRES:-}" ] || return 0
	for postgres in /usr/lib/postgresql/*/bin/postgres; do
		version=${postgres#/usr/lib/postgresql/}
		[ -x "$postgres" ] && [ "${version%%/*}" -ge 15 ] && return 0
	done
	return 1
}

debian_as_root() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && grep -qs '^ID=debian' /etc/os-release
}

there && exit 0
if ! debian_as_root; then
	say "no PostgreSQL 15 or newer for the tests: install it (on Debian, running this as root does), or name the folder of its programs in BERTH_TEST_POSTGRES"
	exit 1
fi
say "no PostgreSQL here: installing it with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
mkdir -p /etc/postgresql-common
[ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
apt-get -qq install -y --no-install-recommends postgresql >/dev/null
