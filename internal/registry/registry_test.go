package registry

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	served "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

const (
	stackID = "stk_3f2a9c1b7d4e"
	other   = "stk_000000000000"
)

// fake is a registry that a test may disturb.
type fake struct {
	handler http.Handler
	fault   atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool] // reports whether it answered
}

func newFake() *fake {
	return &fake{handler: served.New(served.Logger(log.New(io.Discard, "", 0)))}
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if fault := f.fault.Load(); fault != nil && (*fault)(w, r) {
		return
	}
	f.handler.ServeHTTP(w, r)
}

// disturb makes fault answer requests that it wants to; nil ends that.
func (f *fake) disturb(fault func(w http.ResponseWriter, r *http.Request) bool) {
	if fault == nil {
		f.fault.Store(nil)
		return
	}
	f.fault.Store(&fault)
}

func start(t *testing.T) (*fake, *Registry) {
	t.Helper()
	f := newFake()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, openAt(t, Options{Address: address(t, server.URL+"/berth")})
}

func address(t *testing.T, text string) Address {
	t.Helper()
	a, err := ParseAddress(text)
	require.NoError(t, err)
	return a
}

func openAt(t *testing.T, opts Options) *Registry {
	t.Helper()
	r, err := Open(opts)
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

func put(r *Registry, id, tag string, key, text []byte) error {
	return r.Put(context.Background(), id, tag, key, func(_ context.Context, w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

func get(r *Registry, id, tag string, key []byte) (text []byte, err error) {
	err = r.Get(context.Background(), id, tag, key, func(in io.Reader) (err error) {
		text, err = io.ReadAll(in)
		return err
	})
	return text, err
}

func TestRegistry_GivesBackWhatItWasGiven(t *testing.T) {
	_, r := start(t)
	require.NoError(t, r.Check(t.Context()))
	tags, err := r.Tags(t.Context(), stackID)
	require.NoError(t, err)
	require.Empty(t, tags)
	_, err = get(r, stackID, "data-web-1", NewKey())
	require.ErrorIs(t, err, ErrNotFound)

	key, text := NewKey(), randomText(1<<20+7)
	require.NoError(t, put(r, stackID, "data-web-1", key, []byte("an earlier one")))
	require.NoError(t, put(r, stackID, "data-web-1", key, text))
	require.NoError(t, put(r, stackID, "source-abc", key, []byte("a source")))
	got, err := get(r, stackID, "data-web-1", key)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(text, got))
	tags, err = r.Tags(t.Context(), stackID)
	require.NoError(t, err)
	assert.Equal(t, []string{"data-web-1", "source-abc"}, tags)
	_, err = get(r, stackID, "data-web-1", NewKey())
	require.ErrorIs(t, err, errSealed, "the key that DELETE destroyed is the only one")
}

func TestRegistry_NoticesWhatWasSwapped(t *testing.T) {
	_, r := start(t)
	key := NewKey()
	require.NoError(t, put(r, stackID, "data-web-1", key, []byte("one")))
	move := func(from, to string) {
		source, err := name.NewTag(from)
		require.NoError(t, err)
		target, err := name.NewTag(to)
		require.NoError(t, err)
		image, err := remote.Image(source)
		require.NoError(t, err)
		require.NoError(t, remote.Write(target, image))
	}
	move(r.StackImage(stackID, "data-web-1"), r.StackImage(stackID, "data-web-2"))
	move(r.StackImage(stackID, "data-web-1"), r.StackImage(other, "data-web-1"))
	_, err := get(r, stackID, "data-web-2", key)
	require.ErrorIs(t, err, errSealed)
	_, err = get(r, other, "data-web-1", key)
	require.ErrorIs(t, err, errSealed, "even with the same key")

	at, err := name.NewTag(r.StackImage(stackID, "data-web-1"))
	require.NoError(t, err)
	require.NoError(t, remote.Write(at, empty.Image))
	_, err = get(r, stackID, "data-web-1", key)
	require.ErrorContains(t, err, "0 layers")
	strange, err := random.Image(100, 1)
	require.NoError(t, err)
	require.NoError(t, remote.Write(at, strange))
	_, err = get(r, stackID, "data-web-1", key)
	require.ErrorIs(t, err, errSealed)
}

func TestForget_RemovesManifestsButNotThoseOfKeptTags(t *testing.T) {
	_, r := start(t)
	image, err := random.Image(100, 1)
	require.NoError(t, err)
	for _, tag := range []string{"web-g1", "web-g2"} { // built from the same
		at, err := name.NewTag(r.StackImage(stackID, tag))
		require.NoError(t, err)
		require.NoError(t, remote.Write(at, image))
	}
	require.NoError(t, put(r, stackID, "site-web-1", NewKey(), []byte("a site")))
	require.NoError(t, put(r, other, "site-web-1", NewKey(), []byte("another's")))
	require.NoError(t, r.Forget(t.Context(), stackID, func(tag string) bool { return tag == "web-g2" }))
	_, err = r.digest(t.Context(), stackID, "web-g2")
	require.NoError(t, err)
	_, err = r.digest(t.Context(), stackID, "site-web-1")
	require.ErrorIs(t, err, ErrNotFound)
	for range 2 {
		require.NoError(t, r.Forget(t.Context(), stackID, func(string) bool { return false }))
		for _, tag := range []string{"web-g1", "web-g2"} {
			_, err = r.digest(t.Context(), stackID, tag)
			require.ErrorIs(t, err, ErrNotFound)
		}
	}
	_, err = r.digest(t.Context(), other, "site-web-1")
	require.NoError(t, err)
}

func TestRegistry_ThatIsAwayOrBreaksLeavesTheTagAsItWas(t *testing.T) {
	f, r := start(t)
	key := NewKey()
	require.NoError(t, put(r, stackID, "data-web-1", key, []byte("whole")))
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"every connection ends": func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) },
		"it is overloaded": func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "", http.StatusServiceUnavailable)
			return true
		},
		"an upload is cut": func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPatch {
				_, _ = io.CopyN(io.Discard, r.Body, 100_000)
				panic(http.ErrAbortHandler)
			}
			return false
		},
		"no manifest is taken": func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
				http.Error(w, "", http.StatusInternalServerError)
				return true
			}
			return false
		},
	} {
		f.disturb(fault)
		err := put(r, stackID, "data-web-1", key, randomText(1<<20))
		require.ErrorIs(t, err, ErrAway, name)
		f.disturb(nil)
		got, err := get(r, stackID, "data-web-1", key)
		require.NoError(t, err, name)
		require.Equal(t, "whole", string(got), name)
	}
	broken := errors.New("the engine went away")
	err := r.Put(t.Context(), stackID, "data-web-1", key, func(_ context.Context, w io.Writer) error {
		_, _ = w.Write(randomText(200_000))
		return broken
	})
	require.ErrorIs(t, err, broken)
	got, err := get(r, stackID, "data-web-1", key)
	require.NoError(t, err)
	require.Equal(t, "whole", string(got))
}

