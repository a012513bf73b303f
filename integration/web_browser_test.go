package integration

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	protocol "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/observe"
)

// shots is where the tests of the pages leave screenshots of all they saw, for
// people to look at.
const shots = "screenshots"

// plainHost is a name that browsers do not trust as they do localhost, and that
// the browser of the tests finds on this machine.
const plainHost = "berth.test"

var chromium struct {
	once sync.Once
	ctx  context.Context // of the browser; its tabs are children
	stop context.CancelFunc
	err  error
}

// startChromium starts the one browser of all tests. It runs without a sandbox
// of its own, since it is root here and shows nothing but Berth's pages, and asks
// nothing of the outside.
func startChromium() error {
	path, err := findChromium()
	if err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("lang", "en-GB"),
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("host-resolver-rules", "MAP "+plainHost+" 127.0.0.1"))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stopBrowser := chromedp.NewContext(allocator)
	chromium.ctx, chromium.stop = ctx, func() { stopBrowser(); stopAllocator() }
	if err := chromedp.Do(ctx); err != nil {
		return fmt.Errorf("start %s: %w", path, err)
	}
	return nil
}

func stopChromium() {
	if chromium.stop != nil {
		chromium.stop()
	}
}

func findChromium() (string, error) {
	for _, name := range []string{os.Getenv("BERTH_TEST_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no Chromium; run integration/chromium.sh, which installs it")
}

// Tab is one window of a browser, with cookies of its own.
type Tab struct {
	t      *testing.T
	ctx    context.Context
	base   string
	page   *network.Response // that was loaded last
	status int64             // of it
	said   *observe.Record

	scriptless bool
}

// browser opens a window on a server's pages. When the test ends, no script may
// have failed and nothing may have been against the page's policy.
func (h *Host) browser(t *testing.T) *Tab {
	t.Helper()
	chromium.once.Do(func() { chromium.err = startChromium() })
	require.NoError(t, chromium.err)
	ctx, stop := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, 6*patience)
	b := &Tab{t: t, ctx: ctx, base: h.base(), said: &observe.Record{}}
	b.do(chromedp.EmulateViewport(1280, 900))
	console := chromedp.Console(ctx)
	go func() {
		for message, err := range console {
			if err != nil {
				return
			}
			fmt.Fprintf(b.said, "%s: %s\n", message.Type, message.Text)
		}
	}()
	t.Cleanup(func() {
		cancel()
		stop()
		for line := range strings.Lines(b.said.String()) {
			if isFault(line) {
				t.Errorf("the browser's console says: %s", line)
			}
		}
	})
	return b
}

// isFault reports whether a line of the console is about a script that failed or
// something on a page that its policy forbids; to be kept out of a frame is none.
func isFault(line string) bool {
	broke := strings.HasPrefix(line, string(chromedp.ConsoleException)+":")
	return broke || (strings.Contains(line, "Content Security Policy") && !strings.Contains(line, "Framing"))
}

// withoutScripts turns the pages' scripts off.
func (b *Tab) withoutScripts() *Tab {
	b.t.Helper()
	b.scriptless = true
	b.turnScripts(false)
	return b
}

func (b *Tab) turnScripts(on bool) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !on})
	require.NoError(b.t, err)
}

func (b *Tab) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("the browser, at %s: %v\n%s", b.where(), err, b.text())
	}
}

// where is the address of the page.
func (b *Tab) where() string {
	at, err := chromedp.Run(b.ctx, chromedp.Location())
	if err != nil {
		return err.Error()
	}
	return at
}

// path is the path of the page's address.
func (b *Tab) path() string {
	b.t.Helper()
	u, err := url.Parse(b.where())
	require.NoError(b.t, err)
	return u.Path
}

// text is what a person reads on the page.
func (b *Tab) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(text, "\u00a0", " ")
}

// open loads a page by its path, or an address.
func (b *Tab) open(path string) *Tab {
	b.t.Helper()
	address := path
	if strings.HasPrefix(path, "/") {
		address = b.base + path
	}
	b.loads(chromedp.Navigate(address))
	return b
}

const (
	// networkChanged is the error of a request during which the networks of other tests come
	// and go beside the browser.
	networkChanged = "net::ERR_NETWORK_CHANGED"
	// drawnAnew is the error of a press when the page drew what is pressed anew, as something
	// happened, after it was found.
	drawnAnew = "Could not find node"
)

// loads does something that loads a page, again after the errors above.
func (b *Tab) loads(action chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	response, err := chromedp.RunResponse(b.ctx, action)
	for err != nil {
		switch {
		case strings.Contains(err.Error(), networkChanged):
			action = chromedp.Reload() // sends the same request, with its form
		case !strings.Contains(err.Error(), drawnAnew):
			b.t.Fatalf("the browser, at %s: %v\n%s", b.where(), err, b.text())
		}
		response, err = chromedp.RunResponse(b.ctx, action)
	}
	b.page, b.status = response, response.Status
}

// header returns a header of the page's response.
func (b *Tab) header(name string) string {
	for key, value := range b.page.Headers {
		if strings.EqualFold(key, name) {
			return fmt.Sprint(value)
		}
	}
	return ""
}

