package integration

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// secret is something that the server issued or was trusted with, and how
// often the API itself may show it: once in the answer that issues it, or never.
type secret struct {
	name, value string
	shown       int
}

// needles are the forms in which a secret would be found: as it is, in other
// spellings, in hex, and in base64 wherever in a text it begins.
func (s secret) needles() []string {
	spellings := []string{s.value, strings.ToLower(s.value), strings.ToUpper(s.value)}
	if code, isCode := strings.CutPrefix(s.value, "CLM-"); isCode {
		bare := strings.ReplaceAll(code, "-", "")
		spellings = append(spellings, code, strings.ToLower(code), bare, strings.ToLower(bare))
	} else if _, body, prefixed := cutLast(s.value, "_"); prefixed {
		spellings = append(spellings, body)
	}
	var all []string
	for _, text := range spellings {
		all = append(all, text, hex.EncodeToString([]byte(text)), strings.ToUpper(hex.EncodeToString([]byte(text))))
		for before := range 3 {
			// The characters at both ends depend on what stands beside the text.
			encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, before), text...))
			middle := encoded[(before*8+5)/6 : (before+len(text))*8/6]
			all = append(all, middle, strings.NewReplacer("+", "-", "/", "_").Replace(middle))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// in reports whether the text holds the secret in any form.
func (s secret) in(text []byte) bool {
	return slices.ContainsFunc(s.needles(), func(n string) bool { return bytes.Contains(text, []byte(n)) })
}

// answered is one response of the API's host: head, body, and what was asked.
type answered struct{ request, response string }

// transcript keeps what the API's host answers. What services answer is their
// own.
type transcript struct {
	base     string
	mu       sync.Mutex
	answered []answered
}

// RoundTrip keeps the answer.
func (w watched) RoundTrip(req *http.Request) (*http.Response, error) {
	r := w.record
	res, err := w.RoundTripper.RoundTrip(req)
	if err != nil || req.URL.Host != r.base {
		return res, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	var head bytes.Buffer
	_ = res.Header.Write(&head)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = append(r.answered, answered{req.Method + " " + req.URL.String(), head.String() + string(body)})
	return res, nil
}

// watch keeps what the API answers to a client from here on.
func (r *transcript) watch(client *http.Client) {
	client.Transport = watched{client.Transport, r}
}

// watched is a RoundTripper whose answers a transcript keeps.
type watched struct {
	http.RoundTripper
	record *transcript
}

// wholeLife goes through everything that issues or takes a secret, and through
// what reads of it could come out of, and returns the secrets. A new kind of
// secret belongs here.
func wholeLife(t *testing.T, h *Host, record *transcript) []secret {
	t.Helper()
	const literal = "a-literal-variable-0123456789"
	const hooked = `{name: app, notify: {webhook: "http://127.0.0.1:9/hook"}, services: [{name: web, runtime: node, build: "true", start: node server.js,
		env: {MADE: {generate: true}, LITERAL: ` + literal + `}}]}`
	key := h.accountCreate(t, "ana@example.com")
	secrets := []secret{{"the API key", key, 0}, {"a literal variable", literal, 0}}

	st := h.live(t, program(t), manifest(hooked))
	made := h.environ(t, st, "web")
	require.Equal(t, literal, made["LITERAL"])
	secrets = append(secrets,
		secret{"the manage token", st.ManageToken, 1},
		secret{"the claim code", st.ClaimCode, 1},
		secret{"the webhook's secret", st.WebhookSecret, 1},
		secret{"a generated variable", made["MADE"], 0})

	later := h.live(t, page("x"), nil)
	body, contentType := form(t, archive(t, page("y")), manifest(`{notify: {webhook: "http://127.0.0.1:9/hook"}, services: [{name: web, runtime: static}]}`))
	r := h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+later.ID+"/deploy?wait=true", bytes.NewReader(body),
		"Content-Type", contentType, "Authorization", "Bearer "+later.ManageToken))
	require.Equal(t, http.StatusOK, r.status, r.body)
	secrets = append(secrets,
		secret{"another manage token", later.ManageToken, 1},
		secret{"another claim code", later.ClaimCode, 1},
		secret{"the secret of a webhook that came later", r.stack(t).WebhookSecret, 1})

	secrets = append(secrets, h.lifeOfAPerson(t, record)...)
	owned := h.owned(t, key, page("z"))
	secrets = append(secrets, secret{"the manage token of an owned stack", owned.ManageToken, 1})

	repeatable := h.post(t, archive(t, page("k")), nil, "?wait=true", "Idempotency-Key", "a-key-of-mine")
	require.Equal(t, http.StatusCreated, repeatable.status, repeatable.body)
	secrets = append(secrets,
		secret{"the manage token of a create that may be repeated", repeatable.stack(t).ManageToken, 1},
		secret{"its claim code", repeatable.stack(t).ClaimCode, 1})

	require.Equal(t, http.StatusOK, h.patch(t, st, `{"ttl": "2h"}`).status)
	require.Equal(t, 2, h.redeploy(t, st, program(t).plus(Tree{"more.txt": "x"}), manifest(hooked)).Generation)
	h.get(t, st.ClaimURL) // as a human opens it
	require.Equal(t, http.StatusOK, h.claim(t, key, strings.ToLower(st.ClaimCode), "").status)
	h.claim(t, key, st.ClaimCode, "").refused(t, http.StatusNotFound)
	h.probeReads(t, key, st, later, owned)
	h.kill(t)
	h.run(t)
	h.probeReads(t, key, st, later, owned)
	return secrets
}

