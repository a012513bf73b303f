package supervisor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStartCommand_GivesTheShellsPlaceToTheProgram(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"node server.js":                "exec node server.js",
		" ./app --port $PORT 2>&1 ":     "exec ./app --port $PORT 2>&1",
		`python -c "import app"`:        `exec python -c "import app"`,
		"./migrate && node server.js":   "./migrate && exec node server.js",
		"cd web; ./a || b && node x":    "cd web; ./a || b && exec node x",
		"NODE_ENV=production node x.js": "NODE_ENV=production node x.js",
		"exec node x":                   "exec node x",
		"cd web":                        "cd web",
		"node a & node b":               "node a & node b",
		"node a | tee log":              "node a | tee log",
		"echo 'a && b'":                 "echo 'a && b'",
		"if a && b; then node x; fi":    "if a && b; then node x; fi",
		"(a && node x)":                 "(a && node x)",
		"a &&\n{ b && c\n}":             "a &&\n{ b && c\n}",
		"":                              "",
	} {
		require.Equal(t, []string{"sh", "-c", want}, startCommand(line), line)
	}
}
