package api

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/fair"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

const testMaxUpload = 1_000_000

var testLimits = stack.Limits{
	TTL:          time.Hour,
	TTLMin:       15 * time.Minute,
	TTLMax:       24 * time.Hour,
	ExpiryNotice: 5 * time.Minute,
	Retention:    7 * 24 * time.Hour,
	Crashes:      5,
	CrashWindow:  10 * time.Minute,
}

// env is an API on an in-memory listener, with the real store and source packages and a
// host that records stacks without building them.
type env struct {
	t       *testing.T
	api     *API
	store   *store.Store
	host    *fakeHost
	limiter *fakeLimiter
	refused *fakeLimiter
	claims  *fakeLimiter
	checks  *fakeLimiter
	longer  *fakeLimiter // of extensions
	metrics *fakeMetrics
	client  *http.Client
	ln      *fasthttputil.InmemoryListener
	logged  *logBook
}

func newEnv(t *testing.T, change ...func(*Config)) *env {
	t.Helper()
	dir := t.TempDir()
	logged := &logBook{}
	log := slog.New(slog.NewTextHandler(logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	key := auth.Key{1}
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "db"), Sealer: auth.NewSealer(key), Log: log})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	e := &env{
		t:       t,
		store:   db,
		host:    &fakeHost{store: db, dir: dir, latest: map[string]stack.Generation{}},
		limiter: &fakeLimiter{left: 1000},
		refused: &fakeLimiter{left: 1000},
		claims:  &fakeLimiter{left: 1000},
		checks:  &fakeLimiter{left: 1000},
		longer:  &fakeLimiter{left: 1000},
		metrics: &fakeMetrics{},
		ln:      fasthttputil.NewInmemoryListener(),
		logged:  logged,
	}
	base, err := url.Parse("http://localhost:8080")
	require.NoError(t, err)
	cfg := Config{
		Store: db, Host: e.host, Admission: e.host, Dir: e.host, Metrics: e.metrics, Creates: e.limiter, Refusals: e.refused, Codes: e.claims, Validations: e.checks, Extensions: e.longer, Key: key, Log: log,
		Claims:       account.Claims{Stacks: db, Host: e.host, Key: key},
		URLs:         stack.URLs{Base: base, AppsDomain: "localhost"},
		Limits:       testLimits,
		MaxUpload:    testMaxUpload,
		Unpacked:     archive.Limits{MaxUnpacked: 10 << 20, MaxEntries: 1000},
		Wait:         time.Minute,
		Unpacks:      fair.NewQueue(8),
		UnpackWait:   time.Minute,
		CallerHeader: "X-Test-Client",
	}
	for _, c := range change {
		c(&cfg)
	}
	e.api = New(cfg)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logged)
		}
	})
	e.serve()
	return e
}

func (e *env) serve() {
	e.client = &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return e.ln.Dial() },
	}}
	done := make(chan error, 1)
	go func() { done <- e.api.Serve(e.ln) }()
	e.t.Cleanup(func() {
		e.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(e.t, e.api.Shutdown(ctx))
		require.NoError(e.t, <-done)
	})
}

// reply is a whole response.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

func (e *env) do(req *http.Request) reply {
	e.t.Helper()
	res, err := e.client.Do(req)
	require.NoError(e.t, err)
	return readReply(e.t, res)
}

func readReply(t *testing.T, res *http.Response) reply {
	t.Helper()
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return reply{t, res.StatusCode, res.Header, string(body)}
}

func (e *env) send(method, path, token string, body io.Reader, header ...string) reply {
	e.t.Helper()
	return e.do(newRequest(e.t, method, path, token, body, header...))
}

func newRequest(t *testing.T, method, path, token string, body io.Reader, header ...string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://localhost:8080"+path, body)
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	return req
}

// create deploys a page and returns the response's fields.
func (e *env) create(token string, parts ...part) map[string]any {
	e.t.Helper()
	if len(parts) == 0 {
		parts = []part{sourcePart(site(e.t))}
	}
	body, contentType := makeForm(e.t, parts...)
	r := e.send("POST", "/v0/stacks", token, body, "Content-Type", contentType)
	require.Equal(e.t, 201, r.status, r.body)
	return r.json()
}

// refusedUpload sends a form and returns the error's text; nothing of the
// upload may be left.
func (e *env) refusedUpload(status int, parts ...part) string {
	e.t.Helper()
	body, contentType := makeForm(e.t, parts...)
	r := e.send("POST", "/v0/stacks", "", body, "Content-Type", contentType)
	require.Equal(e.t, status, r.status, r.body)
	e.nothingLeft()
	return r.detail()
}

