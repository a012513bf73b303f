package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve answers requests until the test ends. Its address is a name under localhost,
// which needs no resolver.
func serve(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	c, err := New(strings.Replace(s.URL, "127.0.0.1", "some.name.localhost", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c.WithToken("ast_anon_1")
}

func reply(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprint(w, body)
}

func TestNew_ReadsAddresses(t *testing.T) {
	for server, want := range map[string]string{
		"https://berth.example.com/": "https://berth.example.com",
		"berth.example.com":          "https://berth.example.com",
		"localhost:8080":             "http://localhost:8080",
		"127.0.0.1:8080":             "http://127.0.0.1:8080",
		" http://a.example/prefix/ ": "http://a.example/prefix",
		"":                           "",
		"ftp://a.example":            "",
		"http://":                    "",
		"http://user:pw@a.example":   "",
		"http://a.example?x=1":       "",
		"http://a b":                 "",
	} {
		c, err := New(server)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "write it like") {
				t.Errorf("New(%q): %v", server, err)
			}
			continue
		}
		if err != nil || c.Server() != want {
			t.Errorf("New(%q) is for %v, %v, want %s", server, c, err, want)
		}
	}
}

func TestClient_SendsItsToken(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		reply(w, http.StatusOK, fmt.Sprintf(`{"id": %q, "name": %q}`, r.URL.Path, r.Header.Get("Authorization")))
	})
	s, err := c.Stack(t.Context(), "stk_1/..", true)
	if err != nil || s.Name != "Bearer ast_anon_1" {
		t.Errorf("the server sees %+v, %v", s, err)
	}
	if s, err = c.WithToken("").Stack(t.Context(), "x", false); err != nil || s.Name != "" {
		t.Errorf("without a token the server sees %+v, %v", s, err)
	}
}

func TestClient_TellsErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    Error
	}{
		{"a refusal", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			reply(w, http.StatusTooManyRequests, `{"detail": "slow down"}`)
		}, Error{Status: 429, Detail: "slow down", RetryAfter: time.Minute}},
		{
			"a gateway's page", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<h1>sorry</h1>", http.StatusBadGateway) },
			Error{Status: 502, Detail: "answered 502 Bad Gateway without a reason"},
		},
		{
			"another server", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<h1>hello</h1>") },
			Error{Status: 502, Detail: "answered text/html instead of JSON, so it is not a Berth server"},
		},
		{
			"not JSON", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "{") },
			Error{Status: 502, Detail: "sent an answer that cannot be read"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := serve(t, tt.handler).Me(t.Context())
			var got *Error
			if !errors.As(err, &got) || got.Status != tt.want.Status || got.RetryAfter != tt.want.RetryAfter ||
				!strings.Contains(got.Detail, tt.want.Detail) {
				t.Errorf("error %#v, want %+v", err, tt.want)
			}
		})
	}
}

func TestClient_TellsAServerThatIsNotThere(t *testing.T) {
	c, err := New("http://localhost:1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Me(t.Context())
	var away *Unreachable
	if !errors.As(err, &away) || !strings.HasPrefix(err.Error(), "the server at http://localhost:1 does not answer: ") || strings.Contains(err.Error(), "Get ") {
		t.Errorf("error %v", err)
	}
}

func TestClient_NeedsNoProxyForItsOwnMachine(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "{}") })
	if _, err := c.Me(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestSettled_WaitsOutTheServersPatienceAndAbsence(t *testing.T) {
	var asked atomic.Int64
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("wait") != "true" {
			t.Errorf("asked %s", r.URL)
		}
		switch asked.Add(1) {
		case 1:
			reply(w, http.StatusOK, `{"status": "building", "deploying": 1}`)
		case 2:
			panic(http.ErrAbortHandler)
		default:
			reply(w, http.StatusOK, `{"status": "live"}`)
		}
	})
	s, err := c.Settled(t.Context(), "stk_1")
	if err != nil || s.Status != Live || asked.Load() != 3 {
		t.Errorf("%+v, %v, asked %d times", s, err, asked.Load())
	}
}

