package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/a-h/templ"
	"github.com/gofiber/fiber/v2"

	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// logLines is how many lines of a log a page shows.
const logLines = 200

// logView is what a stack's page shows of a log: the newest lines, or those before or
// after a place in it.
type logView struct {
	Service string
	Kind    string // run or build
	Search  search
	Before  *logfile.Position
	After   *logfile.Position
	Page    logfile.Page
	Span    span // of the metrics on the same page
}

// chooseLog returns the part of a log that the request asks for, unread. If it names no
// log, that is the run log of the first process, or the build log of the first service
// while nothing was live yet.
func (w *pages) chooseLog(c *fiber.Ctx, st *stack.Stack) (l logView, err error) {
	l.Service, l.Kind = st.Generation.Services[0].Spec.Name, "build"
	process := slices.IndexFunc(st.Generation.Services, func(s stack.Service) bool { return !s.Spec.IsStatic() })
	if process >= 0 && !st.DeployedAt.IsZero() {
		l.Service, l.Kind = st.Generation.Services[process].Spec.Name, "run"
	}
	if l.Span, err = chooseSpan(c); err != nil {
		return l, err
	}
	l.Service, l.Kind = c.Query("service", l.Service), c.Query("kind", l.Kind)
	if (l.Kind != "run" && l.Kind != "build") || !slices.Contains(st.LogNames(l.Kind), l.Service) {
		return l, fiber.ErrNotFound
	}
	if l.Search, err = newSearch(c.Query("q")); err != nil {
		return l, err
	}
	if l.Before, err = parsePlace(c.Query("before")); err != nil {
		return l, err
	}
	l.After, err = parsePlace(c.Query("after"))
	return l, err
}

// errNoPlace is the answer to an address that was mistyped.
var errNoPlace = stack.NewError(stack.Invalid, "the address names no place in a log; go to the stack's page, and from there to older lines")

// parsePlace reads a place in a log from a query; nil for none.
func parsePlace(text string) (*logfile.Position, error) {
	if text == "" {
		return nil, nil
	}
	p, err := logfile.ParsePosition(text)
	if err != nil {
		return nil, errNoPlace
	}
	return &p, nil
}

// showLog returns the part of a log that the request asks for. Where the lines after a
// place reach the end of the log, it shows the newest lines instead, which go on.
func (w *pages) showLog(c *fiber.Ctx, st *stack.Stack) (logView, error) {
	l, err := w.chooseLog(c, st)
	if err != nil {
		return l, err
	}
	l.Page, err = w.readLog(w.server.Context(), st, l, false)
	if err == nil && l.After != nil && !l.Page.Newer && !l.Page.Lost {
		l.Before, l.After = nil, nil
		l.Page, err = w.readLog(w.server.Context(), st, l, false)
	}
	return l, err
}

// searchesAtOnce is how many logs are searched at once: a large one takes a core for a
// second.
const searchesAtOnce = 2

// readLog reads the lines of a view. A search waits for its turn.
func (w *pages) readLog(ctx context.Context, st *stack.Stack, l logView, whole bool) (logfile.Page, error) {
	if l.Search.on() {
		done, err := w.searches.Acquire(ctx, st.Owner, func(int) {})
		if err != nil {
			return logfile.Page{}, err
		}
		defer done()
	}
	q := logfile.Query{Lines: logLines, Before: l.Before, After: l.After, Match: l.Search.matcher(), Whole: whole}
	p, err := w.cfg.Logs.ReadLog(st, l.Service, l.Kind, q)
	if err != nil {
		return p, fmt.Errorf("read the logs of stack %s: %w", st.ID, err)
	}
	return p, nil
}

// downloadLog answers GET /dashboard/stacks/{id}/log.txt with all that is kept of a log.
func (w *pages) downloadLog(c *fiber.Ctx, _ store.Session, st *stack.Stack) error {
	l, err := w.chooseLog(c, st)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%s-%s.log", st.Name, l.Service, l.Kind)
	return w.server.SendDownload(c, fiber.MIMETextPlainCharsetUTF8, name, func(_ context.Context, out io.Writer) error {
		text := safetext.NewWriter(out)
		err := w.cfg.Logs.CopyLog(st, l.Service, l.Kind, text)
		return errors.Join(err, text.Close())
	})
}

// newest reports whether the view shows the end of the log, to which lines are added.
func (l logView) newest() bool { return l.Before == nil && l.After == nil }

// url returns the address of the view, on the stack's page or on a page below it.
func (l logView) url(id string, below ...string) templ.SafeURL {
	q := url.Values{"service": {l.Service}, "kind": {l.Kind}}
	if l.Search.on() {
		q.Set("q", l.Search.text)
	}
	if l.Before != nil {
		q.Set("before", l.Before.String())
	}
	if l.After != nil {
		q.Set("after", l.After.String())
	}
	if l.Span != spans[0] {
		q.Set("range", l.Span.Since)
	}
	return stackURL(id, below...) + templ.SafeURL("?"+q.Encode())
}

