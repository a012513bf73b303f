package site

import (
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
)

// coding is a content encoding; the constants are in the order of the host's
// preference.
type coding int

const (
	brotli coding = iota
	zstd
	gzipped
	identity
	codings
)

// The names of the codings in Accept-Encoding, and the suffixes of files that a build
// put beside the plain ones.
var (
	names    = [codings]string{"br", "zstd", "gzip", "identity"}
	suffixes = [identity]string{".br", ".zst", ".gz"}
	encoding = [identity][]string{{"br"}, {"zstd"}, {"gzip"}}
)

// file is a named file of the folder: its type, how long it may be cached, and its
// bytes in each available encoding.
type file struct {
	name     string
	kind     kind
	lifetime []string
	plain    blob
	coded    [identity]*blob // nil where there is none
	heads    [codings]atomic.Pointer[heads]
}

// newFile describes a regular file; path is its location, which differs from its name
// if the name is a link.
func newFile(name, path string, info fs.FileInfo) *file {
	k := kindOf(name)
	f := &file{name: name, kind: k, lifetime: lifetimeOf(name, k)}
	f.plain.path, f.plain.size = path, info.Size()
	f.plain.changed, f.plain.inode = changed(info), inodeOf(info)
	if !k.dense && f.plain.size >= minPacked && f.plain.size <= maxPacked {
		f.coded[gzipped] = &blob{packed: &f.plain, changed: f.plain.changed}
	}
	return f
}

// varies reports whether clients get different bytes for one address.
func (f *file) varies() bool {
	return f.coded[brotli] != nil || f.coded[zstd] != nil || f.coded[gzipped] != nil
}

// blob returns f's bytes in one coding.
func (f *file) blob(c coding) *blob {
	if c == identity {
		return &f.plain
	}
	return f.coded[c]
}

// choose returns the coding of f that a client weighs highest. Among equals the host's
// preference decides, and the plain file only counts if the client asked for it by
// name.
func (f *file) choose(accept []string) coding {
	if len(accept) == 0 || !f.varies() {
		return identity
	}
	w := weigh(accept)
	best, most := identity, w.of(identity)
	for c := range identity {
		weight := w.of(c)
		if f.coded[c] != nil && weight > 0 && (weight > most || weight == most && best == identity) {
			best, most = c, weight
		}
	}
	return best
}

// weights are a client's q-values in thousandths; -1 for what it did not name.
type weights struct {
	named [codings]int
	other int // of "*"
}

// weigh parses Accept-Encoding. A malformed weight counts as 0.
func weigh(accept []string) weights {
	w := weights{named: [codings]int{-1, -1, -1, -1}, other: -1}
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(part, ";")
			w.set(strings.TrimSpace(name), quality(params))
		}
	}
	return w
}

func (w *weights) set(name string, q int) {
	if name == "*" {
		w.other = q
		return
	}
	for c, known := range names {
		if len(name) == len(known) && strings.EqualFold(name, known) {
			w.named[c] = q
		}
	}
}

// of returns the weight of a coding: its own, or that of "*", which does not apply to
// the plain file.
func (w *weights) of(c coding) int {
	switch {
	case w.named[c] >= 0:
		return w.named[c]
	case c != identity && w.other >= 0:
		return w.other
	default:
		return 0
	}
}

// quality parses the q of parameters such as "q=0.5" in thousandths: 1000 without one,
// 0 if it is malformed.
func quality(params string) int {
	if params == "" {
		return 1000
	}
	for param := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(param, "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(q >= 0 && q <= 1) {
			return 0
		}
		return int(q * 1000)
	}
	return 1000
}

// mentions reports whether an Accept header lists exactly this media range.
func mentions(accept []string, mediaRange string) bool {
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), mediaRange) && quality(params) > 0 {
				return true
			}
		}
	}
	return false
}