// answers sends requests to functions in order.
type answers []func() (*http.Response, error)

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	next := (*a)[0]
	*a = (*a)[1:]
	return next()
}

// over returns a client whose requests the functions answer.
func over(t *testing.T, answer ...func() (*http.Response, error)) *Client {
	t.Helper()
	c, err := NewOver(&http.Client{Transport: (*answers)(&answer)}, "http://a.example")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func breaksOffAfter(d time.Duration) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		time.Sleep(d)
		return nil, io.ErrUnexpectedEOF
	}
}

func answersWith(status int, body string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		w := httptest.NewRecorder()
		reply(w, status, body)
		return w.Result(), nil
	}
}

func TestSettled_CountsAnAbsenceFromWhereAHeldAnswerBrokeOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := over(t, breaksOffAfter(80*time.Second), answersWith(503, `{"detail": "starting"}`), answersWith(200, `{"status": "live"}`))
		if s, err := c.Settled(t.Context(), "stk_1"); err != nil || s.Status != Live {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestSettled_GivesUpAfterAMinuteOfAbsence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := over(t, slices.Repeat([]func() (*http.Response, error){breaksOffAfter(0)}, 100)...).Settled(t.Context(), "stk_1")
		if took := time.Since(began); !IsUnreachable(err) || took < time.Minute || took > time.Minute+time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestSettled_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		reply(w, http.StatusOK, `{"status": "building"}`)
	})
	if _, err := c.Settled(ctx, "stk_1"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// archiveOf is an upload of a text.
func archiveOf(text string) Upload {
	return Upload{Archive: strings.NewReader(text), Size: int64(len(text))}
}

func TestCreate_SendsTheForm(t *testing.T) {
	var form, files map[string]string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength <= 0 {
			t.Errorf("content length %d", r.ContentLength)
		}
		if err := r.ParseMultipartForm(1 << 20); err != nil {
			t.Error(err)
		}
		form, files = map[string]string{}, map[string]string{}
		for name, values := range r.MultipartForm.Value {
			form[name] = values[0]
		}
		for name, headers := range r.MultipartForm.File {
			f, err := headers[0].Open()
			if err != nil {
				t.Error(err)
				continue
			}
			text, _ := io.ReadAll(f)
			files[name+" "+headers[0].Filename] = string(text)
		}
		reply(w, http.StatusCreated, `{"id": "stk_1", "manage_token": "ast_anon_1"}`)
	})
	u := archiveOf("the archive")
	u.Manifest, u.ManifestName, u.Name, u.TTL, u.ClaimEmail = []byte("name: x"), "my.yaml", "shop", "2h", "ana@example.com"
	var sent []int64
	u.Progress = func(n int64) { sent = append(sent, n) }
	s, err := c.Create(t.Context(), u)
	if err != nil || s.ManageToken != "ast_anon_1" {
		t.Fatalf("%+v, %v", s, err)
	}
	got, _ := json.Marshal([]any{form, files})
	want := `[{"claim_email":"ana@example.com","name":"shop","ttl":"2h"},{"manifest_file my.yaml":"name: x","source source.tar.gz":"the archive"}]`
	if string(got) != want {
		t.Errorf("the server got %s", got)
	}
	if len(sent) == 0 || sent[len(sent)-1] != int64(len("the archive")) {
		t.Errorf("progress %v", sent)
	}
}