// Views that links lead to from this one.
func (l logView) atEnd() logView    { l.Before, l.After = nil, nil; return l }
func (l logView) atStart() logView  { l.Before, l.After = nil, &logfile.Position{}; return l }
func (l logView) older() logView    { l.Before, l.After = &l.Page.From, nil; return l }
func (l logView) newer() logView    { l.Before, l.After = nil, &l.Page.End; return l }
func (l logView) unsought() logView { l = l.atEnd(); l.Search = search{}; return l }

// of returns the view of the end of another log.
func (l logView) of(service, kind string) logView {
	l = l.atEnd()
	l.Service, l.Kind = service, kind
	return l
}

// over returns the view beside the metrics of another time.
func (l logView) over(s span) logView { l.Span = s; return l }

// with returns the view with the lines that were read for it.
func (l logView) with(p logfile.Page) logView { l.Page = p; return l }

// batch returns the lines that match for a stack's page that is open.
func (l logView) batch(ctx context.Context, id string, anew bool) (logBatch, error) {
	var b strings.Builder
	if err := l.Search.show(l.Page.Lines).Render(ctx, &b); err != nil {
		return logBatch{}, err
	}
	batch := logBatch{HTML: b.String(), Anew: anew}
	if l.Page.Older {
		batch.Older = l.older().url(id) + "#logs"
	}
	return batch, nil
}

// label names the log for people who do not see its tab.
func (l logView) label() string { return "Log of " + l.Service + ", " + l.Kind }

// title returns the title of the page of a stack that shows the view.
func (l logView) title(stack string) string {
	switch {
	case l.Search.on():
		return "“" + l.Search.text + "” in the logs of " + stack
	case !l.newest():
		return "Earlier logs of " + stack
	}
	return stack
}

// empty returns the text shown while the log, or what a search finds of it, has no lines.
func (l logView) empty() string {
	switch {
	case l.Search.on():
		return "No line contains “" + l.Search.text + "”."
	case l.Kind == "build":
		return "Nothing has been built yet, or this service needs no build."
	}
	return "Nothing has been written yet."
}

// none says that a view other than that of a whole log has no lines; "" if it has some.
func (l logView) none() string {
	switch {
	case len(l.Page.Lines) > 0 || l.Page.Lost:
		return ""
	case l.Search.on() && l.Page.Older && l.newest():
		return "None of the newest lines contains “" + l.Search.text + "”, and older ones were not searched yet."
	case l.Search.on() && l.newest():
		return "No line that is kept of this log contains “" + l.Search.text + "”. Check the spelling, or search another log."
	case l.Search.on():
		return "No line here contains “" + l.Search.text + "”."
	case !l.newest():
		return "Nothing older is kept of this log."
	}
	return ""
}

// search is a text that is looked for in a log, as it is but for upper and lower case.
// The zero search finds everything.
type search struct {
	text    string
	pattern *regexp.Regexp // nil for the zero search
}

// mostSought is how many characters a search has at most.
const mostSought = 200

var errLongSearch = stack.NewError(stack.Invalid, fmt.Sprintf("a search has %d characters at most; search for a shorter text", mostSought))

// newSearch returns a search for a text, which is compared with what a page shows.
func newSearch(text string) (search, error) {
	text = readable(text)
	if utf8.RuneCountInString(text) > mostSought {
		return search{}, errLongSearch
	}
	if text == "" {
		return search{}, nil
	}
	pattern, err := regexp.Compile("(?i)" + regexp.QuoteMeta(text))
	if err != nil {
		return search{}, fmt.Errorf("search for %q: %w", text, err)
	}
	return search{text, pattern}, nil
}

// on reports whether there is something to look for.
func (s search) on() bool { return s.pattern != nil }

// matcher returns what tells the lines of a log that match; nil if all do.
func (s search) matcher() func(line string) bool {
	if !s.on() {
		return nil
	}
	return func(line string) bool { return s.pattern.MatchString(readable(line)) }
}

// mark returns a text as HTML, in which what was looked for is marked.
func (s search) mark(text string) string {
	if !s.on() {
		return templ.EscapeString(text)
	}
	var b strings.Builder
	at := 0
	for _, hit := range s.pattern.FindAllStringIndex(text, -1) {
		b.WriteString(templ.EscapeString(text[at:hit[0]]) + "<mark>" + templ.EscapeString(text[hit[0]:hit[1]]) + "</mark>")
		at = hit[1]
	}
	b.WriteString(templ.EscapeString(text[at:]))
	return b.String()
}

// show renders the lines that match, each with an end.
func (s search) show(lines []logfile.Line) templ.Component {
	return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
		matches := s.matcher()
		for _, line := range lines {
			if matches != nil && !matches(line.Text) {
				continue
			}
			if _, err := io.WriteString(w, s.mark(readable(line.Text))+"\n"); err != nil {
				return err
			}
		}
		return nil
	})
}
