package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/logfile"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

const (
	ana      = "ana@example.com"
	bob      = "bob@example.com"
	password = "correct horse"
)

// env is the pages on an in-memory listener, with real accounts, a real store and a
// host that only records.
type env struct {
	t       *testing.T
	web     *pages
	store   *store.Store
	host    *fakeHost
	hooks   *fakeWebhooks
	metrics *fakeMetrics
	client  *http.Client
	ln      *fasthttputil.InmemoryListener
	served  chan error
	key     auth.Key
	urls    stack.URLs
	logged  *logBook
}

func newEnv(t *testing.T, change ...func(*Config)) *env {
	t.Helper()
	e := &env{t: t, key: auth.Key{1}, hooks: &fakeWebhooks{}, metrics: &fakeMetrics{}, ln: fasthttputil.NewInmemoryListener(), served: make(chan error, 1), logged: &logBook{}}
	log := slog.New(slog.NewTextHandler(e.logged, nil))
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "db"), Sealer: auth.NewSealer(e.key), Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	e.store, e.host = db, &fakeHost{store: db, lines: make(chan []string, 10), dir: t.TempDir()}
	base, err := url.Parse("http://localhost:8080")
	require.NoError(t, err)
	cfg := Config{
		Accounts: account.New(account.Config{
			Store: db, Passwords: auth.NewPasswords(2), Forms: unlimited{}, Codes: unlimited{},
			Claims: account.Claims{Stacks: db, Host: e.host, Key: e.key},
		}),
		Host: e.host, Logs: e.host, Sources: e.host, Metrics: e.metrics, Store: db, Webhooks: e.hooks, Key: e.key, Log: log,
		URLs:         stack.URLs{Base: base, AppsDomain: "localhost"},
		CallerHeader: "X-Test-Client",
	}
	for _, c := range change {
		c(&cfg)
	}
	e.web, e.urls = newPages(cfg), cfg.URLs
	e.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return e.ln.Dial() },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	go func() { e.served <- e.web.server.Serve(e.ln) }()
	t.Cleanup(e.end)
	return e
}

// secure is an installation behind TLS.
func secure(c *Config) { c.URLs.Base = &url.URL{Scheme: "https", Host: "berth.example.com"} }

func (e *env) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e.client.CloseIdleConnections()
	require.NoError(e.t, e.web.server.Shutdown(ctx))
	require.NoError(e.t, <-e.served)
}

// stack makes a live stack that nobody owns and returns its claim code.
func (e *env) stack(name string) (id, code string) {
	e.t.Helper()
	code = auth.NewClaimCode()
	s := stack.New(name, []stack.Spec{
		{Name: "web", Label: "static", Runtime: stack.Runtime{Name: stack.Static}},
		{Name: "api", Label: "node", Runtime: stack.Runtime{Name: "node", Version: "22"}},
	}, stack.Now())
	s.ClaimCodeHash, s.ManageTokenHash = e.key.HashClaimCode(code), auth.Hash(auth.NewManageToken())
	s.ExpiresAt = stack.Now().Add(time.Hour)
	require.NoError(e.t, e.store.Create(e.t.Context(), s, []stack.Event{s.Created()}))
	e.change(s.ID, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Deployed(s.Generation, e.urls, stack.Now())
	})
	return s.ID, code
}

// owned makes a live stack of the account that b is signed in to.
func (e *env) owned(b *visitor, name string) (id string) {
	e.t.Helper()
	id, code := e.stack(name)
	r := b.post("/claim/"+code, nil)
	require.Equal(e.t, http.StatusSeeOther, r.status, r.body)
	return id
}

func (e *env) change(id string, fn func(*stack.Stack) ([]stack.Event, error)) {
	e.t.Helper()
	_, err := e.store.Update(e.t.Context(), id, fn)
	require.NoError(e.t, err)
}

// visitor is a browser: it keeps cookies and submits the hidden fields of forms.
type visitor struct {
	t       *testing.T
	client  *http.Client
	cookies map[string]string
	set     []*http.Cookie // with the last answer
}

func (e *env) visitor() *visitor {
	return &visitor{t: e.t, client: e.client, cookies: map[string]string{}}
}

// signedUp is a browser that is signed in to a new account.
func (e *env) signedUp(email string) *visitor {
	e.t.Helper()
	b := e.visitor()
	r := b.post("/signup", url.Values{"email": {email}, "password": {password}})
	require.Equal(e.t, http.StatusSeeOther, r.status, r.body)
	return b
}

// reply is a whole answer.
type reply struct {
	status int
	header http.Header
	body   string
}

