#!/bin/sh
# Runs yarn or pnpm in the version that the project requires: the one in
# package.json's packageManager, through corepack; else yarn 2+ if the lock file
# has its format; else the pinned version. They use the registry in
# NPM_CONFIG_REGISTRY unless a more specific setting names one. Mirrors rarely
# have the signatures that corepack checks, so with a mirror only a hash in
# packageManager and the registry's certificate are checked.
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
