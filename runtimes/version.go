package runtimes

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// version is major, minor and patch.
type version [3]int

// span is the versions from lo up to, but not including, hi.
type span struct{ lo, hi version }

var newest = version{1 << 30}

// choose returns the available version for what a file asks for: the default if that
// matches, else the lowest match, else the nearest newer one, else the newest. The
// second result is from, with a remark if the choice is not what the file asks for.
// Text that is not a version gives "".
func (d *Definition) choose(asked, from string) (string, string) {
	wanted, ok := parseRange(asked)
	if !ok {
		return "", ""
	}
	for _, v := range append([]string{d.Default}, d.Versions...) {
		if overlaps(offered(v), wanted) {
			return v, from
		}
	}
	nearest := d.Versions[len(d.Versions)-1]
	for _, v := range d.Versions {
		if offered(v).lo.compare(wanted[0].lo) > 0 {
			nearest = v
			break
		}
	}
	return nearest, fmt.Sprintf("%s asks for %s, which is not offered; %s is the nearest", from, clip(asked), nearest)
}

// source is one place where a version may be written, and its text.
type source struct{ asked, from string }

// firstVersion chooses by the first source that can be read.
func (d *Definition) firstVersion(sources ...source) (string, string) {
	for _, s := range sources {
		if v, from := d.choose(s.asked, s.from); v != "" {
			return v, from
		}
	}
	return "", ""
}

// offered returns the span of an available version: all of 22, all of 3.13.
func offered(v string) span {
	spans, _ := parseRange(v)
	return spans[0]
}

func overlaps(offer span, wanted []span) bool {
	return slices.ContainsFunc(wanted, func(w span) bool {
		return offer.lo.compare(w.hi) < 0 && w.lo.compare(offer.hi) < 0
	})
}

func (v version) compare(w version) int { return slices.Compare(v[:], w[:]) }

var (
	comparator = regexp.MustCompile(`^(===|==|~=|!=|>=|<=|>|<|=|\^|~)?\s*v?(\d{1,6}|[xX*])(?:\.(\d{1,6}|[xX*]))?(?:\.(\d{1,6}|[xX*]))?(?:[-+.][0-9A-Za-z][0-9A-Za-z.+-]*|[a-z]+[0-9]*)?(?:[\s,]+|$)`)
	hyphens    = regexp.MustCompile(`(\S+)\s+-\s+(\S+)`)
)

// parseRange parses a range in the forms of npm, pip and poetry. It omits empty spans;
// a range with no others cannot be read.
func parseRange(s string) ([]span, bool) {
	if len(s) > 200 {
		return nil, false
	}
	var spans []span
	for alternative := range strings.SplitSeq(s, "||") {
		w, ok := parseComparators(hyphens.ReplaceAllString(strings.TrimSpace(alternative), ">=$1 <=$2"))
		if !ok {
			return nil, false
		}
		if w.lo.compare(w.hi) < 0 {
			spans = append(spans, w)
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.lo.compare(b.lo), a.hi.compare(b.hi)) })
	return spans, len(spans) > 0
}

// parseComparators parses comparators that must all hold.
func parseComparators(s string) (span, bool) {
	all := span{hi: newest}
	if s == "" {
		return all, false
	}
	for s != "" {
		m := comparator.FindStringSubmatch(s)
		if m == nil {
			return all, false
		}
		w := compared(m[1], m[2:5])
		all.lo = slices.MaxFunc([]version{all.lo, w.lo}, version.compare)
		all.hi = slices.MinFunc([]version{all.hi, w.hi}, version.compare)
		s = s[len(m[0]):]
	}
	return all, true
}

// compared returns the span of a comparator with up to three numbers.
func compared(op string, parts []string) span {
	var v version
	n := 0 // how many numbers are given before an x, a * or the end
	for n < 3 {
		i, err := strconv.Atoi(parts[n])
		if err != nil {
			break
		}
		v[n] = i
		n++
	}
	if n == 0 || op == "!=" {
		return span{hi: newest}
	}
	switch op {
	case ">":
		return span{v.next(n), newest}
	case ">=":
		return span{v, newest}
	case "<":
		return span{version{}, v}
	case "<=":
		return span{version{}, v.next(n)}
	case "^":
		return span{v, v.next(leading(v, n))}
	case "~":
		return span{v, v.next(min(n, 2))}
	case "~=":
		return span{v, v.next(max(n-1, 1))}
	default:
		return span{v, v.next(n)}
	}
}

// next returns the first version after all that share v's first n numbers.
func (v version) next(n int) version {
	var w version
	copy(w[:n], v[:n])
	w[n-1]++
	return w
}

// leading returns the index of the first of n numbers that is not 0, as ^ counts it.
func leading(v version, n int) int {
	for i := range n {
		if v[i] != 0 {
			return i + 1
		}
	}
	return n
}

// clip shortens text from the source for a message.
func clip(s string) string {
	if len(s) > 40 {
		return strings.ToValidUTF8(s[:40], "") + "…"
	}
	return s
}