// named is the path of what can be pressed by a name: in the page's content, or
// in the menu above it.
func named(place, name string) string {
	return fmt.Sprintf(`//%s//*[self::button or self::a or self::summary][normalize-space()=%q]`, place, name)
}

// press presses a button or a link of the page that leads to another.
func (b *Tab) press(name string) {
	b.t.Helper()
	b.loads(chromedp.Click(named("main", name), chromedp.NodeVisible))
}

// menu presses what is above every page.
func (b *Tab) menu(name string) {
	b.t.Helper()
	b.loads(chromedp.Click(named("header", name), chromedp.NodeVisible))
}

// unfold opens what is folded away below a line.
func (b *Tab) unfold(name string) {
	b.t.Helper()
	b.do(chromedp.Click(named("main", name), chromedp.NodeVisible))
}

// fill types into fields, by their ids.
func (b *Tab) fill(idsAndTexts ...string) {
	b.t.Helper()
	for i := 0; i < len(idsAndTexts); i += 2 {
		field := chromedp.ID(idsAndTexts[i])
		// SendKeys would read the field's attributes while Clear still changes them.
		b.do(chromedp.Clear(field), chromedp.Focus(field), chromedp.KeyEvent(idsAndTexts[i+1]))
	}
}

// keys types without looking where.
func (b *Tab) keys(text string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(text))
}

// focused is the text of what has the focus.
func (b *Tab) focused() string {
	b.t.Helper()
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](`document.activeElement.textContent`))
	require.NoError(b.t, err)
	return text
}

// focusShows reports whether the focused element has a visible outline.
func (b *Tab) focusShows() bool {
	b.t.Helper()
	shows, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](
		`(({ outlineStyle, outlineWidth }) => outlineStyle === 'solid' && parseFloat(outlineWidth) >= 2)(getComputedStyle(document.activeElement))`))
	require.NoError(b.t, err)
	return shows
}

// sees waits until the page says all of it.
func (b *Tab) sees(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		eventually(b.t, "the page says "+text, func() error {
			if now := b.text(); !strings.Contains(now, text) {
				return fmt.Errorf("%s says:\n%s", b.where(), now)
			}
			return nil
		})
	}
}

// seesNot asserts what the page does not say.
func (b *Tab) seesNot(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		require.NotContains(b.t, b.text(), text)
	}
}

// is asserts where the browser is and with what status it came there.
func (b *Tab) is(status int, path string) {
	b.t.Helper()
	require.Equal(b.t, path, b.path(), b.text())
	require.EqualValues(b.t, status, b.status, b.text())
}

//go:embed testdata/web/audit.js
var audit string

// look takes the page's picture at phone and desktop width, light and dark, and
// checks each for what makes a page hard to use.
func (b *Tab) look(name string) {
	b.t.Helper()
	require.NoError(b.t, os.MkdirAll(shots, 0o755))
	for width, height := range map[int64]int64{390: 844, 1280: 900} {
		for _, scheme := range []string{"light", "dark"} {
			b.do(chromedp.EmulateViewport(width, height))
			_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
			})
			require.NoError(b.t, err)
			faults, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](audit))
			require.NoError(b.t, err)
			require.Empty(b.t, faults, "%s, %d wide, %s", name, width, scheme)
			require.Empty(b.t, b.serious(), "%s, %d wide, %s", name, width, scheme)
			b.shoot(fmt.Sprintf("%s-%d-%s.png", name, width, scheme))
		}
	}
	b.do(chromedp.EmulateViewport(1280, 900))
}

// axe returns the script of axe-core, which npm has.
var axe = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "axe")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	out, err := exec.Command("npm", "install", "--no-audit", "--no-fund", "--prefix", dir, "axe-core@4.14.1").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("npm install axe-core: %w: %s", err, out)
	}
	script, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
	return string(script), err
})

// serious returns what axe-core finds serious about the page. The page stays as it was drawn
// without scripts, while those of axe-core run.
func (b *Tab) serious() []string {
	b.t.Helper()
	script, err := axe()
	require.NoError(b.t, err)
	if b.scriptless {
		b.turnScripts(true)
		defer b.turnScripts(false)
	}
	found, err := chromedp.Run(b.ctx, chromedp.Evaluate[[]string](script+`;
		axe.run({ resultTypes: ['violations'] }).then((found) => found.violations
			.filter((fault) => ['serious', 'critical'].includes(fault.impact))
			.map((fault) => fault.id + ': ' + fault.help + ': ' + fault.nodes.map((node) => node.html.slice(0, 120)).join(' ')))`, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err)
	return found
}

// shoot writes a picture of the whole page.
func (b *Tab) shoot(file string) {
	b.t.Helper()
	yes := true
	shot, err := chromedp.Run(b.ctx, func(ctx context.Context, tab *chromedp.Target) (protocol.CaptureScreenshotResult, error) {
		return chromedp.Call(ctx, protocol.CaptureScreenshot, protocol.CaptureScreenshotParams{
			CaptureBeyondViewport: &yes, OptimizeForSpeed: &yes, Format: protocol.CaptureScreenshotFormatPng,
		})
	})
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(shots, file), shot.Data, 0o644))
}
