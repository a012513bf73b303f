#!/bin/sh
# Provides the browser for the tests of the pages. Uses an installed Chromium if
# there is one. On Debian, as root, installs the package chromium. Otherwise fails
# with one line that says what to install.
#
# BERTH_TEST_CHROMIUM names another browser based on Chromium.
set -eu

say() { echo "chromium.sh: $*" >&2; }

there() {
	for name in "${BERTH_TEST_CHROMIUM:-}" chromium chromium-browser google-chrome; do
		[ -n "$name" ] && command -v "$name" >/dev/null && return 0
	done
	return 1
}

debian_as_root() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && grep -qs '^ID=debian' /etc/os-release
}

there && exit 0
if ! debian_as_root; then
	say "no browser for the tests of the pages: install Chromium (on Debian, running this as root does), or name one in BERTH_TEST_CHROMIUM"
	exit 1
fi
say "no Chromium here: installing it with apt-get"
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
