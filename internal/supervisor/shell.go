package supervisor

import (
	"regexp"
	"slices"
	"strings"
)

// startCommand runs a start command through a shell that, where it can, is replaced by
// the program. A shell that waits for its program would receive the SIGTERM instead,
// and the program would be killed without warning.
func startCommand(line string) []string { return []string{"sh", "-c", inPlace(line)} }

// inPlace puts an exec before the last command of a line of simple ones, as in
// "./migrate && node server.js". It returns other lines unchanged.
func inPlace(line string) string {
	head, last := "", line
	if i := strings.LastIndex(line, "&&"); i >= 0 {
		head, last = line[:i+2]+" ", line[i+2:]
	}
	last = strings.TrimSpace(last)
	if strings.ContainsAny(head, "'\"`\\(){}#") || !isProgram(last) {
		return line
	}
	return head + "exec " + last
}

var program = regexp.MustCompile(`^[\w.+/-]+$`)

// notPrograms are words that a shell does not look for on the disk.
var notPrograms = []string{
	".", "alias", "break", "case", "cd", "command", "continue", "eval", "exec", "exit", "export", "for", "getopts", "hash",
	"if", "local", "read", "readonly", "return", "set", "shift", "times", "trap", "type", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
}

// isProgram reports whether a command is one program with its arguments.
func isProgram(command string) bool {
	if strings.ContainsAny(strings.ReplaceAll(command, ">&", ""), ";&|()`\n#") {
		return false
	}
	name, _, _ := strings.Cut(command, " ")
	return program.MatchString(name) && !slices.Contains(notPrograms, name)
}
