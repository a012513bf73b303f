#!/bin/sh
# npm.sh PACKAGE VERSION SHA512 DIRECTORY: unpacks one package of the npm
# registry, once its bytes match the registry's integrity value (sha512, base64).
set -eu
package=$1 version=$2 want=$3 directory=$4

if [ -z "${NPM_CONFIG_REGISTRY:-}" ]; then
	echo "NPM_CONFIG_REGISTRY is not set: write NPM_CONFIG_REGISTRY=<what 'npm config get registry' prints> into the file that BERTH_BUILD_ENV_FILE names" >&2
	exit 1
fi
tarball=$(mktemp)
curl -fsSL --retry 3 --cacert "$(dirname "$0")/bundle.crt" -o "$tarball" \
	"${NPM_CONFIG_REGISTRY%/}/$package/-/${package##*/}-$version.tgz"
got=$(sha512sum "$tarball" | cut -d ' ' -f 1 | tr a-f A-F | basenc -d --base16 | base64 -w 0)
if [ "$got" != "$want" ]; then
	echo "$package $version: the checksum is $got, not $want" >&2
	exit 1
fi
mkdir -p "$directory"
tar -xzf "$tarball" -C "$directory" --strip-components=1 --no-same-owner
rm "$tarball"
