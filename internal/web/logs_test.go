package web

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
)

// logEnv is pages with the run log of a stack's service api in real files.
type logEnv struct {
	env  *env
	b    *visitor
	id   string
	path string // of the stack's page
	dir  datadir.Dir
	log  *logfile.File
}

// newLogEnv begins a log that is rotated at a size.
func newLogEnv(t *testing.T, max int64) *logEnv {
	t.Helper()
	dir := datadir.Dir(t.TempDir())
	pages := newEnv(t, func(c *Config) { c.Logs = dir })
	e := &logEnv{env: pages, dir: dir}
	e.b = pages.signedUp(ana)
	e.id = pages.owned(e.b, "guestbook")
	e.path = "/dashboard/stacks/" + e.id
	log, _, err := dir.OpenRunLog(e.id, "api", max)
	require.NoError(t, err)
	t.Cleanup(func() { _ = log.Close() })
	e.log = log
	return e
}

func (e *logEnv) write(lines ...string) {
	e.env.t.Helper()
	for _, line := range lines {
		require.NoError(e.env.t, e.log.Line(time.Now(), 1, []byte(line)))
	}
}

// numbered writes lines from 0 to n.
func (e *logEnv) numbered(n int) {
	for i := range n {
		e.write(fmt.Sprintf("line %d", i))
	}
}

var (
	logPattern  = regexp.MustCompile(`(?s)<pre id="log"[^>]*>(.*)</pre>\s*(<p class="none">|<div class="row apart">)`)
	linkPattern = regexp.MustCompile(`<a [^>]*href="([^"]+)"[^>]*>([^<]+)</a>`)
)

// logPage is what a page shows of a log.
type logPage struct {
	text  string            // as HTML
	links map[string]string // by their text
	body  string
}

func (e *logEnv) open(path string) logPage {
	e.env.t.Helper()
	r := e.b.get(path)
	require.Equal(e.env.t, http.StatusOK, r.status, r.body)
	found := logPattern.FindStringSubmatch(r.body)
	require.NotNil(e.env.t, found, r.body)
	p := logPage{found[1], map[string]string{}, r.body}
	for _, link := range linkPattern.FindAllStringSubmatch(r.body, -1) {
		if !strings.Contains(link[0], " hidden") {
			p.links[link[2]] = html.UnescapeString(link[1])
		}
	}
	return p
}

// press opens the page that a link leads to.
func (e *logEnv) press(p logPage, link string) logPage {
	e.env.t.Helper()
	require.Contains(e.env.t, p.links, link)
	address, _, _ := strings.Cut(p.links[link], "#logs")
	return e.open(address)
}

// find opens the page that the form leads to.
func (e *logEnv) find(q string) logPage {
	e.env.t.Helper()
	return e.open(e.path + "?" + url.Values{"service": {"api"}, "kind": {"run"}, "q": {q}}.Encode())
}