func (b *visitor) send(req *http.Request) *http.Response {
	b.t.Helper()
	for name, value := range b.cookies {
		req.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	res, err := b.client.Do(req)
	require.NoError(b.t, err)
	b.set = res.Cookies()
	for _, c := range b.set {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 || (!c.Expires.IsZero() && c.Expires.Before(time.Now())) {
			delete(b.cookies, c.Name)
		}
	}
	return res
}

func (b *visitor) do(req *http.Request) reply {
	b.t.Helper()
	res := b.send(req)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(b.t, err)
	return reply{res.StatusCode, res.Header, string(body)}
}

func (b *visitor) request(method, path string, body io.Reader) *http.Request {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://localhost:8080"+path, body)
	require.NoError(b.t, err)
	return req
}

func (b *visitor) get(path string) reply {
	b.t.Helper()
	return b.do(b.request(http.MethodGet, path, nil))
}

// postAs sends a form with the given token.
func (b *visitor) postAs(token, path string, form url.Values) reply {
	b.t.Helper()
	sent := url.Values{tokenField: {token}}
	for name, values := range form {
		sent[name] = values
	}
	req := b.request(http.MethodPost, path, strings.NewReader(sent.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

// post sends a form with the token of a page that was read just before.
func (b *visitor) post(path string, form url.Values) reply {
	b.t.Helper()
	return b.postAs(b.token(), path, form)
}

var tokenPattern = regexp.MustCompile(`name="token" value="([^"]+)"`)

// token returns the token in the forms of a page.
func (b *visitor) token() string {
	b.t.Helper()
	found := tokenPattern.FindStringSubmatch(b.get("/claim").body)
	require.NotNil(b.t, found)
	return found[1]
}

// unlimited admits everything.
type unlimited struct{}

func (unlimited) Allow(context.Context, string) bool          { return true }
func (unlimited) Take(context.Context, string) (func(), bool) { return func() {}, true }

// fakeHost changes rows as the supervisor does, and runs nothing.
type fakeHost struct {
	store *store.Store
	lines chan []string // that a followed log gets
	dir   string        // of sources

	mu       sync.Mutex
	restarts []string
	outdated []string
	next     stack.Generation // of the last change of variables
}

func (h *fakeHost) Claim(ctx context.Context, id, owner, email string) (*stack.Stack, error) {
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) { return s.Claim(owner, email, stack.Now()) })
}

func (h *fakeHost) Restart(ctx context.Context, id, service string) (*stack.Stack, error) {
	h.mu.Lock()
	h.restarts = append(h.restarts, id+" "+service)
	h.mu.Unlock()
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) { return s.RestartService(service) })
}

func (h *fakeHost) Outdated(context.Context, string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.outdated
}

func (h *fakeHost) ReadData(_ context.Context, _, service string, stop bool, w io.Writer) error {
	_, err := fmt.Fprintf(w, "data of %s, stopped: %t", service, stop)
	return err
}

func (h *fakeHost) ReplaceData(ctx context.Context, id, service string, data io.Reader) (*stack.Stack, error) {
	text, err := io.ReadAll(data)
	if err != nil || len(text) < 10 {
		return nil, stack.NewError(stack.Unprocessable, "the archive is cut short")
	}
	h.mu.Lock()
	h.restarts = append(h.restarts, fmt.Sprintf("%s has %d bytes", service, len(text)))
	h.mu.Unlock()
	return h.store.Get(ctx, id)
}

func (h *fakeHost) Rebuild(ctx context.Context, id string) (*stack.Stack, error) {
	return h.store.Update(ctx, id, func(s *stack.Stack) ([]stack.Event, error) {
		_, events, err := s.Rebuild(stack.Now())
		return events, err
	})
}

func (h *fakeHost) Delete(ctx context.Context, id string) error {
	_, err := h.store.Update(ctx, id, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	return err
}

func (h *fakeHost) ReadLog(_ *stack.Stack, service, kind string, _ logfile.Query) (logfile.Page, error) {
	return logfile.Page{Lines: newsOf("\x1b[32mfrom\x1b[0m the " + kind + " log of " + service).Lines}, nil
}

func (h *fakeHost) CopyLog(_ *stack.Stack, service, kind string, out io.Writer) error {
	_, err := fmt.Fprintf(out, "the %s log of %s\n", kind, service)
	return err
}

// newsOf returns news of a log with these lines.
func newsOf(lines ...string) (n logfile.News) {
	for _, line := range lines {
		n.Lines = append(n.Lines, logfile.Line{Text: line})
	}
	return n
}

func (h *fakeHost) FollowLogs(ctx context.Context, _ *stack.Stack, _, _ string, _ logfile.View, emit func(logfile.News) error) error {
	for {
		select {
		case lines := <-h.lines:
			if err := emit(newsOf(lines...)); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// fakeWebhooks returns the same result for every delivery and records the calls.
type fakeWebhooks struct {
	answer store.Delivery
	asked  []string
	err    error
}

func (f *fakeWebhooks) Resend(_ context.Context, stackID string, id int64) (store.Delivery, error) {
	f.asked = append(f.asked, fmt.Sprintf("resend %s %d", stackID, id))
	return f.answer, f.err
}

func (f *fakeWebhooks) Test(_ context.Context, stackID string) (store.Delivery, error) {
	f.asked = append(f.asked, "test "+stackID)
	return f.answer, f.err
}

// logBook is a log that tests read.
type logBook struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
