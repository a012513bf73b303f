package site

import (
	"io/fs"
	"strconv"
	"strings"
)

// coding is a content encoding, in the order in which the host prefers them.
type coding int

const (
	brotli coding = iota
	zstd
	gzipped
	identity
	codings
)

// names and suffixes of the codings: as in Accept-Encoding, and as files that
// a build put beside the plain ones.
var (
	names    = [codings]string{"br", "zstd", "gzip", "identity"}
	suffixes = [identity]string{".br", ".zst", ".gz"}
	encoding = [identity][]string{{"br"}, {"zstd"}, {"gzip"}}
)

// file is what one name of the folder gives: its type, how long it may be
// kept, and its bytes in each encoding there is.
type file struct {
	name     string
	kind     kind
	lifetime []string
	plain    blob
	coded    [identity]*blob // nil where there is none
}

// newFile describes a regular file; path is where it lies, which is not its
// name when the name is a link.
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

// varies tells whether clients get different bytes for one address.
func (f *file) varies() bool {
	return f.coded[brotli] != nil || f.coded[zstd] != nil || f.coded[gzipped] != nil
}

// blob is f's bytes in one coding.
func (f *file) blob(c coding) *blob {
	if c == identity {
		return &f.plain
	}
	return f.coded[c]
}

// choose picks the coding of f that a client weighs highest; among equals the
// host's own order decides, and the plain file only counts when the client
// asked for it by name.
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

// weigh reads Accept-Encoding. What is malformed counts as not said.
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

// of is the weight of a coding: its own, or that of "*", which says nothing
// about the plain file.
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

// quality reads the q of parameters such as "q=0.5" in thousandths: 1000
// without one, 0 when it is malformed.
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

// mentions tells whether an Accept header takes exactly this media range.
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
