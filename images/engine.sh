#!/bin/sh
# Provides a Docker engine. Uses the running engine if there is one. On Debian or
# Ubuntu, as root, installs docker.io if it is missing and starts it permanently.
# Otherwise fails with one line that says what to install.
#
# BERTH_DOCKERD_LOG is the log file of a dockerd started here.
set -eu
log=${BERTH_DOCKERD_LOG:-/var/log/berth-dockerd.log}
patience=60 # seconds

say() { echo "engine.sh: $*" >&2; }

answers() { version=$(docker version --format '{{.Server.Version}}' 2>/dev/null) && [ -n "$version" ]; }

finish() {
	say "Docker Engine $version answers"
	exit 0
}

debian_as_root() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null &&
		grep -qsE '^ID(_LIKE)?=.*(debian|ubuntu)' "${BERTH_OS_RELEASE:-/etc/os-release}"
}

installed() { command -v dockerd && command -v docker && command -v iptables; } >/dev/null

install() {
	say "no Docker engine here: installing docker.io with apt-get"
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq update
	packages="docker.io iptables mmdebstrap ca-certificates iproute2"
	# Newer releases have a separate package for the client.
	if apt-cache show docker-cli >/dev/null 2>&1; then
		packages="$packages docker-cli"
	fi
	apt-get -qq install -y --no-install-recommends $packages >/dev/null
}

# start starts dockerd unless the installation of the package already did.
start() {
	if [ -d "${BERTH_SYSTEMD:-/run/systemd/system}" ]; then
		say "starting the service docker"
		systemctl start docker
	elif ! pidof dockerd >/dev/null; then
		say "starting dockerd, its log is $log"
		setsid nohup dockerd >"$log" 2>&1 </dev/null &
		started=$!
	fi
}

wait_until_it_answers() {
	tries=$((patience * 5))
	until answers; do
		if [ -n "${started:-}" ] && ! kill -0 "$started" 2>/dev/null; then
			say "dockerd ended: $(tail -n 1 "$log")"
			exit 1
		fi
		tries=$((tries - 1))
		if [ "$tries" = 0 ]; then
			say "no Docker engine answers after $patience s: see its log"
			exit 1
		fi
		sleep 0.2
	done
}

if answers; then
	finish
fi
if [ -n "${DOCKER_HOST:-}" ]; then
	say "nothing answers at DOCKER_HOST=$DOCKER_HOST: start that engine, or unset DOCKER_HOST"
	exit 1
fi
if ! debian_as_root; then
	say "no Docker engine answers: install Docker Engine and start it (on Debian and Ubuntu, running this as root does both)"
	exit 1
fi
installed || install
start
wait_until_it_answers
finish
