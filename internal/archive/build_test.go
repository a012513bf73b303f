package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"testing"
	"time"
)

// wide holds limits above what ordinary tests reach.
var wide = Limits{MaxUnpacked: 1 << 30, MaxEntries: 100_000}

// then is the default time of entries.
var then = time.Unix(1_700_000_000, 0)

// item is one entry of an archive under test: what archive/tar writes for h and body,
// or raw bytes that the package would refuse to write.
type item struct {
	h    tar.Header
	body string
	raw  []byte
}

func fileItem(name, body string) item {
	return item{h: tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, body: body}
}

func folderItem(name string) item {
	return item{h: tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}}
}

func symlinkItem(name, target string) item {
	return item{h: tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}}
}

func hardLinkItem(name, target string) item {
	return item{h: tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}}
}

func specialItem(kind byte, name string) item {
	return item{h: tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: 1, Devminor: 3}}
}

// withMode sets the mode field of an entry.
func withMode(it item, mode int64) item {
	it.h.Mode = mode
	return it
}

// atTime sets the time of an entry.
func atTime(it item, t time.Time) item {
	it.h.ModTime = t
	return it
}

func rawItem(b []byte) item { return item{raw: b} }

// tarOf writes the items and the end mark.
func tarOf(tb testing.TB, items ...item) []byte {
	tb.Helper()
	return append(entriesOf(tb, items...), make([]byte, 1024)...)
}

// entriesOf writes the items without an end mark.
func entriesOf(tb testing.TB, items ...item) []byte {
	tb.Helper()
	var b bytes.Buffer
	for _, it := range items {
		if it.raw != nil {
			b.Write(it.raw)
			continue
		}
		w := tar.NewWriter(&b)
		if it.h.ModTime.IsZero() && it.h.Typeflag != tar.TypeXGlobalHeader {
			it.h.ModTime = then
		}
		it.h.Size = int64(len(it.body))
		if err := w.WriteHeader(&it.h); err != nil {
			tb.Fatalf("entry %.80q: %v", it.h.Name, err)
		}
		if _, err := w.Write([]byte(it.body)); err != nil {
			tb.Fatalf("entry %.80q: %v", it.h.Name, err)
		}
		if err := w.Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

// rawHeader returns one header as raw bytes with a correct checksum, so that it may
// hold names, types and sizes that a writer would refuse.
func rawHeader(kind byte, name string, size int64, change ...func(b []byte)) []byte {
	b := make([]byte, 512)
	copy(b[0:100], name)
	copy(b[100:], "0000644\x000000000\x000000000\x00")
	copy(b[124:], fmt.Sprintf("%011o\x00", size))
	copy(b[136:], fmt.Sprintf("%011o\x00", then.Unix()))
	b[156] = kind
	copy(b[257:], "ustar\x0000")
	for _, f := range change {
		f(b)
	}
	setChecksum(b)
	return b
}

func setChecksum(b []byte) {
	sum := 0
	copy(b[148:156], "        ")
	for _, c := range b {
		sum += int(c)
	}
	copy(b[148:156], fmt.Sprintf("%06o\x00 ", sum))
}

// gnuHeader turns a raw header into one of GNU tar.
func gnuHeader(b []byte) { copy(b[257:], "ustar  \x00") }

// padded fills content up to whole blocks.
func padded(s string) []byte {
	b := []byte(s)
	return append(b, make([]byte, (512-len(b)%512)%512)...)
}

// paxHeader is an extended header with the given records, not checked by anyone.
func paxHeader(kind byte, records ...string) []byte {
	var body string
	for i := 0; i < len(records); i += 2 {
		body += paxRecord(records[i], records[i+1])
	}
	return append(rawHeader(kind, "PaxHeaders/x", int64(len(body))), padded(body)...)
}

func paxRecord(key, value string) string {
	n := len(key) + len(value) + 3
	for n != len(fmt.Sprintf("%d %s=%s\n", n, key, value)) {
		n = len(fmt.Sprintf("%d %s=%s\n", n, key, value))
	}
	return fmt.Sprintf("%d %s=%s\n", n, key, value)
}

func joined(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}
