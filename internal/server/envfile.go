package server

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// envFileHead begins the file that PrintFile writes.
const envFileHead = `# Settings of berthd. Each is commented out and shows its default: remove the # and
# write another value. berthd --help and berthd(8) describe them too.
#
# After a change: systemctl restart berthd. Deployed services keep running meanwhile.
#
# DOCKER_HOST, if you set it here, is the address of the Docker engine.
`

// PrintFile writes every setting with its meaning as an environment file, commented out,
// with the value of its flag or else its default.
func PrintFile(w io.Writer, flag func(string) (string, bool)) error {
	var text strings.Builder
	text.WriteString(envFileHead)
	for _, s := range Settings() {
		value, _ := s.lookup(flag, func(string) (string, bool) { return "", false })
		fmt.Fprintf(&text, "\n%s\n#%s=%s\n", comment(s.Meaning), s.Name, value)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// commentWidth is the most characters of a line of a comment.
const commentWidth = 88

// comment breaks a text into lines that begin with #.
func comment(text string) string {
	var lines []string
	line := "#"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > commentWidth {
			lines = append(lines, line)
			line = "#"
		}
		line += " " + word
	}
	return strings.Join(append(lines, line), "\n")
}

// LoadFile sets the variables of an environment file that the environment does not have,
// as systemd does for a service. A file that does not exist has none.
func LoadFile(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; run berthd as root", err)
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return fmt.Errorf("%s: a line is not NAME=value", path)
		}
		if _, set := os.LookupEnv(name); set {
			continue
		}
		if err := os.Setenv(name, unquote(value)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// unquote removes the quotes around a value.
func unquote(value string) string {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	return value
}
