#!/bin/sh
# php-server [FOLDER]: serves the folder, by default the current one, on
# 0.0.0.0:$PORT. Paths without a file go to its index.php. Apache's own redirects
# use the scheme of $PUBLIC_URL and the host of the request.
set -eu
: "${PORT:?php-server listens on PORT, which is not set}"
DOCUMENT_ROOT=$(cd "${1:-.}" && pwd)
case ${PUBLIC_URL:-} in
https:*) SCHEME=https ;;
*) SCHEME=http ;;
esac
export DOCUMENT_ROOT PORT SCHEME
exec apache2 -f /etc/apache2/berth.conf -D FOREGROUND
