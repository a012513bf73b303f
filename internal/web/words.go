package web

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// clock formats a moment for reading, in UTC; the script puts it into the reader's
// own time zone.
func clock(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") }

// machine formats a moment as the datetime attribute has it.
func machine(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// sentence makes a detail of an error one of a page: with a capital letter and
// a full stop.
func sentence(detail string) string {
	first, size := utf8.DecodeRuneInString(detail)
	if size == 0 {
		return ""
	}
	detail = string(unicode.ToUpper(first)) + detail[size:]
	if strings.HasSuffix(detail, ".") || strings.HasSuffix(detail, "!") || strings.HasSuffix(detail, "?") {
		return detail
	}
	return detail + "."
}

// terminal are the sequences that move, colour or name a terminal (ECMA-48), and
// the control characters that a page cannot show.
var terminal = regexp.MustCompile(`(\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|` + // colours and movements
	`(\x1b[\]PX^_]|[\x{90}\x{98}\x{9d}-\x{9f}])[^\x07\x1b\x{9c}]*(\x07|\x1b\\|\x{9c})|` + // titles, links and other texts
	`\x1b[ -/]*[0-~]|` + // character sets, modes
	`[\x00-\x08\x0b-\x1f\x7f-\x{9f}]`)

// readable returns a line of a log without what only a terminal understands.
func readable(line string) string {
	return terminal.ReplaceAllString(strings.ToValidUTF8(line, "\uFFFD"), "")
}

// written are the sequences of terminal that begin with an escape or its like, as
// package safetext has written them out.
var written = regexp.MustCompile(`(\\x1b\[|\\u009b)[0-?]*[ -/]*[@-~]|` +
	`(\\x1b[\]PX^_]|\\u009[08d-f])([^\\\n]|\\[^x\n])*?(\\x07|\\x1b\\|\\u009c)|` +
	`\\x1b([ -/]*[0-~])?`)

// plainError returns an error without what only a terminal understands in the output
// that it quotes.
func plainError(text string) string { return written.ReplaceAllString(text, "") }

func readableAll(lines []string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = readable(line)
	}
	return out
}

// browsers and systems by what their User-Agent holds; the first that fits
// counts, since most name others, too.
var (
	browsers = [][2]string{{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"}}
	systems  = [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}}
)

// browser returns a User-Agent as people say it: Firefox on Linux.
func browser(userAgent string) string {
	name, system := pick(browsers, userAgent), pick(systems, userAgent)
	switch {
	case name == "":
		return "Unknown browser"
	case system == "":
		return name
	}
	return name + " on " + system
}

func pick(known [][2]string, text string) string {
	for _, k := range known {
		if strings.Contains(text, k[0]) {
			return k[1]
		}
	}
	return ""
}