func TestCreate_ComesAgainUnderTheSameKeyWhenTheAnswerIsLost(t *testing.T) {
	var mu sync.Mutex // a handler that panics tells the next one nothing
	var keys []string
	var bodies [][]byte
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, body)
		count := len(keys)
		mu.Unlock()
		switch count {
		case 1:
			panic(http.ErrAbortHandler)
		case 2:
			w.Header().Set("Retry-After", "1")
			reply(w, http.StatusConflict, `{"detail": "the first request still runs"}`)
		default:
			reply(w, http.StatusCreated, `{"id": "stk_1"}`)
		}
	})
	if s, err := c.Create(t.Context(), archiveOf("x")); err != nil || s.ID != "stk_1" {
		t.Fatalf("%+v, %v", s, err)
	}
	if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] != keys[2] || !bytes.Equal(bodies[0], bodies[2]) {
		t.Errorf("keys %v", keys)
	}
	if _, err := c.Create(t.Context(), archiveOf("x")); err != nil || keys[3] == keys[0] {
		t.Errorf("another create has the key %s of the first, %v", keys[3], err)
	}
}

func TestDeploy_DoesNotComeAgainAfterARefusal(t *testing.T) {
	asked := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusConflict, `{"detail": "a build is already running"}`)
	})
	if _, err := c.Deploy(t.Context(), "stk_1", archiveOf("x")); !IsStatus(err, http.StatusConflict) || asked != 1 {
		t.Errorf("error %v, asked %d times", err, asked)
	}
}

// The server reads the query before the body, which may be long, or have nothing else.
func TestDeploy_AsksInTheQueryHowToBuild(t *testing.T) {
	var query, form string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.RawQuery
		_ = r.ParseMultipartForm(1 << 20)
		text, _ := json.Marshal(r.MultipartForm.Value)
		form = string(text)
		reply(w, http.StatusOK, `{"id": "stk_1"}`)
	})
	for want, u := range map[string]Upload{
		"":                          {Manifest: []byte("name: x")},
		"fresh=true":                {Manifest: []byte("name: x"), Fresh: true},
		"supersede=true":            {Manifest: []byte("name: x"), Supersede: true},
		"fresh=true&supersede=true": {Manifest: []byte("name: x"), Fresh: true, Supersede: true},
	} {
		if _, err := c.Deploy(t.Context(), "stk_1", u); err != nil || query != want || form != `{"manifest":["name: x"]}` {
			t.Errorf("%q with %s, %v; want %q", query, form, err, want)
		}
	}
	if _, err := c.Deploy(t.Context(), "stk_1", Upload{Fresh: true}); err != nil || query != "fresh=true" || form != "{}" {
		t.Errorf("alone: %q with %s, %v", query, form, err)
	}
}

func TestDeploy_HearsAnAnswerThatComesEarly(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8 << 20); err != nil {
		t.Fatal(err)
	}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
		reply(w, http.StatusRequestEntityTooLarge, `{"detail": "the upload is too large"}`)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	_, err = c.Deploy(t.Context(), "stk_1", Upload{Archive: f, Size: 8 << 20})
	if !IsStatus(err, http.StatusRequestEntityTooLarge) || err.Error() != "the upload is too large" {
		t.Errorf("error %v", err)
	}
}

func TestUpload_ThatIsPackedOnTheWayIsSentOnce(t *testing.T) {
	var sent, key string
	requests := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		key = r.Header.Get("Idempotency-Key")
		file, _, err := r.FormFile("source")
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		text, _ := io.ReadAll(file)
		sent = r.FormValue("manifest") + string(text)
		reply(w, http.StatusOK, `{"id": "stk_1"}`)
	})
	packed := Upload{Manifest: []byte("{}"), Pack: func(out io.Writer) error { _, err := io.WriteString(out, "archive"); return err }}
	if s, err := c.Create(t.Context(), packed); err != nil || s.ID != "stk_1" || sent != "{}archive" || key != "" || requests != 1 {
		t.Errorf("%d requests, the last with %q and the key %q: %v, %v", requests, sent, key, s, err)
	}
	fault := errors.New("no such folder")
	packed.Pack = func(io.Writer) error { return fault }
	if _, err := c.Create(t.Context(), packed); err != fault {
		t.Errorf("error %v", err)
	}
}
