package web

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/stack"
)

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// phaseInWords says what a deploy is doing; "" if that is not known.
func phaseInWords(p stack.Progress) string {
	switch p.Phase {
	case stack.PhaseQueued:
		return "it waits for its turn"
	case stack.PhaseInstall:
		return "installing " + p.Service
	case stack.PhaseBuild:
		return "building " + p.Service
	case stack.PhaseRelease:
		return "running the release command of " + p.Service
	case stack.PhaseStart:
		return "starting " + p.Service
	case stack.PhaseHealth:
		return "waiting until " + p.Service + " is healthy"
	}
	return ""
}

// clock formats a time for reading, in UTC; the script converts it to the reader's time
// zone.
func clock(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04 UTC") }

// machine formats a time for the datetime attribute.
func machine(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// sentence turns the detail of an error into a sentence with a capital letter and a
// full stop.
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

// terminal matches sequences that move, colour or name a terminal (ECMA-48), and
// control characters that a page cannot show.
var terminal = regexp.MustCompile(`(\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|` + // colours and movements
	`(\x1b[\]PX^_]|[\x{90}\x{98}\x{9d}-\x{9f}])[^\x07\x1b\x{9c}]*(\x07|\x1b\\|\x{9c})|` + // titles, links and other texts
	`\x1b[ -/]*[0-~]|` + // character sets, modes
	`[\x00-\x08\x0b-\x1f\x7f-\x{9f}]`)

// readable removes from a line of a log what only a terminal understands.
func readable(line string) string {
	if isPlain(line) { // as most are, and a search looks at very many
		return line
	}
	return terminal.ReplaceAllString(strings.ToValidUTF8(line, "\uFFFD"), "")
}

// isPlain reports whether nothing in a text is for terminals, and all of it is UTF-8.
func isPlain(text string) bool {
	for _, r := range text {
		if r == utf8.RuneError || unicode.IsControl(r) && r != '\t' && r != '\n' {
			return false
		}
	}
	return true
}

// written matches the sequences of terminal that begin with an escape or the like, as
// package safetext writes them out.
var written = regexp.MustCompile(`(\\x1b\[|\\u009b)[0-?]*[ -/]*[@-~]|` +
	`(\\x1b[\]PX^_]|\\u009[08d-f])([^\\\n]|\\[^x\n])*?(\\x07|\\x1b\\|\\u009c)|` +
	`\\x1b([ -/]*[0-~])?`)

// plainError removes from an error what only a terminal understands in the output that
// it quotes.
func plainError(text string) string { return written.ReplaceAllString(text, "") }

// Browsers and systems by a part of their User-Agent. The first match counts, since
// most User-Agents name others too.
var (
	browsers = [][2]string{{"Edg/", "Edge"}, {"OPR/", "Opera"}, {"Firefox/", "Firefox"}, {"Chrome/", "Chrome"}, {"Safari/", "Safari"}, {"curl/", "curl"}}
	systems  = [][2]string{{"Android", "Android"}, {"iPhone", "iPhone"}, {"iPad", "iPad"}, {"Windows", "Windows"}, {"Mac OS X", "macOS"}, {"CrOS", "ChromeOS"}, {"Linux", "Linux"}}
)

// browser names a browser from its User-Agent: Firefox on Linux.
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
