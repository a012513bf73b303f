#!/bin/sh
# Puts bun under /usr/local/bin, in the version and with the checksum that the
# build arguments pin. A processor without AVX2 gets the build that does not
# need it. Programs in packages run node, so bun also gets that name.
set -eu
case $(dpkg --print-architecture) in
amd64)
	if grep -qw avx2 /proc/cpuinfo; then
		package=bun-linux-x64 sum=$BUN_SHA512_AMD64
	else
		package=bun-linux-x64-baseline sum=$BUN_SHA512_AMD64_BASELINE
	fi
	;;
arm64) package=bun-linux-aarch64 sum=$BUN_SHA512_ARM64 ;;
*)
	echo "bun is not packaged for $(dpkg --print-architecture)" >&2
	exit 1
	;;
esac
sh /berth/npm.sh "@oven/$package" "$BUN_VERSION" "$sum" /berth/bun
install -m 0755 /berth/bun/bin/bun /usr/local/bin/bun
ln -s bun /usr/local/bin/bunx
ln -s bun /usr/local/bin/node
echo "bun $(bun --version)"
