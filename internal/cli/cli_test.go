package cli

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/boombuler/barcode/qr"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

func TestClean_TakesAwayWhatSteersATerminal(t *testing.T) {
	for text, want := range map[string]string{
		"plain\ttext\n":              "plain\ttext\n",
		"\x1b[1;31mred\x1b[0m":       "\x1b[1;31mred\x1b[0m",
		"\x1b]0;title\a":             "]0;title",
		"\x1b[2Jgone":                "[2Jgone",
		"over\rwritten\b":            "overwritten",
		"\u009b2J":                   "2J",
		"Grüße \x1b[":                "Grüße [",
		"not utf-8 \xff\x1b[31\xffm": "not utf-8 \xff[31\xffm",
	} {
		if got := clean(text, true); got != want {
			t.Errorf("clean(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestClean_TakesColoursAwayWhereThereAreNone(t *testing.T) {
	if got := clean("\x1b[1;31mred\x1b[0m", false); got != "red" {
		t.Errorf("%q", got)
	}
}

func TestExplain_GivesEachErrorItsCode(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	refusal := func(status int) error { return fmt.Errorf("deploy: %w", &client.Error{Status: status, Detail: "no"}) }
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want int
	}{
		{t.Context(), errors.New("disk full"), exitOther},
		{t.Context(), usagef("no"), exitUsage},
		{t.Context(), verdict(&client.Stack{Status: client.Failed}, nil), exitFailed},
		{t.Context(), refusal(http.StatusBadRequest), exitInvalid},
		{t.Context(), refusal(http.StatusRequestEntityTooLarge), exitInvalid},
		{t.Context(), refusal(http.StatusUnprocessableEntity), exitInvalid},
		{t.Context(), refusal(http.StatusUnauthorized), exitAccess},
		{t.Context(), refusal(http.StatusForbidden), exitAccess},
		{t.Context(), refusal(http.StatusNotFound), exitNotFound},
		{t.Context(), refusal(http.StatusConflict), exitConflict},
		{t.Context(), refusal(http.StatusTooManyRequests), exitTooMany},
		{t.Context(), refusal(http.StatusInternalServerError), exitUnreachable},
		{t.Context(), &client.Unreachable{Err: errors.New("refused")}, exitUnreachable},
		{t.Context(), errTimeout, exitTimeout},
		{cancelled, &client.Unreachable{Err: errors.New("cut off")}, exitInterrupted},
	} {
		if code, _, _ := explain(tt.ctx, tt.err); code != tt.want {
			t.Errorf("%v: code %d, want %d", tt.err, code, tt.want)
		}
		if !strings.Contains("\n"+exitCodesText, fmt.Sprintf("\n%d ", tt.want)) {
			t.Errorf("exit code %d is not documented", tt.want)
		}
	}
}

func TestIsNoStack_KnowsTheServersAnswer(t *testing.T) {
	const id = "stk_3f2a9c1b7d4e"
	err := &client.Error{Status: http.StatusNotFound, Detail: stack.NewNoStack(id).Detail}
	if !client.IsNoStack(fmt.Errorf("list: %w", err), id) {
		t.Errorf("%q is not taken for the API's answer", err.Detail)
	}
	if client.IsNoStack(err, "stk_3f2a9c1b7d4f") {
		t.Error("it is taken for an answer about another stack")
	}
}

func TestMemory_ManyProcessesWriteOne(t *testing.T) {
	m := &memory{filepath.Join(t.TempDir(), "berth", "stacks.json")}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			err := m.update("http://a", func(s *onServer) {
				s.keep(fmt.Sprintf("/folder/%d", i), &client.Stack{ID: fmt.Sprintf("stk_%d", i), ManageToken: "t"})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	known, err := m.load("http://a")
	if err != nil || len(known.Folders) != 20 || len(known.Stacks) != 20 {
		t.Errorf("%d folders, %d stacks, %v", len(known.Folders), len(known.Stacks), err)
	}
	if other, err := m.load("http://b"); err != nil || len(other.Stacks) != 0 {
		t.Errorf("another server knows %v, %v", other.Stacks, err)
	}
	left, err := os.ReadDir(filepath.Dir(m.path))
	if err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

func TestMemory_IsNotOverwrittenWhenDamaged(t *testing.T) {
	m := &memory{filepath.Join(t.TempDir(), "stacks.json")}
	if err := os.WriteFile(m.path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := m.update("http://a", func(s *onServer) { s.APIKey = "x" })
	if err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("error %v", err)
	}
	if data, err := os.ReadFile(m.path); string(data) != "{" || err != nil {
		t.Errorf("the file holds %q, %v", data, err)
	}
}

func TestMemory_FindsTheNextFolderAbove(t *testing.T) {
	s := &onServer{Folders: map[string]string{"/a": "stk_1", "/a/b/c": "stk_2"}}
	for folder, want := range map[string]string{"/a": "stk_1", "/a/b": "stk_1", "/a/b/c/d": "stk_2", "/": "", "/ab": ""} {
		if got := s.nearest(folder); got != want {
			t.Errorf("nearest(%s) = %q, want %q", folder, got, want)
		}
	}
}

func TestExplain_SaysHowToWaitWithThisProgram(t *testing.T) {
	busy := stack.Stack{ID: "stk_3f2a9c1b7d4e", Status: stack.Live, Attempt: 2, Generation: stack.Generation{Number: 1}, Deploying: 2}
	_, running := busy.Deploy(nil, stack.Now())
	for _, tt := range []struct {
		refusal     error // as the server words it
		cause, next string
	}{
		{running, "a build of this stack is already running (attempt 2, generation 2)", "wait for it with berth status --wait stk_3f2a9c1b7d4e, then deploy again, or end it with --supersede"},
		{busy.CheckCommand("web", stack.Now()), "the stack has no service web; it has ", ""},
	} {
		code, cause, next := explain(t.Context(), &client.Error{Status: http.StatusConflict, Detail: tt.refusal.Error(), RetryAfter: time.Second})
		if code != exitConflict || cause != tt.cause || next != tt.next {
			t.Errorf("%v:\ncode %d, %q, next: %q", tt.refusal, code, cause, next)
		}
	}
}

func TestVerdict_SaysToDeployAgainAfterARestart(t *testing.T) {
	const again = "run berth deploy again"
	stopped, broken := "the server was restarted while generation 2 was being built; upload the source again", "web: the build command exited with 1"
	for _, s := range []*client.Stack{{Status: client.Failed, Error: &stopped}, {Status: client.Live, DeployError: &stopped}} {
		if _, _, next := explain(t.Context(), verdict(s, nil)); next != again {
			t.Errorf("next: %s", next)
		}
	}
	if _, _, next := explain(t.Context(), verdict(&client.Stack{Status: client.Failed, Error: &broken}, nil)); !strings.HasPrefix(next, "look at berth logs --build") {
		t.Errorf("next: %s", next)
	}
}

// TestManifestText_ReadsBack writes values that YAML could take for something
// else and resolves what was written.
func TestManifestText_ReadsBack(t *testing.T) {
	hostile := []string{`echo "a: b" # c`, "true", "- x", "a\nb", "${X:-'y'}", "null", "@x", "2: 3", "~", "| x", "0x1f", "1e3", "12"}
	for _, text := range hostile {
		m := &stack.Manifest{Name: strings.ReplaceAll(text, "\n", " "), Services: []stack.Spec{{
			Name: "web", Runtime: stack.Runtime{Name: "node", Version: "22"}, Root: ".", Start: text, Build: text, Port: 3000,
			Origin: map[string]string{"start": "Procfile's\nweb"},
		}}}
		written := manifestText(m)
		got, err := manifest.Resolve(fstest.MapFS{}, "", manifest.Request{Manifest: written})
		if err != nil {
			t.Errorf("%q is written as\n%s\nand refused: %v", text, written, err)
			continue
		}
		if s := got.Services[0]; s.Start != text || s.Build != text || s.Port != 3000 || s.Runtime.String() != "node@22" {
			t.Errorf("%q is written as\n%s\nand read as %+v", text, written, s)
		}
	}
}

func TestServiceName_FollowsTheRule(t *testing.T) {
	for folder, want := range map[string]string{"web": "web", "My-Api_2": "myapi2", "2fast": "fast", "docs.old": "docsold", "---": "", "averyveryverylongfoldername": "averyveryverylongfol"} {
		if got := serviceName(folder); got != want {
			t.Errorf("serviceName(%q) = %q, want %q", folder, got, want)
		}
	}
}

func TestQRLines_DrawEveryModule(t *testing.T) {
	code, err := qr.Encode("http://localhost:8080/claim/CLM-7K2M-Q9XD-4HTR", qr.L, qr.Auto)
	if err != nil {
		t.Fatal(err)
	}
	lines := qrLines(code)
	size := code.Bounds().Dx()
	for y := range size {
		row := []rune(lines[(y+quietZone)/2])
		for x := range size {
			drawn := slices.Contains([]rune("█▀"), row[x+quietZone])
			if (y+quietZone)%2 == 1 {
				drawn = slices.Contains([]rune("█▄"), row[x+quietZone])
			}
			if want := code.At(x, y) == color.Black; drawn != want {
				t.Fatalf("module %d, %d is dark: %v, want %v", x, y, drawn, want)
			}
		}
	}
	if edge := lines[0] + lines[len(lines)-1]; strings.Trim(edge, " ") != "" {
		t.Errorf("no quiet zone: %q", edge)
	}
}

func TestLeft_SaysTheDayWhenItIsFar(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.Local)
	at := func(d time.Duration) float64 { return float64(now.Add(d).Unix()) }
	if got := left(at(90*time.Minute), now); got != "in 1h30m, at 13:30" {
		t.Error(got)
	}
	if got := left(at(7*24*time.Hour), now); got != "in 7d, at Sat 28 Nov 12:00" {
		t.Error(got)
	}
}
