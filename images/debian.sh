#!/bin/sh
# Provides debian:trixie-slim, from which every base image is built. Keeps the
# engine's image if it has one with files, else pulls it from a registry, else
# builds it from Debian's packages with mmdebstrap and this machine's apt settings.
#
#   debian.sh          provides the image in the engine that docker uses
#   debian.sh rootfs   writes the image's files as a tar to standard output
#
# DEBIAN_MIRROR overrides the mirror in apt's settings.
set -eu
image=debian:trixie-slim

say() { echo "debian.sh: $*" >&2; }

# need COMMAND PACKAGE installs the package if the command is missing, as root.
need() {
	! command -v "$1" >/dev/null || return 0
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		say "$1 is missing: install the package $2, or pull $image yourself"
		exit 1
	fi
	say "installing $2"
	{ apt-get -qq update && apt-get -qq install -y --no-install-recommends "$2"; } >&2
}

# mirror prints the Debian mirror in apt's settings. If it prints nothing,
# mmdebstrap uses its default.
mirror() {
	if [ -n "${DEBIAN_MIRROR:-}" ]; then
		echo "$DEBIAN_MIRROR"
	else
		apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
			grep -E '/debian/?$' | head -n 1
	fi
}

# programs_run fails unless programs run where mmdebstrap unpacks Debian and runs it.
programs_run() {
	try=$(mktemp)
	echo '#!/bin/sh' >"$try"
	chmod 700 "$try"
	if ! "$try" 2>/dev/null; then
		rm "$try"
		say "no program runs in ${TMPDIR:-/tmp}, which is probably mounted noexec: set TMPDIR to a folder on another file system"
		exit 1
	fi
	rm "$try"
}

rootfs() {
	programs_run
	need mmdebstrap mmdebstrap
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	[ -f $keyring ] || need debian-archive-keyring debian-archive-keyring
	eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy 2>/dev/null)"
	export http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}"
	mmdebstrap --quiet --variant=minbase --include=ca-certificates --keyring="$keyring" \
		--dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-include=/usr/share/doc/*/copyright' \
		trixie - $(mirror)
}

ensure() {
	size=$(docker image inspect --format '{{.Size}}' "$image" 2>/dev/null) || size=0
	if [ "$size" -gt 0 ]; then
		return 0
	fi
	if timeout 60 docker pull --quiet "$image" >/dev/null 2>&1; then
		say "pulled $image"
		return 0
	fi
	say "no registry answers; making $image with mmdebstrap"
	files=$(mktemp)
	trap 'rm -f "$files"' EXIT
	rootfs >"$files"
	docker import --change 'CMD ["bash"]' "$files" "$image" >/dev/null
	say "made $image"
}

case ${1:-} in
rootfs) rootfs ;;
*) ensure ;;
esac