// lifeOfAPerson signs somebody up, in and out, and changes all that they have.
func (h *Host) lifeOfAPerson(t *testing.T, record *transcript) []secret {
	t.Helper()
	const email, first, second = "eva@example.com", "a password of eva's", "another of eva's passwords"
	p := h.visitor(t)
	record.watch(p.client)
	require.Equal(t, http.StatusSeeOther, p.submit(t, "/signup", "/signup", Fields{"email": email, "password": first}).status)
	secrets := []secret{
		{"a password", first, 0},
		{"a password that came later", second, 0},
		{"the session of a new account", p.session(t), 1},
		{"the API key of a new account", p.shownKey(t, "/dashboard"), 1},
	}
	const page = "/dashboard/account"
	require.Equal(t, http.StatusSeeOther, p.submit(t, page, page+"/key", nil).status)
	secrets = append(secrets, secret{"an API key that was rotated", p.shownKey(t, page), 1})
	require.Equal(t, http.StatusSeeOther, p.submit(t, page, page+"/password", Fields{"current": first, "next": second}).status)
	require.Equal(t, http.StatusSeeOther, p.submit(t, page, "/signout", nil).status)
	require.GreaterOrEqual(t, p.signIn(t, email, first).status, 400)
	require.Equal(t, http.StatusSeeOther, p.signIn(t, email, second).status)
	require.Equal(t, http.StatusOK, p.open(t, "/dashboard").status)
	return append(secrets, secret{"a session", p.session(t), 1})
}

// session is the cookie of somebody who is signed in.
func (p *Person) session(t *testing.T) string {
	t.Helper()
	base, err := url.Parse(p.h.base())
	require.NoError(t, err)
	for _, c := range p.client.Jar.Cookies(base) {
		if c.Name == "berth_session" {
			return c.Value
		}
	}
	t.Fatal("no session")
	return ""
}

// shownKey is the API key that a page shows, once.
func (p *Person) shownKey(t *testing.T, page string) string {
	t.Helper()
	key := regexp.MustCompile(`as_live_[0-9A-Za-z]{20,}`).FindString(p.open(t, page).body)
	require.NotEmpty(t, key, "no key on %s", page)
	return key
}

