#!/bin/sh
# Builds the packages: for each architecture the Debian packages of berthd and berth and
# an archive of static binaries, with their checksums. It needs Go and git.
#
#   VERSION   of the packages; by default from the tag, or from the commit
#   ARCHS     architectures; amd64 and arm64 by default
#   DIST      folder for the results; dist by default
#   STAGE     folder for what is made on the way; .build/packages by default
set -eu
cd "$(dirname "$0")/.."
ARCHS=${ARCHS:-amd64 arm64}
mkdir -p "${DIST:=dist}" "${STAGE:=.build/packages}"
DIST=$(realpath "$DIST") stage=$(realpath "$STAGE") packaging=$(realpath packaging)

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
tag=$(git describe --tags --exact-match --match 'v[0-9]*' 2>/dev/null || true)
export VERSION="${VERSION:-$(echo "${tag:-v0.0.0~git$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short HEAD)}" | sed 's/^v//; s/-/~/')}"

build() { # ARCH FOLDER LDFLAGS COMMAND…
	arch=$1 folder=$2 flags=$3
	shift 3
	mkdir -p "$folder"
	CGO_ENABLED=0 GOOS=linux GOARCH=$arch go build -trimpath -ldflags "-s -w -X main.packaged=$VERSION -X github.com/berth-host/berth/internal/server.packaged=$VERSION -X github.com/berth-host/berth/internal/cli.packaged=$VERSION $flags" -o "$folder/" "$@"
}

rm -rf "$stage"
mkdir -p "$stage/common"
go build -o "$stage/native/" ./cmd/... # runs here, whatever the packages are for
go build -o "$stage/native/nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm

# berthd reads no file and no variable of this machine that begins with BERTH_.
native() { env -i HOME=/nonexistent SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" PATH="$PATH" "$@"; }
native "$stage/native/berth" man >"$stage/common/berth.1"
native "$stage/native/berthd" man --data-dir /var/lib/berth >"$stage/common/berthd.8"
native "$stage/native/berth" completion bash >"$stage/common/berth.bash"
native "$stage/native/berthd" completion bash >"$stage/common/berthd.bash"
native "$stage/native/berthd" config --file --data-dir /var/lib/berth >"$stage/common/berthd.env"
cp packaging/berthd.service "$stage/common/"
cp LICENSE "$stage/common/copyright"

for arch in $ARCHS; do
	name=berth-$VERSION-linux-$arch
	build "$arch" "$stage/$name" "" ./cmd/berth ./cmd/berthd
	cp "$stage"/common/* "$stage/$name/"
	mv "$stage/$name/copyright" "$stage/$name/LICENSE"
	sed -i 's,/usr/bin/berthd,/usr/local/bin/berthd,' "$stage/$name/berthd.service"
	chmod 600 "$stage/$name/berthd.env"
	tar -C "$stage" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -c "$name" |
		gzip -9n >"$DIST/$name.tar.gz"

	debian=$stage/deb-$arch
	build "$arch" "$debian" "-X main.settingsFile=/etc/berth/berthd.env -X main.dataDir=/var/lib/berth" ./cmd/berthd
	cp "$stage/$name/berth" "$stage"/common/* packaging/needrestart.conf packaging/postinst packaging/prerm packaging/postrm "$debian/"
	gzip -9n "$debian/berth.1" "$debian/berthd.8"
	for package in berth berthd; do
		(cd "$debian" && ARCH=$arch "$stage/native/nfpm" package --config "$packaging/$package.yaml" --packager deb --target "$stage/")
	done
	mv "$stage"/*_"$arch".deb "$DIST/"
done
(cd "$DIST" && sha256sum ./*"$VERSION"*.deb ./*"$VERSION"*.tar.gz | sed 's, \./, ,' >SHA256SUMS)
