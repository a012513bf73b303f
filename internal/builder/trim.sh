# trim.sh look MAX FOLDER: fails if trim.sh trim would remove anything.
# trim.sh trim MAX FOLDER: removes from a folder with build caches what is too much. Each file
# or folder in it is the cache of one tool, and goes as a whole: the one used longest ago
# first, until all together take MAX bytes on the disk at most. A cache was used when one
# of its files was last read or written; the kernel notes reads once a day.
set -eu
cd "$3"

# forget removes what was moved away. Some tools, and programs, take the permission to
# write from their own folders.
forget() {
	rm -rf .removed 2>/dev/null || { chmod -R u+rwX .removed && rm -rf .removed; }
}

# list prints for each tool when it was used, its size, and its place in the order in
# which the shell lists the tools: a name may contain anything.
list() {
	place=0
	for tool in * .[!.]* ..?*; do
		place=$((place + 1))
		[ "$tool" != .removed ] && { [ -e "$tool" ] || [ -L "$tool" ]; } || continue
		find "./$tool" \( -type d ! -perm -u=rwx -exec chmod u+rwx {} \; -false \) -o -printf '%y %b %n %A@ %T@\n' |
			awk -v place="$place" '
				{ size += 512 * $2 / ($1 == "f" ? $3 : 1) }
				$1 == "f" { for (i = 4; i <= 5; i++) if ($i > used) used = $i }
				END { printf "%f %.0f %d\n", used, size, place }'
	done
}

# A cache is moved away before it is removed, so that none is left with a part missing.
forget
mkdir .removed
surplus=$(list | sort -rn | awk -v max="$2" '{ sum += $2 } sum > max { print $3 }')
if [ "$1" = look ]; then
	rmdir .removed
	[ -z "$surplus" ]
	exit
fi
place=0
for tool in * .[!.]* ..?*; do
	place=$((place + 1))
	case "
$surplus
" in *"
$place
"*) mv -- "./$tool" ".removed/$place" ;; esac
done
forget