func between(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestLogs_GoBackThroughTheRotatedFileAndForth(t *testing.T) {
	e := newLogEnv(t, 20_000)
	e.numbered(500)
	require.FileExists(t, e.dir.Log(e.id, "api", "run")+".1")
	newest := e.open(e.path)
	require.Equal(t, between(300, 500), newest.text)
	require.NotContains(t, newest.links, "Newer lines")
	older := e.press(newest, "Older lines")
	require.Equal(t, between(100, 300), older.text)
	require.Contains(t, older.body, "New ones are added to the newest lines only.")
	require.Contains(t, older.body, "<title>Earlier logs of guestbook")
	e.write("another")
	require.Equal(t, between(100, 300), e.press(newest, "Older lines").text, "it keeps its place")
	newer := e.press(older, "Newer lines")
	require.Equal(t, between(300, 500), newer.text)
	require.Equal(t, between(301, 500)+"another\n", e.press(newer, "Newer lines").text, "the end is shown as the newest lines")
	require.Contains(t, e.press(older, "Newest lines").body, "/stream?kind=run")
}

func TestLogs_OfWhichAPlaceIsGoneSaySo(t *testing.T) {
	e := newLogEnv(t, 10_000)
	e.numbered(250)
	newest := e.open(e.path)
	for range 4 {
		e.numbered(250)
	}
	gone := e.press(newest, "Older lines")
	require.Empty(t, gone.text)
	require.Contains(t, gone.body, "are no longer kept")
	require.Equal(t, newest.text[strings.Index(newest.text, "line 240"):], between(240, 250))
	oldest := e.press(gone, "the oldest lines")
	require.NotContains(t, oldest.links, "Older lines")
	require.Contains(t, oldest.links, "Newer lines")
	require.Contains(t, oldest.body, "data-top")
	require.Contains(t, e.press(gone, "the newest").text, "line 249\n")
}

func TestLogs_FindPlainTextInAllThatIsKept(t *testing.T) {
	e := newLogEnv(t, 10_000)
	e.write("GET /a.b?x=[1] 200", "get /aXb?x=1")
	e.numbered(350)
	require.FileExists(t, e.dir.Log(e.id, "api", "run")+".1")
	require.Equal(t, "GET <mark>/A.b?X=[</mark>1] 200\n", strings.ReplaceAll(e.find("/A.b?X=[").text, "/a.b?x=[", "/A.b?X=["))
	p := e.find("LINE 34")
	require.Equal(t, "<mark>line 34</mark>\n<mark>line 34</mark>0\n", p.text[:len("<mark>line 34</mark>\n<mark>line 34</mark>0\n")])
	require.Contains(t, p.body, `value="LINE 34"`)
	require.Contains(t, p.body, "<title>“LINE 34” in the logs of guestbook")
	require.Contains(t, p.links["api build"], "q=LINE+34", "other logs are searched for the same")
	require.NotContains(t, e.press(p, "Clear the search").text, "<mark>")

	p = e.find("line ")
	require.Equal(t, 200, strings.Count(p.text, "<mark>line </mark>"))
	p = e.press(p, "Older lines")
	require.True(t, strings.HasPrefix(p.text, "<mark>line </mark>0\n"), p.text)
	require.Equal(t, 150, strings.Count(p.text, "<mark>line </mark>"))
	require.NotContains(t, p.links, "Older lines")
	require.Equal(t, 200, strings.Count(e.press(p, "Newer lines").text, "<mark>line </mark>"))
}

func TestLogs_FindWhatAPageShows(t *testing.T) {
	e := newLogEnv(t, 1<<20)
	e.write("\x1b[31mer\x1b[0mror: <b>\"bold\" & more</b>", "GRÖSSE 10 €\r", "cut \xe2\x82", "\x1b]0;a title\x07here", strings.Repeat("x", 60_000)+"needle")
	for q, want := range map[string]string{
		"error: <B>":     "<mark>error: &lt;b&gt;</mark>&#34;bold&#34; &amp; more&lt;/b&gt;\n",
		`"bold" &`:       "error: &lt;b&gt;<mark>&#34;bold&#34; &amp;</mark> more&lt;/b&gt;\n",
		"amp":            "",
		"[31m":           "",
		"grösse":         "<mark>GRÖSSE</mark> 10 €\n",
		"10 €":           "GRÖSSE <mark>10 €</mark>\n",
		"\uFFFD":         "cut <mark>\uFFFD</mark>\n",
		"a title":        "",
		"\x1b[1mhere":    "<mark>here</mark>\n",
		"xNEEDLE":        strings.Repeat("x", 59_999) + "<mark>xneedle</mark>\n",
		"<script>":       "",
		"</mark><script": "",
	} {
		p := e.find(q)
		require.Equal(t, want, p.text, q)
		require.Contains(t, p.body, `value="`+html.EscapeString(readable(q))+`"`)
		require.NotContains(t, p.body, "<script>")
	}
}

func TestLogs_SayThatNothingIsFound(t *testing.T) {
	e := newLogEnv(t, 1<<20)
	require.Contains(t, e.open(e.path).body, `data-empty="Nothing has been written yet."`)
	e.numbered(3)
	p := e.find("<none>")
	require.Empty(t, p.text)
	require.Contains(t, p.body, "No line that is kept of this log contains “&lt;none&gt;”.")
	require.Equal(t, between(0, 3), e.press(p, "Clear the search").text)
	for _, place := range []string{"before=zzz.12", "after=zzz.12"} { // in a log that was never there
		require.Contains(t, e.open(e.path+"?service=api&kind=run&"+place).body, "are no longer kept")
	}
	first := e.open(e.path + "?service=api&kind=run&before=" + e.page().From.String())
	require.Contains(t, first.body, "Nothing older is kept of this log.")
}

// page is what is kept of the log.
func (e *logEnv) page() logfile.Page {
	p, err := e.dir.ReadLog(&stack.Stack{ID: e.id}, "api", "run", logfile.Query{Lines: 1000})
	require.NoError(e.env.t, err)
	return p
}

func TestLogs_ASearchOfVeryMuchStopsAndGoesOn(t *testing.T) {
	e := newLogEnv(t, 1<<30)
	e.write("needle")
	_, err := e.log.Write([]byte(strings.Repeat(strings.Repeat("y", 1000)+"\n", 34_000)))
	require.NoError(t, err)
	p := e.find("needle")
	require.Empty(t, p.text)
	require.Contains(t, p.body, "older ones were not searched yet")
	require.Equal(t, "<mark>needle</mark>\n", e.press(p, "Older lines").text)
}

func TestLogs_RefuseWhatNobodySends(t *testing.T) {
	e := newLogEnv(t, 1<<20)
	for query, status := range map[string]int{
		"before=x": 400, "after=1.": 400, "q=" + strings.Repeat("%C3%A4", 201): 400, "q=" + strings.Repeat("%C3%A4", 200): 200,
		"service=none": 404, "kind=all": 404, "q=%FF%00%0A": 200,
	} {
		for _, page := range []string{"", "/log.txt"} {
			r := e.b.get(e.path + page + "?" + query)
			require.Equal(t, status, r.status, "%s: %s", query, r.body)
			require.Equal(t, status == 200 && page != "", r.header.Get("Content-Disposition") != "", query+page)
		}
	}
	require.NotContains(t, e.env.logged.String(), "error")
}

func TestLogs_AreDownloadedWhole(t *testing.T) {
	e := newLogEnv(t, 1_000_000)
	address := e.path + "/log.txt?service=api&kind=run"
	r := e.b.get(address)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Empty(t, r.body)

	e.write("\x1b[31mred\x1b[0m <b>")
	e.numbered(30_000)
	require.FileExists(t, e.dir.Log(e.id, "api", "run")+".1")
	p := e.open(e.path)
	require.Equal(t, e.path+"/log.txt?kind=run&service=api", p.links["Download the whole log"])
	r = e.b.get(address)
	require.Equal(t, `\x1b[31mred\x1b[0m <b>`+"\n"+between(0, 30_000), r.body)
	require.Equal(t, "text/plain; charset=utf-8", r.header.Get("Content-Type"))
	require.Equal(t, `attachment; filename=guestbook-api-run.log`, r.header.Get("Content-Disposition"))
	require.Equal(t, "sandbox", r.header.Get("Content-Security-Policy"))
	require.Empty(t, e.b.do(e.b.request(http.MethodHead, address, nil)).body)

	require.Equal(t, http.StatusNotFound, e.env.signedUp(bob).get(address).status)
	require.Contains(t, e.env.visitor().get(address).header.Get("Location"), "/signin")
}

func TestLogs_OfASearchGoOnWithTheLinesThatMatch(t *testing.T) {
	e := newLogEnv(t, 10_000)
	e.write("an error", "fine")
	f := e.b.follow(e.path + "/stream?service=api&kind=run&q=ERR")
	require.Equal(t, logBatch{HTML: "an <mark>err</mark>or\n", Anew: true}, f.lines())
	e.write("also fine")
	e.numbered(300) // rotates
	e.write("<ERR>")
	require.Equal(t, logBatch{HTML: "&lt;<mark>ERR</mark>&gt;\n"}, f.lines())
}

// A page on which lines came, of which the browser drops the first or which are sent
// again, still leads to what is before those that it shows.
func TestLogs_ThatComeSayWhereThoseBeforeThemAre(t *testing.T) {
	e := newLogEnv(t, 1<<20)
	e.write("line 0")
	p := e.open(e.path)
	require.NotContains(t, p.links, "Older lines")
	stream := e.path + "/stream?service=api&kind=run"
	f := e.b.follow(stream)
	require.Equal(t, logBatch{HTML: "line 0\n", Anew: true}, f.log(), "nothing is before them")
	for i := range 300 {
		e.write(fmt.Sprintf("line %d", i+1))
	}
	shown := 1
	for shown < 301 {
		b := f.log()
		before, _, _ := strings.Cut(string(b.Older), "#logs")
		require.Equal(t, between(max(0, shown-200), shown), e.open(before).text)
		shown += strings.Count(b.HTML, "\n")
	}
	again := e.b.follow(stream).log()
	require.Equal(t, between(101, 301), again.HTML)
	before, _, _ := strings.Cut(string(again.Older), "#logs")
	require.Equal(t, between(0, 101), e.open(before).text)
}

func TestLogs_OfAnEarlierPageStandStill(t *testing.T) {
	e := newLogEnv(t, 1<<20)
	e.numbered(300)
	older := e.press(e.open(e.path), "Older lines")
	stream := regexp.MustCompile(`data-stream="([^"]+)"`).FindStringSubmatch(older.body)
	f := e.b.follow(html.UnescapeString(stream[1]))
	e.write("new")
	e.b.post(e.path+"/restart/api", nil)
	for {
		event, data := f.next()
		require.NotEqual(t, "log", event)
		if strings.Contains(data, "restarting") {
			break
		}
	}
}

// A page that was open while the next build began shows that build alone.
func TestLogs_OfABuildBeginAnewWithTheNextOne(t *testing.T) {
	e := newLogEnv(t, 1<<20)
	build := func(text string) {
		log, err := logfile.Create(e.dir.Log(e.id, "api", "build"), 1<<20, "")
		require.NoError(t, err)
		_, err = log.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, log.Close())
	}
	build("first\nhal")
	require.Equal(t, "first\nhal\n", e.open(e.path+"?service=api&kind=build").text, "without scripts the last line is there too")
	f := e.b.follow(e.path + "/stream?service=api&kind=build")
	require.Equal(t, logBatch{HTML: "first\n", Anew: true}, f.lines())
	build("second\n")
	for got := f.lines(); got != (logBatch{HTML: "second\n", Anew: true}); got = f.lines() {
		require.Equal(t, logBatch{HTML: "hal\n"}, got)
	}
}

func BenchmarkSearch_OfALogOfTenMegabytes(b *testing.B) {
	path := b.TempDir() + "/log"
	line := "2026-11-26 07:00:00 INFO request done method=GET path=/api/entries status=200 took=3ms\n"
	require.NoError(b, os.WriteFile(path, []byte(strings.Repeat(line, 10_000_000/len(line))), 0o600))
	for _, q := range []string{"needle", "INFO needle", "é"} {
		s, err := newSearch(q)
		require.NoError(b, err)
		b.Run(q, func(b *testing.B) {
			for b.Loop() {
				_, err := logfile.Read(path, logfile.Query{Lines: logLines, Match: s.matcher()})
				require.NoError(b, err)
			}
		})
	}
}
