package runtimes

import (
	"io/fs"
	"regexp"
	"strings"
)

var procfileLine = regexp.MustCompile(`^([A-Za-z0-9_-]+):\s*(\S.*)$`)

// readProcfile returns the command of each process type; if a type occurs twice, the
// first counts.
func readProcfile(src fs.FS) map[string]string {
	commands := map[string]string{}
	data, _ := read(src, "Procfile")
	for line := range strings.Lines(string(data)) {
		m := procfileLine.FindStringSubmatch(strings.TrimSpace(line))
		if m != nil && commands[m[1]] == "" {
			commands[m[1]] = m[2]
		}
	}
	return commands
}
