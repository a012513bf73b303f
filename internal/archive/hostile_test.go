package archive

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// hostile is a hostile archive. Either the refusal contains fault, or tree lists what
// was unpacked, one entry per line (see listTree).
type hostile struct {
	name  string
	bytes []byte
	lim   Limits // wide when zero
	fault string
	tree  string
}

var (
	packHostile   sync.Once
	hostilePacked []hostile
)

// allHostile returns every hostile archive. Some take long to pack with the race
// detector, so they are packed once for all tests.
func allHostile(tb testing.TB) []hostile {
	packHostile.Do(func() {
		hostilePacked = slices.Concat(namesOutside(tb), linksOutside(tb), wrongKinds(tb), brokenStreams(tb), bombs(tb))
	})
	return hostilePacked
}

// smallFile is an ordinary archive's only file, for cases that are about something else.
var smallFile = fileItem("a.txt", "a")

func namesOutside(tb testing.TB) []hostile {
	long := strings.Repeat("n", 255)
	return []hostile{
		{name: "parent", bytes: tarOf(tb, fileItem("../victim/new", "x")), fault: `"../victim/new" leaves the archive's root`},
		{name: "parent behind a folder", bytes: tarOf(tb, fileItem("a/../../victim/keep", "x")), fault: `"a/../../victim/keep" leaves`},
		{name: "parent that comes back", bytes: tarOf(tb, fileItem("a/../b", "x")), fault: `"a/../b" leaves`},
		{name: "parent at the end", bytes: tarOf(tb, folderItem("a/..")), fault: `"a/.." leaves`},
		{name: "parent folder itself", bytes: tarOf(tb, folderItem("../")), fault: `"../" leaves`},
		{name: "parent behind dots", bytes: tarOf(tb, fileItem("././.././victim/new", "x")), fault: `leaves`},
		{name: "absolute", bytes: tarOf(tb, fileItem("/tmp/berth-test-escape", "x")), fault: `"/tmp/berth-test-escape" leaves`},
		{name: "absolute with many slashes", bytes: tarOf(tb, fileItem("///etc/passwd", "x")), fault: `"///etc/passwd" leaves`},
		{name: "absolute folder", bytes: tarOf(tb, folderItem("/")), fault: `"/" leaves`},
		{name: "parent in a PAX path", bytes: tarOf(tb, rawItem(paxHeader('x', "path", "../victim/keep")), rawItem(rawHeader('0', "ok", 0))), fault: `"../victim/keep" leaves`},
		{name: "parent in a GNU long name", bytes: tarOf(tb, rawItem(rawHeader('L', "././@LongLink", 14, gnuHeader)), rawItem(padded("../victim/keep")), rawItem(rawHeader('0', "ok", 0, gnuHeader))), fault: `"../victim/keep" leaves`},
		{name: "parent in the ustar prefix", bytes: tarOf(tb, rawItem(rawHeader('0', "keep", 0, func(b []byte) { copy(b[345:], "../victim") }))), fault: `"../victim/keep" leaves`},
		{name: "parent in a sparse file's name", bytes: tarOf(tb, rawItem(paxHeader('x', "GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "../victim/keep", "GNU.sparse.realsize", "0")), rawItem(rawHeader('0', "ok", 512)), rawItem(padded("0\n"))), fault: `"../victim/keep" leaves`},
		{name: "symlink named outside", bytes: tarOf(tb, symlinkItem("../victim/l", "x")), fault: `"../victim/l" leaves`},
		{name: "hard link named outside", bytes: tarOf(tb, smallFile, hardLinkItem("../victim/l", "a.txt")), fault: `"../victim/l" leaves`},
		{name: "device named outside", bytes: tarOf(tb, smallFile, specialItem(tar.TypeChar, "../victim/null")), fault: `"../victim/null" leaves`},
		{name: "FIFO named outside", bytes: tarOf(tb, smallFile, specialItem(tar.TypeFifo, "../victim/pipe")), fault: `"../victim/pipe" leaves`},
		{name: "no name", bytes: tarOf(tb, rawItem(rawHeader('0', "", 0))), fault: `the entry "" has no name`},
		{name: "root as a file", bytes: tarOf(tb, fileItem(".", "x")), fault: `"." stands for the archive's root`},
		{name: "root as a symlink", bytes: tarOf(tb, symlinkItem("./", "../victim")), fault: `"./" stands for the archive's root`},
		{name: "root as a device", bytes: tarOf(tb, specialItem(tar.TypeChar, ".")), fault: `"." stands for the archive's root`},
		{name: "NUL in a PAX path", bytes: tarOf(tb, rawItem(paxHeader('x', "path", "a\x00b")), rawItem(rawHeader('0', "ok", 0))), fault: "not a tar archive"},
		{name: "NUL in a PAX path, later", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "path", "a\x00b")), rawItem(rawHeader('0', "ok", 0))), fault: `damaged after the entry "a.txt"`},
		{name: "NUL in a GNU long name", bytes: tarOf(tb, rawItem(rawHeader('L', "././@LongLink", 6, gnuHeader)), rawItem(padded("ok\x00/..")), rawItem(rawHeader('0', "x", 0, gnuHeader))), tree: "ok="},
		{name: "newline", bytes: tarOf(tb, fileItem("a\nb", "x")), fault: `"a\nb" has a control character`},
		{name: "terminal escape", bytes: tarOf(tb, fileItem("\x1b[2J", "x")), fault: `"\x1b[2J" has a control character`},
		{name: "C1 control", bytes: tarOf(tb, fileItem("a\u009bb", "x")), fault: `has a control character`},
		{name: "DEL", bytes: tarOf(tb, fileItem("a\x7f", "x")), fault: `has a control character`},
		{name: "not UTF-8", bytes: tarOf(tb, rawItem(rawHeader('0', "r\xe9sum\xe9", 0))), fault: `"r\xe9sum\xe9" has a name that is not UTF-8`},
		{name: "longest part", bytes: tarOf(tb, fileItem(long, "x")), tree: long + "=x"},
		{name: "part of 256 bytes", bytes: tarOf(tb, fileItem(long+"n", "x")), fault: "has a part of 256 bytes"},
		{name: "name of 5000 bytes", bytes: tarOf(tb, fileItem(strings.Repeat("nnnn/", 1000)+"f", "x")), fault: "has a name of 5001 bytes"},
		{name: "name of 1 MB", bytes: tarOf(tb, fileItem(strings.Repeat("n", 1_000_000), "x")), fault: "has a name of 1000000 bytes"},
		{name: "too deep", bytes: tarOf(tb, fileItem(strings.Repeat("d/", 64)+"f", "x")), fault: "64 folders deep; 63 are allowed"},
		{name: "Windows path is one odd name", bytes: tarOf(tb, fileItem(`C:\..\..\x`, "x")), tree: `C:\..\..\x=x`},
		{name: "drawn backwards", bytes: tarOf(tb, fileItem("\u202egpj.exe/../x", "x")), fault: `"\u202egpj.exe/../x" leaves`},
	}
}

func linksOutside(tb testing.TB) []hostile {
	chain := []item{smallFile}
	for i := range 60 {
		chain = append(chain, symlinkItem(fmt.Sprintf("l%d", i), fmt.Sprintf("l%d", i+1)))
	}
	return []hostile{
		{name: "absolute symlink", bytes: tarOf(tb, smallFile, symlinkItem("l", "/etc/passwd")), tree: "a.txt=a"},
		{name: "symlink to the victim", bytes: tarOf(tb, smallFile, symlinkItem("l", "../victim")), tree: "a.txt=a"},
		{name: "symlink that climbs out from below", bytes: tarOf(tb, smallFile, symlinkItem("d/l", "../../victim/keep")), tree: "a.txt=a d/"},
		{name: "symlink that leaves and comes back", bytes: tarOf(tb, smallFile, symlinkItem("l", "../root/a.txt")), tree: "a.txt=a"},
		{name: "chain out", bytes: tarOf(tb, smallFile, symlinkItem("x", "y"), symlinkItem("y", "z/.."), symlinkItem("z", "..")), tree: "a.txt=a"},
		{name: "chain through a folder link", bytes: tarOf(tb, smallFile, folderItem("p/q"), symlinkItem("p/q/up", "../.."), symlinkItem("l", "p/q/up/../victim")), tree: "a.txt=a p/ p/q/ p/q/up->../.."},
		{name: "out through a link to a sibling", bytes: tarOf(tb, smallFile, folderItem("p/q"), symlinkItem("s", "p/q"), symlinkItem("l", "s/../../../victim")), tree: "a.txt=a p/ p/q/ s->p/q"},
		{name: "inside through the same", bytes: tarOf(tb, smallFile, folderItem("p/q"), symlinkItem("s", "p/q"), symlinkItem("l", "s/../..")), tree: "a.txt=a l->s/../.. p/ p/q/ s->p/q"},
		{name: "out of folders that are not there", bytes: tarOf(tb, smallFile, symlinkItem("l", "no/such/../../../victim")), tree: "a.txt=a"},
		{name: "circle", bytes: tarOf(tb, smallFile, symlinkItem("x", "y"), symlinkItem("y", "x"), symlinkItem("z", "x/deeper")), tree: "a.txt=a"},
		{name: "link to itself", bytes: tarOf(tb, smallFile, symlinkItem("x", "x")), tree: "a.txt=a"},
		{name: "long chain out", bytes: tarOf(tb, append(chain, symlinkItem("l60", ".."))...), tree: "a.txt=a"},
		{name: "dangling inside is kept", bytes: tarOf(tb, smallFile, symlinkItem("current", "dist/index.html")), tree: "a.txt=a current->dist/index.html"},
		{name: "out of the single folder", bytes: tarOf(tb, fileItem("app/a", "a"), symlinkItem("app/l", "../app/a"), symlinkItem("app/m", "a")), tree: "app/ app/a=a app/m->a"},
		{name: "out of it, beside a link that is dropped itself", bytes: tarOf(tb, fileItem("app/a", "a"), symlinkItem("app/l", ".."), symlinkItem("x", "/")), tree: "app/ app/a=a"},
		{name: "no target", bytes: tarOf(tb, smallFile, rawItem(rawHeader('2', "l", 0))), fault: `"l" is a symlink with a target of 0 bytes`},
		{name: "target of 5000 bytes", bytes: tarOf(tb, smallFile, symlinkItem("l", strings.Repeat("x", 5000))), fault: `"l" is a symlink with a target of 5000 bytes`},
		{name: "file through a symlink", bytes: tarOf(tb, symlinkItem("l", "../victim"), fileItem("l/keep", "x")), fault: `"l/keep" lies below "l", which is not a folder`},
		{name: "file through an inner symlink", bytes: tarOf(tb, folderItem("d"), symlinkItem("l", "d"), fileItem("l/f", "x")), fault: `"l/f" lies below "l"`},
		{name: "folder through a symlink", bytes: tarOf(tb, symlinkItem("l", "../victim"), folderItem("l/new")), fault: `"l/new" lies below "l"`},
		{name: "symlink through a symlink", bytes: tarOf(tb, symlinkItem("l", "../victim"), symlinkItem("l/new", "x")), fault: `"l/new" lies below "l"`},
		{name: "hard link through a symlink", bytes: tarOf(tb, smallFile, symlinkItem("l", "../victim"), hardLinkItem("l/new", "a.txt")), fault: `"l/new" lies below "l"`},
		{name: "file over a symlink replaces it", bytes: tarOf(tb, symlinkItem("l", "../victim/keep"), fileItem("l", "mine")), tree: "l=mine"},
		{name: "symlink over a file", bytes: tarOf(tb, smallFile, fileItem("b", "b"), symlinkItem("b", "a.txt")), tree: "a.txt=a b->a.txt"},
		{name: "symlink over the only file", bytes: tarOf(tb, smallFile, symlinkItem("a.txt", "/etc/passwd")), fault: "the archive is empty"},
		{name: "symlink over a folder", bytes: tarOf(tb, fileItem("d/f", "x"), symlinkItem("d", "../victim")), fault: `"d" is not a folder, but an earlier one`},
		{name: "folder over a symlink", bytes: tarOf(tb, smallFile, symlinkItem("l", "../victim"), folderItem("l")), fault: `"l" is a folder, but an earlier one`},
		{name: "hard link out", bytes: tarOf(tb, smallFile, hardLinkItem("l", "../victim/keep")), fault: `"l" is a hard link to "../victim/keep", which is not the name of a file`},
		{name: "absolute hard link", bytes: tarOf(tb, smallFile, hardLinkItem("l", "/etc/passwd")), fault: `"l" is a hard link to "/etc/passwd", which is not the name`},
		{name: "hard link to nothing", bytes: tarOf(tb, smallFile, hardLinkItem("l", "b.txt")), fault: `"l" is a hard link to "b.txt", which does not come before it`},
		{name: "hard link to what comes later", bytes: tarOf(tb, hardLinkItem("l", "a.txt"), smallFile), fault: `which does not come before it`},
		{name: "hard link to a symlink", bytes: tarOf(tb, smallFile, symlinkItem("s", "../victim/keep"), hardLinkItem("l", "s")), fault: `which is a symlink`},
		{name: "hard link to a folder", bytes: tarOf(tb, smallFile, folderItem("d"), hardLinkItem("l", "d")), fault: `which is a folder`},
		{name: "hard link to itself", bytes: tarOf(tb, smallFile, hardLinkItem("a.txt", "./a.txt")), fault: `"a.txt" is a hard link to itself`},
		{name: "hard link without a target", bytes: tarOf(tb, smallFile, rawItem(rawHeader('1', "l", 0))), fault: `"l" is a hard link to ""`},
		{name: "hard link to a dropped device", bytes: tarOf(tb, smallFile, specialItem(tar.TypeChar, "null"), hardLinkItem("l", "null")), fault: `which does not come before it`},
		{name: "hard link through a symlink's folder", bytes: tarOf(tb, smallFile, symlinkItem("s", "../victim"), hardLinkItem("l", "s/keep")), fault: `which does not come before it`},
		{name: "write through a hard link", bytes: tarOf(tb, smallFile, hardLinkItem("b", "a.txt"), fileItem("b", "new")), tree: "a.txt=a b=new"},
	}
}

func wrongKinds(tb testing.TB) []hostile {
	return []hostile{
		{name: "devices and FIFOs", bytes: tarOf(tb, smallFile, specialItem(tar.TypeChar, "null"), specialItem(tar.TypeBlock, "sda"), specialItem(tar.TypeFifo, "pipe")), tree: "a.txt=a"},
		{name: "nothing but a device", bytes: tarOf(tb, specialItem(tar.TypeChar, "null")), fault: "the archive is empty"},
		{name: "file over a device", bytes: tarOf(tb, specialItem(tar.TypeChar, "d"), fileItem("d/f", "x")), tree: "d/ d/f=x"},
		{name: "set-id and sticky bits", bytes: tarOf(tb, withMode(smallFile, 0o7777), withMode(folderItem("d"), 0o7777)), tree: "a.txt=a d/"},
		{name: "no permission at all", bytes: tarOf(tb, withMode(folderItem("d"), 0), withMode(fileItem("d/f", "x"), 0)), tree: "d/ d/f=x"},
		{name: "unknown type", bytes: tarOf(tb, smallFile, rawItem(rawHeader('Z', "z", 0))), fault: `"z" is of the unknown type 'Z'`},
		{name: "part of several volumes", bytes: tarOf(tb, smallFile, rawItem(rawHeader('M', "m", 0, gnuHeader))), fault: `"m" is of the unknown type 'M'`},
		{name: "folder over a file", bytes: tarOf(tb, smallFile, folderItem("a.txt")), fault: `"a.txt" is a folder, but an earlier one`},
		{name: "file over a folder", bytes: tarOf(tb, folderItem("d"), fileItem("d", "x")), fault: `"d" is not a folder, but an earlier one`},
		{name: "file below a file", bytes: tarOf(tb, smallFile, fileItem("a.txt/b", "x")), fault: `"a.txt/b" lies below "a.txt"`},
		{name: "file twice", bytes: tarOf(tb, fileItem("a", "a longer one"), fileItem("./a", "new")), tree: "a=new"},
		{name: "file with a folder's name", bytes: tarOf(tb, smallFile, rawItem(rawHeader('0', "d/", 1)), rawItem(padded("x"))), tree: "a.txt=a d=x"},
		{name: "volume label", bytes: tarOf(tb, rawItem(rawHeader('V', "../label", 0, gnuHeader)), smallFile), tree: "a.txt=a"},
		{name: "folder with content", bytes: tarOf(tb, rawItem(rawHeader('D', "d", 6, gnuHeader)), rawItem(padded("Ya.txt")), smallFile), tree: "a.txt=a d/"},
		{name: "global header with a path", bytes: tarOf(tb, rawItem(paxHeader('g', "path", "../victim/keep")), smallFile), tree: "a.txt=a"},
	}
}

func brokenStreams(tb testing.TB) []hostile {
	whole := tarOf(tb, fileItem("one", strings.Repeat("1", 2000)), smallFile)
	packed := gzipped(whole)
	flipped := bytes.Clone(packed)
	flipped[len(flipped)-6] ^= 1
	scrambled := bytes.Clone(packed)
	copy(scrambled[12:], "scrambled by someone")
	header := rawHeader('0', "two", 4)
	header[0] = 'x' // its checksum is wrong now
	return []hostile{
		{name: "nothing at all", bytes: nil, fault: "empty (0 bytes)"},
		{name: "gzip of nothing", bytes: gzipped(nil), fault: "empty (0 bytes)"},
		{name: "end mark alone", bytes: tarOf(tb), fault: "the archive is empty"},
		{name: "folders alone", bytes: tarOf(tb, folderItem("."), folderItem("a"), folderItem("a/b")), fault: "the archive is empty"},
		{name: "global header alone", bytes: tarOf(tb, rawItem(paxHeader('g', "comment", "x"))), fault: "the archive is empty"},
		{name: "text", bytes: []byte("hello"), fault: "not a tar archive"},
		{name: "long text", bytes: []byte(strings.Repeat("hello ", 1000)), fault: "not a tar archive"},
		{name: "gzip of text", bytes: gzipped([]byte(strings.Repeat("hello ", 1000))), fault: "not a tar archive"},
		{name: "gzip in gzip", bytes: gzipped(packed), fault: "compressed twice"},
		{name: "zip", bytes: []byte("PK\x03\x04" + strings.Repeat("x", 600)), fault: "a zip file"},
		{name: "empty zip", bytes: []byte("PK\x05\x06" + strings.Repeat("\x00", 18)), fault: "an empty zip file"},
		{name: "zip in gzip", bytes: gzipped([]byte("PK\x03\x04" + strings.Repeat("x", 600))), fault: "a zip file"},
		{name: "xz", bytes: []byte("\xfd7zXZ\x00 and more"), fault: "compressed with xz"},
		{name: "bzip2", bytes: []byte("BZh91AY&SY"), fault: "compressed with bzip2"},
		{name: "zstd", bytes: []byte("\x28\xb5\x2f\xfd and more"), fault: "compressed with zstd"},
		{name: "HTML", bytes: []byte("\n <!DOCTYPE html><title>404</title>"), fault: "an HTML page"},
		{name: "cut in a file", bytes: whole[:1000], fault: `cut short after the entry "one"`},
		{name: "cut in a header", bytes: whole[:3000], fault: `cut short after the entry "one"`},
		{name: "cut between two entries", bytes: entriesOf(tb, smallFile, fileItem("zeros", strings.Repeat("\x00", 4096))), fault: `cut short after the entry "zeros"`},
		{name: "cut gzip", bytes: packed[:len(packed)-9], fault: "cut short"},
		{name: "gzip without its checksum", bytes: packed[:len(packed)-8], fault: "cut short"},
		{name: "cut in the gzip header", bytes: packed[:7], fault: "cut short before its first entry"},
		{name: "wrong gzip checksum", bytes: flipped, fault: "gzip checksum is wrong"},
		{name: "scrambled gzip", bytes: scrambled, fault: "gzip data is not valid"},
		{name: "wrong header checksum", bytes: tarOf(tb, smallFile, rawItem(header)), fault: `damaged after the entry "a.txt"`},
		{name: "one zero block, then more", bytes: joined(entriesOf(tb, smallFile), make([]byte, 512), tarOf(tb, smallFile)), fault: `damaged after the entry "a.txt"`},
		{name: "text behind the end", bytes: append(bytes.Clone(whole), "garbage"...), fault: "continues after its end mark"},
		{name: "second tar behind the end", bytes: joined(whole, whole), fault: "continues after its end mark"},
		{name: "text behind the gzip", bytes: append(bytes.Clone(packed), "garbage and more of it"...), fault: "other data after the end of its gzip stream"},
		{name: "one byte behind the gzip", bytes: append(bytes.Clone(packed), 0), fault: "other data after"},
		{name: "cut gzip header behind the gzip", bytes: append(bytes.Clone(packed), "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03name"...), fault: "other data after"},
		{name: "negative size", bytes: tarOf(tb, smallFile, rawItem(rawHeader('0', "n", 0, func(b []byte) { copy(b[124:136], bytes.Repeat([]byte{0xff}, 12)) }))), fault: `damaged after the entry "a.txt"`},
		{name: "negative PAX size", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "size", "-1")), rawItem(rawHeader('0', "n", 0))), fault: `damaged after the entry "a.txt"`},
		{name: "size beyond 64 bits", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "size", "99999999999999999999")), rawItem(rawHeader('0', "n", 0))), fault: `damaged after the entry "a.txt"`},
		{name: "PAX record longer than its header", bytes: tarOf(tb, smallFile, rawItem(rawHeader('x', "p", 9)), rawItem(padded("99 path=x")), rawItem(rawHeader('0', "n", 0))), fault: `damaged after`},
		{name: "sparse map beyond the file", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "GNU.sparse.map", "0,10,100,10", "GNU.sparse.numblocks", "2", "GNU.sparse.size", "50")), rawItem(rawHeader('0', "n", 20)), rawItem(padded(strings.Repeat("x", 20)))), fault: `damaged after`},
	}
}

