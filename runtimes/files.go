package runtimes

import (
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxFile limits what is read of one file, in bytes.
const maxFile = 1 << 20

// read returns a regular file of at most maxFile bytes; false for anything else.
func read(src fs.FS, name string) ([]byte, bool) {
	data, ok := readUpTo(src, name, maxFile+1)
	if len(data) > maxFile {
		return nil, false
	}
	return data, ok
}

// readHead returns the first maxFile bytes of a file of any size, as text; "" if there
// is none.
func readHead(src fs.FS, name string) string {
	data, _ := readUpTo(src, name, maxFile)
	return string(data)
}

// readUpTo returns at most n bytes of a regular file; false if it cannot be read.
func readUpTo(src fs.FS, name string, n int64) ([]byte, bool) {
	f, err := src.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil, false
	}
	return data, true
}

// plainJSON removes comments, and commas before a closing bracket, from JSON as people
// write it for tools. It does not build a tree: a megabyte of brackets overflows the
// stack of a recursive parser.
func plainJSON(data []byte) []byte {
	return jsonExtras.ReplaceAllFunc(data, func(m []byte) []byte {
		switch m[0] {
		case '"':
			return m
		case ',':
			return m[len(m)-1:]
		default:
			return nil
		}
	})
}

// jsonExtras matches strings too, so that text inside one that looks like a comment
// stays.
var jsonExtras = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|//[^\n]*|/\*(?s:.*?)\*/|,(?:\s|//[^\n]*\n|/\*(?s:.*?)\*/)*[}\]]`)

// isFile reports whether name is a regular file, or a link to one inside src.
func isFile(src fs.FS, name string) bool {
	info, err := fs.Stat(src, name)
	return err == nil && info.Mode().IsRegular()
}

// isDir reports whether name is a folder, or a link to one inside src.
func isDir(src fs.FS, name string) bool {
	info, err := fs.Stat(src, name)
	return err == nil && info.IsDir()
}

// firstFile returns the first of names that is a file; "" if none is.
func firstFile(src fs.FS, names ...string) string {
	for _, name := range names {
		if isFile(src, name) {
			return name
		}
	}
	return ""
}

// firstLine returns the first line of a file that is neither empty nor a comment.
func firstLine(src fs.FS, name string) string {
	for line := range strings.Lines(readHead(src, name)) {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line != "" {
			return line
		}
	}
	return ""
}

// group returns what the first group of a pattern matches in a text, or "".
func group(pattern *regexp.Regexp, text string) string {
	if m := pattern.FindStringSubmatch(text); m != nil {
		return m[1]
	}
	return ""
}

var tomlHeader = regexp.MustCompile(`(?m)^\s*\[\[?\s*([^\]\s]+)\s*\]\]?`)

// tomlSections returns the text below each header of a TOML file with a name.
func tomlSections(text, name string) []string {
	var found []string
	headers := tomlHeader.FindAllStringSubmatchIndex(text, -1)
	for i, h := range headers {
		end := len(text)
		if i+1 < len(headers) {
			end = headers[i+1][0]
		}
		if text[h[2]:h[3]] == name {
			found = append(found, text[h[1]:end])
		}
	}
	return found
}

// toolVersion returns the version in .tool-versions of one of tools.
func toolVersion(src fs.FS, tools ...string) string {
	for line := range strings.Lines(readHead(src, ".tool-versions")) {
		fields := strings.Fields(line)
		if len(fields) > 1 && slices.Contains(tools, fields[0]) {
			return fields[1]
		}
	}
	return ""
}

// subfolders returns the names of dir's folders that may contain the project's own
// source, in order, at most a hundred.
func subfolders(src fs.FS, dir string) []string {
	entries, err := fs.ReadDir(src, dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !notSource.MatchString(e.Name()) && len(names) < 100 {
			names = append(names, path.Join(dir, e.Name()))
		}
	}
	return names
}

// notSource matches folders of dependencies, results and tools.
var notSource = regexp.MustCompile(`^([._].*|node_modules|vendor|testdata|venv|__pycache__)$`)

// pickProgram returns the index of the program to run: the only one, else the one named
// like the project or like a server; -1 if there is none.
func pickProgram(names []string, own ...string) int {
	if len(names) == 1 {
		return 0
	}
	for _, name := range append(own, "server", "web", "api", "app") {
		if i := slices.Index(names, name); i >= 0 {
			return i
		}
	}
	return -1
}

// readsPort matches programs and settings that mention the variable PORT.
var readsPort = regexp.MustCompile(`\bPORT\b`)

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./@%+=:,-]+$`)

// word quotes s as one word of a shell line.
func word(s string) string {
	if plainWord.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