// nothingLeft waits until no files of a request are left, which may be a moment after its
// answer has arrived.
func (e *env) nothingLeft() {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return len(e.host.uploads(e.t)) == 0 }, time.Minute, time.Millisecond, "files of an upload are left")
}

// account makes an account and returns its API key.
func (e *env) account(email string) (id, key string) {
	e.t.Helper()
	key = auth.NewAPIKey()
	account, err := e.store.CreateAccount(e.t.Context(), email, "", store.Key{Hash: auth.Hash(key)})
	require.NoError(e.t, err)
	return account.ID, key
}

func (r reply) json() map[string]any {
	r.t.Helper()
	var v map[string]any
	require.NoError(r.t, json.Unmarshal([]byte(r.body), &v), r.body)
	return v
}

// detail checks the shape of an error and returns its text.
func (r reply) detail() string {
	r.t.Helper()
	require.Equal(r.t, "application/json", r.header.Get("Content-Type"), r.body)
	v := r.json()
	require.Len(r.t, v, 1, r.body)
	require.IsType(r.t, "", v["detail"], r.body)
	return v["detail"].(string)
}

// part is one part of a multipart form.
type part struct {
	name, file string
	content    []byte
}

func sourcePart(archive []byte) part     { return part{"source", "app.tar.gz", archive} }
func textPart(name, content string) part { return part{name, "", []byte(content)} }

func makeForm(t *testing.T, parts ...part) (io.Reader, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		make := func() (io.Writer, error) { return w.CreateFormField(p.name) }
		if p.file != "" {
			make = func() (io.Writer, error) { return w.CreateFormFile(p.name, p.file) }
		}
		out, err := make()
		require.NoError(t, err)
		_, err = out.Write(p.content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b, w.FormDataContentType()
}

// site is an archive of one page.
func site(t *testing.T) []byte {
	t.Helper()
	return tarOf(t, "index.html", "<h1>hello</h1>")
}

func tarOf(t *testing.T, nameAndContent ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(nameAndContent); i += 2 {
		content := nameAndContent[i+1]
		require.NoError(t, w.WriteHeader(&tar.Header{Name: nameAndContent[i], Mode: 0o644, Size: int64(len(content))}))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// change applies a trigger of the lifecycle to a stack.
func (e *env) change(id string, fn func(*stack.Stack) ([]stack.Event, error)) {
	e.t.Helper()
	_, err := e.store.Update(e.t.Context(), id, fn)
	require.NoError(e.t, err)
}

// live ends a build of a stack.
func (e *env) live(id string) {
	e.t.Helper()
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		return s.Deployed(e.host.uploaded(id), e.api.cfg.URLs, stack.Now())
	})
}

// fail ends a build of a stack.
func (e *env) fail(id string) {
	e.t.Helper()
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) { return s.DeployFailed("it broke", stack.Now()) })
}

// restored ends the restore of a stack.
func (e *env) restored(id string) {
	e.t.Helper()
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) { return s.Restored(e.api.cfg.URLs) })
}

// expire ends the time of a stack.
func (e *env) expire(id string) {
	e.t.Helper()
	e.change(id, func(s *stack.Stack) ([]stack.Event, error) {
		s.ExpiresAt = stack.Now()
		return s.Expire(e.api.cfg.URLs, e.api.cfg.Limits, stack.Now())
	})
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

// wire is one connection to the API, byte by byte.
type wire struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (e *env) dial() *wire {
	e.t.Helper()
	c, err := e.ln.Dial()
	require.NoError(e.t, err)
	e.t.Cleanup(func() { c.Close() })
	return &wire{e.t, c, bufio.NewReader(c)}
}

func (w *wire) printf(format string, args ...any) {
	w.t.Helper()
	_, err := fmt.Fprintf(w.conn, format, args...)
	require.NoError(w.t, err)
}

func (w *wire) reply() reply {
	w.t.Helper()
	res, err := http.ReadResponse(w.in, nil)
	require.NoError(w.t, err)
	return readReply(w.t, res)
}

// closed waits for the end of the connection.
func (w *wire) closed() {
	w.t.Helper()
	rest, err := io.ReadAll(w.in)
	require.NoError(w.t, err)
	require.Empty(w.t, rest)
}
