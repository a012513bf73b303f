# compile.sh DIGEST CACHE MARKS CACHES COMMAND: runs a build command with caches of what
# tools compile, which lie in the folder CACHE. CACHES are words like name:folder:beside,
# MARKS are files and folders; see package runtimes. While the command runs, each folder is
# a link to its cache, unless there is something already. So what is built contains neither
# the cache nor the link. A cache that was made in other circumstances is emptied first: of
# what DIGEST is a digest of, or with other contents of MARKS.
#
# The folder CACHE may contain anything. Whatever is wrong there, the command runs.
exec 2>&1
own=$PATH
PATH=/usr/bin:/bin
digest=$1 cache=$2 marks=$3 caches=$4 command=$5
linked='' made=''

circumstances() {
	echo "$digest"
	for mark in $marks; do
		[ -e "$mark" ] && find "$mark" -type f -print0 | LC_ALL=C sort -z | xargs -0r sha256sum
	done
}

# renew empties a tool's cache unless it was made in these circumstances.
renew() {
	[ "$(cat "$1/.made")" = "$now" ] && return
	rm -rf "$1"
	mkdir -p "$1" && echo "$now" >"$1/.made"
}

# link puts a link to a cache in the place of a folder that is not there.
link() {
	[ -e "$2" ] || [ -L "$2" ] && return
	mkdir -p "$1" || return
	[ -d "${2%/*}" ] || made="$made ${2%/*}"
	mkdir -p "${2%/*}" && ln -s "$1" "$2" && linked="$linked $2"
}

{
	now=$(circumstances | sha256sum)
	for word in $caches; do
		name=${word%%:*} beside=${word##*:} folder=${word#*:}
		folder=${folder%:*}
		[ -e "$beside" ] || continue
		renew "$cache/${name%%/*}"
		[ -z "$folder" ] || link "$cache/$name" "$folder"
	done
} >/dev/null 2>&1

PATH=$own /bin/sh -c "$command"
code=$?

{
	for folder in $linked; do
		if [ -L "$folder" ]; then rm "$folder"; fi
	done
	[ -z "$made" ] || rmdir -p --ignore-fail-on-non-empty $made
} >/dev/null 2>&1
exit $code
