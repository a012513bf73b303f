package doctor

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// weaknesses are known ways out of a container through runc.
var weaknesses = []struct {
	name  string
	fixed []string // the first fixed release of each series, the oldest series first
}{
	{"CVE-2024-21626", []string{"1.1.12"}},
	{"CVE-2025-31133, CVE-2025-52565 and CVE-2025-52881", []string{"1.2.8", "1.3.3", "1.4.0-rc.3"}},
}

// upstream matches a version of runc as its authors write it, and what a distribution adds.
var upstream = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:-rc\.?\d+)?)(.*)$`)

func checkRunc(_ context.Context, _ *Host, a answer) Check {
	if a.err != nil {
		return skipped(noEngine)
	}
	if a.engine.Runc == "" {
		return skipped("the engine does not say that it has runc")
	}
	parts := upstream.FindStringSubmatch(a.engine.Runc)
	if parts == nil {
		return skipped("the version %q of runc is not known", a.engine.Runc)
	}
	known := weaknessesOf(parts[1])
	const fix = "install runc 1.2.8, 1.3.3 or newer: update the package containerd.io, or runc of your distribution, and restart the engine"
	switch {
	case known == "":
		return good("runc %s", a.engine.Runc)
	case parts[2] != "":
		return bad(Warn, fmt.Sprintf("runc %s is a distribution's: its upstream release has %s, by which a program leaves its container, and only the distribution knows whether it has the correction", a.engine.Runc, known),
			"apt-get update && apt-get install runc, and read its changelog (apt-get changelog runc)")
	}
	return bad(Fail, fmt.Sprintf("runc %s has %s: a program can leave its container", a.engine.Runc, known), fix)
}

// weaknessesOf returns the names of the weaknesses that a release has, or "".
func weaknessesOf(version string) string {
	var names []string
	for _, w := range weaknesses {
		if isBefore(version, w.fixed) {
			names = append(names, w.name)
		}
	}
	return strings.Join(names, ", ")
}

// isBefore reports whether a release is older than the first fixed one of its series, or
// of a series that is older than all fixed ones.
func isBefore(version string, fixed []string) bool {
	for _, f := range fixed {
		switch compareVersions(seriesOf(version), seriesOf(f)) {
		case -1:
			return true
		case 0:
			return compareVersions(numbersOf(version), numbersOf(f)) < 0
		}
	}
	return false
}

// candidate matches the end of a release candidate's version.
var candidate = regexp.MustCompile(`-rc\.?(\d+)$`)

// numbersOf returns the numbers of a version, the last one of which is that of the release
// candidate; the release itself has a higher one.
func numbersOf(version string) string {
	if candidate.MatchString(version) {
		return candidate.ReplaceAllString(version, ".$1")
	}
	return version + ".1000"
}

// seriesOf returns the first two numbers of a version.
func seriesOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// compareVersions compares numbers separated by dots. What is not a number is 0.
func compareVersions(a, b string) int {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(as), len(bs)) {
		if c := cmp.Compare(numberAt(as, i), numberAt(bs, i)); c != 0 {
			return c
		}
	}
	return 0
}

func numberAt(parts []string, i int) int {
	if i >= len(parts) {
		return 0
	}
	n, _ := strconv.Atoi(parts[i])
	return n
}
