#!/bin/sh
# Puts deno under /usr/local/bin, in the version and with the checksum that the
# build arguments pin.
set -eu
case $(dpkg --print-architecture) in
amd64) package=linux-x64-glibc sum=$DENO_SHA512_AMD64 ;;
arm64) package=linux-arm64-glibc sum=$DENO_SHA512_ARM64 ;;
*)
	echo "deno is not packaged for $(dpkg --print-architecture)" >&2
	exit 1
	;;
esac
sh /berth/npm.sh "@deno/$package" "$DENO_VERSION" "$sum" /berth/deno
install -m 0755 /berth/deno/deno /usr/local/bin/deno
echo "deno $(deno --version | head -n 1)"
