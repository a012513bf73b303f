package manifest

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// utf16Of is a text as some editors save it.
func utf16Of(text string, order func(uint16) [2]byte) string {
	var b strings.Builder
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		pair := order(unit)
		b.Write(pair[:])
	}
	return b.String()
}

func littleEndian(u uint16) [2]byte { return [2]byte{byte(u), byte(u >> 8)} }
func bigEndian(u uint16) [2]byte    { return [2]byte{byte(u >> 8), byte(u)} }

// lolBomb is the YAML of a billion laughs: nine levels of nine aliases each.
func lolBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	return b.String() + "services: *a9\n"
}

// numbered is n lines or items that differ in a number.
func numbered(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// indented is a mapping in a mapping, n levels deep.
func indented(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

// hostileManifests ask a reader for too much; each has its expected refusal.
var hostileManifests = map[string][2]string{
	"a billion laughs":              {lolBomb(), "anchors, aliases and merge keys are not accepted"},
	"an anchor alone":               {"name: &x a\n", "line 1: anchors"},
	"an alias of itself":            {"a: &a [*a]\n", "anchors"},
	"an alias of nothing":           {"name: *nobody\n", "anchors"},
	"a merge key":                   {"services: [{<<: {name: web}}]\n", "anchors, aliases and merge keys"},
	"a tag that makes an object":    {"name: !!python/object/apply:os.system [id]\n", "tags and directives"},
	"a tag of one's own":            {"name: !x y\n", "tags and directives"},
	"a directive":                   {"%YAML 1.1\n---\nname: x\n", "tags and directives"},
	"two documents":                 {"name: a\n---\nname: b\n", "more than one YAML document"},
	"many documents":                {strings.Repeat("---\n", 6000), "more than"},
	"nested lists":                  {"services: " + strings.Repeat("[", 3000), "nests deeper than"},
	"nested mappings":               {"services: " + strings.Repeat("{a: ", 1500), "nests deeper than"},
	"nested by indentation":         {indented(200), "nests deeper than"},
	"nested entries of lists":       {"services:\n" + strings.Repeat("- ", 2000) + "x", "nests deeper than"},
	"nested questions":              {strings.Repeat("? ", 2000), "nests deeper than"},
	"nested JSON":                   {`{"services": ` + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "}", "nests deeper than"},
	"nested JSON objects":           {strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000), "nests deeper than"},
	"nested JSON, not closed":       {`{"services": ` + strings.Repeat("[", 60_000), "more than 5000 words"},
	"a key twice":                   {"name: a\nname: b\n", `"name" is given twice`},
	"a key twice in JSON":           {`{"name": "a", "name": "b"}`, `"name" is given twice`},
	"a key a thousand times":        {strings.Repeat("name: a\n", 1000), "and 959 more"},
	"half a surrogate pair":         {`{"name": "a\ud800b"}`, `half of a surrogate pair, \ud800,`},
	"a variable twice":              {"services: [{name: web, env: {A: 1, A: 2}}]", "env A is given twice"},
	"a thousand unknown keys":       {numbered("key%d: x\n", 1000), "and 960 more"},
	"a key of 60 KB":                {strings.Repeat("k", 60_000) + ": x\n", "unknown field"},
	"a key of 60 KB in JSON":        {`{"` + strings.Repeat("k", 60_000) + `": 1}`, "unknown field"},
	"a variable of 60 KB":           {"services: [{name: web, env: {'" + strings.Repeat("-", 60_000) + "': 1}}]", "is not the name of a variable"},
	"a name of 60 KB":               {"name: " + strings.Repeat("n", 60_000), "1 to 64 printable characters"},
	"a service's name of 60 KB":     {"services: [{name: " + strings.Repeat("n", 60_000) + "}]", "1 to 20 characters"},
	"a dependency of 60 KB":         {"services: [{name: web, depends_on: [" + strings.Repeat("n", 60_000) + "]}]", "no such service"},
	"a thousand services":           {"services: [" + strings.Repeat("{name: a},", 500) + "]", "500 entries; a stack has at most 4"},
	"a thousand dependencies":       {"services: [{name: web, depends_on: [" + numbered("s%d,", 1000) + "]}]", "no such service"},
	"a number of 20,000 digits":     {"services: [{name: web, port: 1" + strings.Repeat("0", 20_000) + "}]", "is not a whole number from 1 to 65535"},
	"the same in JSON":              {`{"services": [{"name": "web", "port": 1` + strings.Repeat("0", 20_000) + "}]}", "is not a whole number"},
	"a huge exponent":               {"services: [{name: web, port: 1e999999999}]", "port is text but must be a number"},
	"a huge exponent in JSON":       {`{"services": [{"name": "web", "port": 1e999999999}]}`, "port 1e999999999 is not a whole number"},
	"a fraction":                    {"services: [{name: web, port: 80.5}]", "port 80.5 is not"},
	"a negative port":               {"services: [{name: web, port: -1}]", "port -1 is not"},
	"a hexadecimal port":            {"services: [{name: web, port: 0xFFFFFFFFFFFFFFFFFFFF}]", "port"},
	"a port of sixties":             {"services: [{name: web, port: 190:20:30}]", "port is text"},
	"infinity":                      {"services: [{name: web, port: .inf}]", "port .inf is not"},
	"not a number":                  {"services: [{name: web, port: .nan}]", "port .nan is not"},
	"a duration of 60,000 digits":   {"ttl: " + strings.Repeat("9", 60_000) + "s", "is too long"},
	"a duration without end":        {"services: [{name: web, stop_timeout: 106751d}]", "is not from 1s to 60s"},
	"a NUL byte":                    {"name: a\x00b\n", "not UTF-8 text"},
	"a NUL byte at the end":         {"name: a\x00", "not UTF-8 text"},
	"an escaped NUL":                {`name: "a\0b"`, "name holds a control character"},
	"an escaped NUL in JSON":        {`{"name": "a\u0000b"}`, "name holds a control character"},
	"an escaped NUL in a variable":  {`{"services": [{"name": "web", "env": {"A": "\u0000"}}]}`, "env A holds a NUL character"},
	"an escaped NUL in a key":       {`{"a\u0000b": 1}`, `unknown field "a\x00b"`},
	"a terminal escape in a key":    {`{"\u001b[2J": 1}`, `unknown field "\x1b[2J"`},
	"a terminal escape in a name":   {`name: "\e[2J"`, "name holds a control character"},
	"a terminal escape in a port":   {"services: [{name: web, port: \"\\e[2J\"}]", "port is text"},
	"a C1 escape in a name":         {"name: \"a\u009b2J\"", "printable characters"},
	"a C1 escape in a service":      {"services: [{name: \"a\u009b2J\", runtime: \"\u009b2J\"}]", "1 to 20 characters"},
	"a terminal escape in a folder": {`services: [{name: web, root: "a\e[2Jb"}]`, "control character"},
	"bytes that are not UTF-8":      {"name: \xff\xfe\n", "not UTF-8 text"},
	"an overlong NUL":               {"name: a\xc0\x80\n", "not UTF-8 text"},
	"a lone surrogate":              {"name: \xed\xa0\x80\n", "not UTF-8 text"},
	"Latin-1":                       {"name: caf\xe9\n", "not UTF-8 text"},
	"UTF-16, little endian":         {utf16Of("name: a\n", littleEndian), "not UTF-8 text"},
	"UTF-16, big endian":            {utf16Of("name: a\n", bigEndian), "not UTF-8 text"},
	"a tab for indentation":         {"services:\n\t- name: web\n", "YAML"},
	"a quote that never ends":       {"name: \"" + strings.Repeat("x", 60_000), "YAML"},
	"braces that never end":         {"{" + strings.Repeat("a, ", 2000), ""},
	"closing brackets alone":        {strings.Repeat("]", 60_000), "more than"},
	"colons alone":                  {strings.Repeat(":", 60_000), ""},
	"dashes alone":                  {strings.Repeat("-", 60_000), ""},
	"pipes alone":                   {strings.Repeat("|\n", 30_000), ""},
	"quotes alone":                  {strings.Repeat(`"`, 60_001), ""},
	"commas alone":                  {strings.Repeat(",", 60_000), ""},
	"exclamation marks alone":       {strings.Repeat("! ", 30_000), ""},
	"comments alone, then a fault":  {strings.Repeat("# x\n", 1000) + "nonsense", "it is text; write fields"},
	"one byte too much":             {"#" + strings.Repeat("x", maxManifest), "larger than 64 KiB"},
	"a megabyte":                    {strings.Repeat("name: x\n", 1<<17), "larger than 64 KiB"},
	"a list":                        {"[1, 2]", "it is a list; write fields"},
	"a number":                      {"42", "it is a number; write fields"},
	"a text":                        {"hello", "it is text; write fields"},
	"HTML":                          {"<!DOCTYPE html><html></html>", ""},
	"a webhook with a password":     {"notify: {webhook: 'https://ana:hunter2@example.com/'}", "holds a user name or password"},
	"a webhook to a file":           {"notify: {webhook: 'file:///etc/passwd'}", "does not begin with http"},
	"a webhook with a line break":   {`notify: {webhook: "https://example.com/\r\nHost: x"}`, "is not a URL"},
	"an email with a line break":    {`claim_email: "a@example.com\r\nBcc: b@example.com"`, "claim_email"},
	"a health path with a header":   {`services: [{name: web, runtime: node, start: x, health: "/ HTTP/1.1\r\nX: y"}]`, "is not a path of a URL"},
	"a root that climbs out":        {"services: [{name: web, root: ../../etc}]", "leads outside"},
	"a root that is absolute":       {"services: [{name: web, root: /etc}]", "must be a folder inside"},
	"a publish that climbs out":     {"services: [{name: web, runtime: static, publish: ../..}]", "leads outside"},
}

// A hostile manifest is refused with a message, in bounded time and memory.
func TestResolve_HoldsAgainstHostileManifests(t *testing.T) {
	const mostTime, mostMemory = 10 * time.Second, 64 << 20
	for name, c := range hostileManifests {
		t.Run(name, func(t *testing.T) {
			manifest, want := []byte(c[0]), c[1]
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			m, err := Resolve(page, "", Request{Manifest: manifest})
			spent := time.Since(began)
			runtime.ReadMemStats(&after)
			var refusal *stack.Error
			if m != nil || !errors.As(err, &refusal) || refusal.Kind != stack.Unprocessable {
				t.Fatalf("got %+v, %v", m, err)
			}
			if !strings.Contains(refusal.Detail, want) {
				t.Errorf("refused with %.300q, want %q in it", refusal.Detail, want)
			}
			if len(refusal.Detail) > 12_000 || safetext.String(refusal.Detail) != refusal.Detail {
				t.Errorf("refused with %d bytes: %.300q", len(refusal.Detail), refusal.Detail)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; spent > mostTime || allocated > mostMemory {
				t.Errorf("it took %v and %d bytes", spent, allocated)
			}
		})
	}
}