func TestRegistry_SaysWhatTheOperatorHasToDo(t *testing.T) {
	f, r := start(t)
	answer := func(status int) {
		f.disturb(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v2/" || r.Method == http.MethodHead {
				return false
			}
			http.Error(w, "", status)
			return true
		})
	}
	require.NoError(t, put(r, stackID, "site-web-1", NewKey(), nil))
	answer(http.StatusForbidden)
	require.ErrorContains(t, r.Check(t.Context()), "it refuses the credentials (403); set BERTH_REGISTRY_AUTH_FILE")
	f.disturb(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
		return r.Method == http.MethodDelete
	})
	err := r.Forget(t.Context(), stackID, func(string) bool { return false })
	require.ErrorContains(t, err, "REGISTRY_STORAGE_DELETE_ENABLED=true")
	answer(http.StatusTeapot)
	require.ErrorContains(t, r.Check(t.Context()), "it answers 418")
	away := openAt(t, Options{Address: address(t, "http://127.0.0.1:9")})
	err = away.Check(t.Context())
	require.ErrorIs(t, err, ErrAway)
	assert.NotContains(t, err.Error(), "\n")
}

func TestOpen_LogsInWithTheFileOverTLS(t *testing.T) {
	f := newFake()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "berth" || password != "s3cret:x" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		f.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	ca := write(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	file := func(host, secret string) string {
		return write(t, fmt.Sprintf(`{"auths": {%q: {"auth": %q}}, "credsStore": "desktop"}`, host, base64.StdEncoding.EncodeToString([]byte(secret))))
	}
	r := openAt(t, Options{Address: address(t, host), AuthFile: file("https://"+host+"/v1/", "berth:s3cret:x"), CAFile: ca})
	require.NoError(t, r.Check(t.Context()))
	require.NoError(t, put(r, stackID, "site-web-1", NewKey(), []byte("a site")))
	assert.Equal(t, engine.Login{User: "berth", Password: "s3cret:x"}, r.Login())

	wrong := openAt(t, Options{Address: address(t, host), AuthFile: file(host, "berth:wrong-one"), CAFile: ca})
	err := wrong.Check(t.Context())
	require.ErrorContains(t, err, "it refuses the credentials (401)")
	assert.NotContains(t, err.Error(), "wrong-one")
	require.ErrorIs(t, openAt(t, Options{Address: address(t, host)}).Check(t.Context()), ErrAway, "nobody vouches for it")
	require.Error(t, openAt(t, Options{Address: address(t, host), CAFile: ca}).Check(t.Context()))

	plain := httptest.NewServer(f)
	t.Cleanup(plain.Close)
	require.ErrorIs(t, openAt(t, Options{Address: address(t, plain.Listener.Addr().String())}).Check(t.Context()), ErrAway, "never without TLS unless that is asked for")
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func TestOpen_RefusesFilesThatCannotBeUsed(t *testing.T) {
	at := address(t, "registry.example.com")
	for want, opts := range map[string]Options{
		"no such file":                    {AuthFile: "/no/such/file"},
		"is not JSON":                     {AuthFile: write(t, `{"auths": {"registry.example.com": s3cret}}`)},
		"has nothing under auths for":     {AuthFile: write(t, `{"auths": {"elsewhere.example.com": {"auth": "YTpi"}}}`)},
		"is not user:password in base64":  {AuthFile: write(t, `{"auths": {"registry.example.com": {"auth": "s3cret"}}}`)},
		"BERTH_REGISTRY_CA_FILE: open":    {CAFile: "/no/such/file"},
		"does not contain a PEM certific": {CAFile: write(t, "not one")},
	} {
		opts.Address = at
		_, err := Open(opts)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestParseAddress_TakesHostPortAndPrefix(t *testing.T) {
	for text, want := range map[string]struct {
		address  Address
		hostPort string
		exposed  bool
	}{
		"registry.example.com":                 {Address{"https", "registry.example.com", ""}, "registry.example.com:443", false},
		"https://registry.example.com:5000/":   {Address{"https", "registry.example.com:5000", ""}, "registry.example.com:5000", false},
		"http://10.0.0.5:5000/berth/prod":      {Address{"http", "10.0.0.5:5000", "berth/prod/"}, "10.0.0.5:5000", true},
		"http://127.0.0.1:5000":                {Address{"http", "127.0.0.1:5000", ""}, "127.0.0.1:5000", false},
		"http://localhost":                     {Address{"http", "localhost", ""}, "localhost:80", false},
		"http://registry.example.com/one/two/": {Address{"http", "registry.example.com", "one/two/"}, "registry.example.com:80", true},
	} {
		got, err := ParseAddress(text)
		if text == "http://localhost" || err == nil {
			require.NoError(t, err, text)
		}
		require.Equal(t, want.address, got, text)
		require.Equal(t, want.hostPort, got.HostPort(), text)
		require.Equal(t, want.exposed, got.Exposed(), text)
	}
	for _, text := range []string{"", "https://", "ftp://registry", "https://me:secret@registry", "registry?x=1", "https://registry/UPPER", "http://registry/a b", "docker.io"} {
		_, err := ParseAddress(text)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestReferences_AreOneRepositoryForEachStack(t *testing.T) {
	r := openAt(t, Options{Address: address(t, "registry.example.com:5000/berth")})
	assert.Equal(t, "registry.example.com:5000/berth/stacks/3f2a9c1b7d4e:web-g3", r.StackImage(stackID, "web-g3"))
	assert.Equal(t, "registry.example.com:5000/berth/berth/base-node:22-0123456789ab", r.SharedImage("berth/base-node:22-0123456789ab"))
}
