package cli

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-host/berth/integration/terminal"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"berth": func() {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		code := Run(ctx, os.Args[1:])
		stop()
		os.Exit(code)
	}})
}

// TestScripts runs berth as a process against a fake server, one for each
// script of testdata. The scripts have commands of their own: exits CODE ARGS
// runs berth and wants that exit code, uploaded FILES compares what the newest
// stack was made from, asked COUNT METHOD PATH counts requests, set FIELD VALUE
// changes the newest stack, and mode FILE PERMISSIONS looks at a file. terminal
// CODE ANSWERS ARGS runs berth on a pseudo-terminal, and shown PATTERN searches
// what it showed.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(e *testscript.Env) error {
			f := newFake(e.T().(testing.TB))
			e.Setenv("BERTH_SERVER", f.address())
			e.Setenv("XDG_CONFIG_HOME", e.WorkDir+"/config")
			e.Setenv("TERM", "xterm")
			e.Setenv("GORACE", "atexit_sleep_ms=0") // berth ends without a sleep under the race detector, too
			e.Values["fake"] = f
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, _ bool, args []string) { exits(ts, args) },
			"uploaded": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := of(ts).uploaded(); !slices.Equal(got, args) {
					ts.Fatalf("uploaded %v", got)
				}
			},
			"given": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := of(ts).given(); got != args[0] {
					ts.Fatalf("given %q", got)
				}
			},
			"terminal": func(ts *testscript.TestScript, _ bool, args []string) { onTerminal(ts, args) },
			"shown":    func(ts *testscript.TestScript, not bool, args []string) { shown(ts, not, args[0]) },
			"asked": func(ts *testscript.TestScript, _ bool, args []string) {
				if got := strconv.Itoa(of(ts).asked(args[1] + " " + args[2])); got != args[0] {
					ts.Fatalf("asked %s times", got)
				}
			},
			"set": func(ts *testscript.TestScript, _ bool, args []string) { of(ts).set(ts, args[0], args[1]) },
			"mode": func(ts *testscript.TestScript, _ bool, args []string) {
				info, err := os.Stat(ts.MkAbs(args[0]))
				ts.Check(err)
				if got := strconv.FormatUint(uint64(info.Mode().Perm()), 8); got != args[1] {
					ts.Fatalf("mode %s", got)
				}
			},
		},
	})
}

func of(ts *testscript.TestScript) *fake { return ts.Value("fake").(*fake) }

// exits runs berth and wants an exit code other than 0.
func exits(ts *testscript.TestScript, args []string) {
	err := ts.Exec("berth", args[1:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("berth exits with %s (%v)", code, err)
	}
}

// screen is the file with the output of the last terminal.
const screen = "screen"

// answers holds what is typed on a terminal, by its name in scripts.
var answers = map[string][]terminal.Typing{
	"none":  nil,
	"yes":   {{After: "[y/N] ", Text: "y\n"}},
	"no":    {{After: "[y/N] ", Text: "n\n"}},
	"stop":  {{After: "once): ", Text: "\x03", Hidden: true}},
	"value": {{After: "Value of OTHER: ", Text: "unseen\n", Hidden: true}},
	"key":   {{After: "once): ", Text: fakeKey + "\n", Hidden: true}},
}

func onTerminal(ts *testscript.TestScript, args []string) {
	path, err := exec.LookPath("berth")
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, name := range []string{"BERTH_SERVER", "XDG_CONFIG_HOME", "TERM", "NO_COLOR", "TMPDIR", "GORACE"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	text, err := terminal.Run(cmd, answers[args[1]]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	ts.Check(os.WriteFile(ts.MkAbs(screen), []byte(text), 0o600))
	if code != args[0] {
		ts.Fatalf("berth exits with %s and shows\n%s", code, text)
	}
}

func shown(ts *testscript.TestScript, not bool, pattern string) {
	text := ts.ReadFile(screen)
	if regexp.MustCompile("(?m)"+pattern).MatchString(text) == not {
		ts.Fatalf("the terminal shows\n%q", text)
	}
}

func (f *fake) set(ts *testscript.TestScript, field, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch field {
	case "status":
		f.stacks[f.newest()].status = value
	case "served":
		f.stacks[f.newest()].served = map[string]string{"index.html": value, "other.html": value}
	case "unkept":
		f.stacks[f.newest()].served = nil
	case "token":
		f.stacks[f.newest()].token = value
	case "polls":
		n, err := strconv.Atoi(value)
		ts.Check(err)
		f.polls = n
	case "plans":
		f.plans = value == "true"
	case "instead":
		f.instead = value
	case "drop":
		n, err := strconv.Atoi(value)
		ts.Check(err)
		f.drop = n
	default:
		ts.Fatalf("unknown field %s", field)
	}
}
