#!/bin/sh
# Puts the Go toolchain under /usr/local/go. It comes through the module proxy,
# as the module golang.org/toolchain; the sum that the build arguments pin is
# the module's own (h1, as in a go.sum).
set -eu
arch=$(dpkg --print-architecture)
case $arch in
amd64) want=$GO_SUM_AMD64 ;;
arm64) want=$GO_SUM_ARM64 ;;
*)
	echo "no Go toolchain is pinned for $arch" >&2
	exit 1
	;;
esac

proxy=$(echo "${GOPROXY:-}" | tr ',|' '\n\n' | grep -m 1 '^http' || true)
if [ -z "$proxy" ]; then
	echo "GOPROXY names no proxy: write GOPROXY=<what 'go env GOPROXY' prints> into the file that BERTH_BUILD_ENV_FILE names" >&2
	exit 1
fi
version=v0.0.1-go$GO_VERSION.linux-$arch
directory=$(mktemp -d)
cd "$directory"
curl -fsSL --retry 3 --cacert /berth/bundle.crt -o module.zip "${proxy%/}/golang.org/toolchain/@v/$version.zip"
unzip -q module.zip 'golang.org/*'

hex=$(find golang.org -type f | LC_ALL=C sort | xargs -d '\n' sha256sum | sha256sum | cut -d ' ' -f 1)
got=h1:$(echo "$hex" | tr a-f A-F | basenc -d --base16 | base64 -w 0)
if [ "$got" != "$want" ]; then
	echo "golang.org/toolchain $version: the checksum is $got, not $want" >&2
	exit 1
fi
mv "golang.org/toolchain@$version" /usr/local/go
cd /
rm -rf "$directory"

# A module's zip keeps no modes.
chmod 0755 /usr/local/go/bin/* /usr/local/go/pkg/tool/*/*
/usr/local/go/bin/go version