func bombs(tb testing.TB) []hostile {
	huge := make([]byte, 12)
	huge[0] = 0x80
	binary.BigEndian.PutUint64(huge[4:], 1<<62)
	zeros := make([]byte, 3<<20)
	many := []item{smallFile}
	var members []byte
	for i := range 50 {
		many = append(many, fileItem(fmt.Sprint("f", i), ""))
	}
	for range maxMembers + 1 {
		members = append(members, emptyMember...)
	}
	deep := Limits{MaxUnpacked: 1 << 20, MaxEntries: 20}
	endless := bytes.Repeat(paxHeader('x', "comment", strings.Repeat("x", 1<<19)), 10)
	return []hostile{
		{name: "size of 4 EiB", bytes: tarOf(tb, smallFile, rawItem(rawHeader('0', "huge", 0, func(b []byte) { copy(b[124:], huge) }))), fault: `"huge" (4.612EB) takes the archive over the limit of 1.074GB`},
		{name: "size in a PAX record", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "size", "5000000000")), rawItem(rawHeader('0', "huge", 0))), fault: `"huge" (5GB) takes the archive over`},
		{name: "one byte too much", bytes: tarOf(tb, fileItem("a", "12345"), fileItem("b", "123456")), lim: Limits{MaxUnpacked: 10, MaxEntries: 10}, fault: `"b" (6B) takes the archive over the limit of 10B`},
		{name: "exactly enough", bytes: tarOf(tb, fileItem("a", "12345"), fileItem("b", "12345")), lim: Limits{MaxUnpacked: 10, MaxEntries: 2}, tree: "a=12345 b=12345"},
		{name: "the same file again and again", bytes: tarOf(tb, fileItem("a", "123456"), fileItem("a", "123456")), lim: Limits{MaxUnpacked: 10, MaxEntries: 10}, fault: `"a" (6B) takes`},
		{name: "hard links to a large file", bytes: tarOf(tb, fileItem("a", "123456"), hardLinkItem("b", "a")), lim: Limits{MaxUnpacked: 10, MaxEntries: 10}, fault: `"b" (6B) takes`},
		{name: "sparse file of 1 TB", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "GNU.sparse.major", "1", "GNU.sparse.minor", "0", "GNU.sparse.name", "holes", "GNU.sparse.realsize", "1000000000000")), rawItem(rawHeader('0', "n", 512)), rawItem(padded("1\n0\n0\n"))), fault: `"holes" (1TB) takes`},
		{name: "old sparse file of 8 GiB", bytes: tarOf(tb, smallFile, rawItem(rawHeader('S', "holes", 0, gnuHeader, func(b []byte) { copy(b[483:], "77777777777\x00") }))), fault: `"holes" (8.59GB) takes`},
		{name: "gigabytes of zeros behind the end", bytes: gzipped(joined(tarOf(tb, smallFile), zeros)), fault: "over 1 MiB of zeros after its end mark"},
		{name: "headers without an entry", bytes: joined(endless, tarOf(tb, smallFile)), lim: Limits{MaxUnpacked: 1 << 20, MaxEntries: 100}, fault: "more headers than files"},
		{name: "one header of 2 MiB", bytes: tarOf(tb, smallFile, rawItem(paxHeader('x', "comment", strings.Repeat("x", 2<<20)))), fault: `header of over 1 MiB after the entry "a.txt"`},
		{name: "too many files", bytes: tarOf(tb, many...), lim: Limits{MaxUnpacked: 1 << 20, MaxEntries: 30}, fault: `"f29" the archive has more than the 30 files`},
		{name: "too many folders in names", bytes: tarOf(tb, fileItem(strings.Repeat("d/", 25)+"f", "x")), lim: deep, fault: "more than the 20 files and folders"},
		{name: "too many dropped devices", bytes: tarOf(tb, append([]item{smallFile}, repeated(specialItem(tar.TypeChar, "null"), 30)...)...), lim: deep, fault: "more than the 20 files"},
		{name: "too many global headers", bytes: tarOf(tb, append([]item{smallFile}, repeated(rawItem(paxHeader('g', "comment", "x")), 30)...)...), lim: deep, fault: "more than the 20 files"},
		{name: "too many gzip streams", bytes: joined(gzipped(tarOf(tb, smallFile)), members), fault: "more gzip streams than any tool writes"},
		{name: "too many long names", bytes: gzipped(tarOf(tb, append([]item{smallFile}, repeated(folderItem(strings.Repeat(strings.Repeat("d", 249)+"/", 16)), 8400)...)...)), fault: `the names in the archive take more than 32 MiB`},
		{name: "too many symlink targets", bytes: gzipped(tarOf(tb, append([]item{smallFile}, repeated(symlinkItem("l", strings.Repeat("x/", 2000)), 8400)...)...)), fault: `"l" the names in the archive take more than 32 MiB`},
	}
}

// emptyMember is a gzip stream of nothing.
var emptyMember = gzipped(nil)

func repeated(it item, n int) []item {
	items := make([]item, n)
	for i := range items {
		items[i] = it
	}
	return items
}
