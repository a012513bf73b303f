#!/bin/sh
# yarn and pnpm, in the version that the project asks for: the one that
# package.json's packageManager names, by way of corepack; else yarn 2+ where
# the lock file is one of its own; else the pinned one. Whichever it is takes
# the registry from NPM_CONFIG_REGISTRY where nothing closer names one; mirrors
# seldom carry the signatures that corepack looks for, so a hash in
# packageManager is then the only check besides the registry's own certificate.
modules=/usr/local/lib/node_modules
name=${0##*/}
name=${name%pkg}

if [ -n "${NPM_CONFIG_REGISTRY:-}" ]; then
	export YARN_REGISTRY="${YARN_REGISTRY:-$NPM_CONFIG_REGISTRY}"
	export YARN_NPM_REGISTRY_SERVER="${YARN_NPM_REGISTRY_SERVER:-${NPM_CONFIG_REGISTRY%/}}"
	export COREPACK_NPM_REGISTRY="${COREPACK_NPM_REGISTRY:-${NPM_CONFIG_REGISTRY%/}}"
	export COREPACK_INTEGRITY_KEYS="${COREPACK_INTEGRITY_KEYS:-0}"
fi

directory=$PWD
while :; do
	if grep -qs "\"packageManager\"[[:space:]]*:[[:space:]]*\"$name@" "$directory/package.json"; then
		export COREPACK_ENABLE_DOWNLOAD_PROMPT=0
		exec corepack "$name" "$@"
	fi
	if [ "$name" = yarn ] && grep -qs '^__metadata:' "$directory/yarn.lock"; then
		exec node "$modules/@yarnpkg/cli-dist/bin/yarn.js" "$@"
	fi
	[ -n "$directory" ] || break
	directory=${directory%/*}
done
case $name in
yarn) exec node "$modules/yarn/bin/yarn.js" "$@" ;;
pnpm) exec node "$modules/pnpm/bin/pnpm.cjs" "$@" ;;
esac
