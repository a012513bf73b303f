package runtimes

import (
	"io/fs"
	"regexp"
	"strings"
)

var procfileLine = regexp.MustCompile(`^([A-Za-z0-9_-]+):\s*(\S.*)$`)

// readProcfile returns the command of each process type; of a type that stands
// twice, the first.
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
