#!/bin/sh
# install.sh PACKAGE…: installs Debian packages while a base image is built.
# DEBIAN_MIRROR replaces the mirror that the image names; ca.crt beside this
# script is trusted besides the system's certificates, during the build only.
set -eu
here=$(dirname "$0")

if [ -n "${DEBIAN_MIRROR:-}" ]; then
	rm -f /etc/apt/sources.list.d/debian.sources
	echo "deb $DEBIAN_MIRROR trixie main" >/etc/apt/sources.list
fi

system=/etc/ssl/certs/ca-certificates.crt
bundle() { cat "$here/ca.crt" $([ ! -f $system ] || echo $system) >"$here/bundle.crt"; }

export DEBIAN_FRONTEND=noninteractive
apt() {
	apt-get -o "Acquire::https::CAInfo=$here/bundle.crt" -o Acquire::Retries=3 \
		-o Dpkg::Use-Pty=0 -qq "$@"
}

bundle
apt update
if ! apt install -y --no-install-recommends "$@" >/tmp/install.log 2>&1; then
	cat /tmp/install.log >&2
	exit 1
fi
apt clean
rm -rf /tmp/install.log /var/lib/apt/lists/* /var/cache/debconf/*-old /var/lib/dpkg/*-old /var/log/apt /var/log/dpkg.log
bundle
