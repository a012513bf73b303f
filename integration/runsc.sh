#!/bin/sh
# Provides the runtime for the gVisor tests. Uses the runsc in PATH if there is
# one, else builds it into .build/bin from the Go module proxy. If that fails,
# prints one line, and the tests are skipped.
set -eu

VERSION=v0.0.0-20260518063529-209a0ce076a1 # of the branch go, which go install can build
BIN=.build/bin

say() { echo "runsc.sh: $*" >&2; }

command -v runsc >/dev/null && exit 0
[ "$(go version -m "$BIN/runsc" 2>/dev/null | awk '$1 == "mod" { print $3 }')" = "$VERSION" ] && exit 0
say "no runsc here: building gVisor $VERSION into $BIN"
mkdir -p "$BIN"
# Static, because runsc starts itself again in the sandbox, which has no libraries.
if ! log=$(GOBIN=$PWD/$BIN CGO_ENABLED=0 go install "gvisor.dev/gvisor/runsc@$VERSION" 2>&1); then
	say "the tests under gVisor are skipped: $(echo "$log" | tail -n 1)"
fi