// probeReads asks for all that can be read of stacks, rightly and wrongly.
func (h *Host) probeReads(t *testing.T, key string, stacks ...*Stack) {
	t.Helper()
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/me").status)
	for _, st := range stacks {
		for _, path := range []string{"", "/events", "/logs", "/logs?kind=build", "/logs?service=none", "/nothing"} {
			h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+path)
			h.getAs(t, key, "/v0/stacks/"+st.ID+path)
			h.getAs(t, st.ManageToken+"x", "/v0/stacks/"+st.ID+path)
		}
		h.getAs(t, st.ManageToken, "/v0/me").refused(t, http.StatusUnauthorized)
		h.getAs(t, stacks[0].ManageToken, "/v0/stacks/"+stacks[len(stacks)-1].ID)
		h.claim(t, key, "CLM-0000-0000-0000", "")
	}
}

// No secret is on the disk, in the server's log, or in any answer but the one
// that issues it.
func TestSecrets_AreNowhereToBeFound(t *testing.T) {
	t.Parallel()
	h := start(t)
	transcript := &transcript{base: strings.TrimPrefix(h.base(), "http://")}
	transcript.watch(h.client)
	secrets := wholeLife(t, h, transcript)
	for _, s := range secrets {
		require.Greater(t, len(s.value), 11, s.name)
	}
	running := h.dataFiles(t)
	h.stop(t)
	for where, files := range map[string]map[string][]byte{"while the server runs": running, "after it": h.dataFiles(t)} {
		require.True(t, slices.ContainsFunc(keysOf(files), func(p string) bool { return strings.Contains(p, ".db") }), "the database was not read")
		for _, s := range secrets {
			for path, content := range files {
				if s.in(content) {
					t.Errorf("%s is in %s, %s", s.name, path, where)
				}
			}
		}
	}
	log := h.log.String()
	require.Contains(t, log, "stack is live", "the log was not kept")
	for _, s := range secrets {
		if s.in([]byte(log)) {
			t.Errorf("%s is in the server's log", s.name)
		}
		var shown []string
		for _, a := range transcript.answered {
			if s.in([]byte(a.response)) && !s.in([]byte(a.request)) {
				shown = append(shown, a.request)
			}
		}
		if len(shown) != s.shown {
			t.Errorf("%s is shown by %q", s.name, shown)
		}
	}
	h.run(t)
}

// dataFiles are the contents of the data directory, but for the key that seals
// the rest.
func (h *Host) dataFiles(t *testing.T) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	require.NoError(t, filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil // a log or an upload that just went
		}
		if err != nil || !d.Type().IsRegular() || d.Name() == "key" {
			return err
		}
		files[path], err = os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil
		}
		return err
	}))
	return files
}

func keysOf[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// The search finds what it is there to find.
func TestSecrets_TheSearchFindsEveryForm(t *testing.T) {
	t.Parallel()
	for _, s := range []secret{{value: "ast_anon_0123456789abcdefghijkl"}, {value: "CLM-ABCD-EFGH-JKMN"}} {
		for name, text := range map[string]string{
			"plain":      "x" + s.value + "y",
			"upper case": strings.ToUpper(s.value),
			"hex":        hex.EncodeToString([]byte("ab" + s.value)),
			"base64":     base64.StdEncoding.EncodeToString([]byte(s.value)),
			"base64 + 1": base64.StdEncoding.EncodeToString([]byte("{" + s.value + "}")),
			"base64 + 2": base64.URLEncoding.EncodeToString([]byte("ab" + s.value + "cd")),
		} {
			require.True(t, s.in([]byte(text)), "%s of %s", name, s.value)
		}
		require.False(t, s.in([]byte("ast_anon_ CLM- whsec_ and nothing else")))
	}
	require.True(t, secret{value: "CLM-ABCD-EFGH-JKMN"}.in([]byte("clm abcdefghjkmn")))
}
