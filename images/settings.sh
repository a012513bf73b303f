#!/bin/sh
# Prints the settings of this machine's package clients, for builds that must use
# the same hosts:
#
#   settings.sh env   the variables of a BERTH_BUILD_ENV_FILE
#   settings.sh ca    the system's certificates, for a BERTH_BUILD_CA_FILE
set -eu

env_file() {
	registry=$(npm config get registry 2>/dev/null || true)
	registry=${registry:-${NPM_CONFIG_REGISTRY:-}}
	if [ -z "$registry" ]; then
		echo "settings.sh: npm is not installed here, so set NPM_CONFIG_REGISTRY to the npm registry for builds, and run this again" >&2
		exit 1
	fi
	echo "NPM_CONFIG_REGISTRY=$registry"
	for variable in GOPROXY GOSUMDB; do
		echo "$variable=$(go env $variable)"
	done
	index=$(python3 -m pip config get global.index-url 2>/dev/null || true)
	index=${PIP_INDEX_URL:-$index}
	[ -z "$index" ] || echo "PIP_INDEX_URL=$index"
	for variable in DEBIAN_MIRROR http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY; do
		value=$(printenv "$variable" || true)
		[ -z "$value" ] || echo "$variable=$value"
	done
}

ca_file() {
	for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt \
		/etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
		if [ -f "$bundle" ]; then
			cat "$bundle"
			return
		fi
	done
}

case ${1:-} in
env) env_file ;;
ca) ca_file ;;
*)
	echo "usage: settings.sh env|ca" >&2
	exit 2
	;;
esac
