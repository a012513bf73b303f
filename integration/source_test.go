package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// sourceList is the listing of a stack's source.
type sourceList struct {
	Generation int
	Digest     string
	Files      []struct{ Path, SHA256 string }
}

// paths returns the paths of the listed files.
func (l sourceList) paths() []string {
	var paths []string
	for _, f := range l.Files {
		paths = append(paths, f.Path)
	}
	return paths
}

// source lists the source that a stack serves, for a token.
func (h *Host) source(t *testing.T, st *Stack, token string) (list sourceList) {
	t.Helper()
	r := h.do(t, h.request(t, http.MethodGet, "/v0/stacks/"+st.ID+"/source", nil, "Accept", "application/json", "Authorization", "Bearer "+token))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &list))
	require.Equal(t, `"`+list.Digest+`"`, r.header.Get("ETag"))
	return list
}

// change deploys changes of a generation's source and waits for what becomes of it.
func (h *Host) change(t *testing.T, st *Stack, base int, tree Tree, fields Fields) *Stack {
	t.Helper()
	all := Fields{"base": fmt.Sprint(base)}
	for name, value := range fields {
		all[name] = value
	}
	var packed []byte
	if tree != nil {
		packed = archive(t, tree)
	}
	r := h.postArchive(t, st, packed, all)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return h.deployed(t, st)
}

// matched deploys changes on the condition that the source has a digest.
func (h *Host) matched(t *testing.T, st *Stack, base int, digest string, tree Tree) Reply {
	t.Helper()
	body, contentType := form(t, archive(t, tree), Fields{"base": fmt.Sprint(base)})
	return h.attempt(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy", string(body),
		"Content-Type", contentType, "If-Match", `"`+digest+`"`, "Authorization", "Bearer "+st.ManageToken)
}

func TestSource_EditsAreLaidOverWhatIsServed(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("one").plus(Tree{"about.html": "about", "old/a.html": "old"}), nil)
	shows := func(text string) { require.Equal(t, text, h.get(t, st.url("web", "/")).body) }
	first := h.source(t, st, st.ManageToken)
	require.Equal(t, []string{"about.html", "index.html", "old/a.html"}, first.paths())

	require.Equal(t, 2, h.change(t, st, 1, page("two"), Fields{"delete": "old"}).Generation)
	shows("two")
	require.Equal(t, "about", h.get(t, st.url("web", "/about.html")).body)
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/old/a.html")).status)
	second := h.source(t, st, st.ManageToken)
	require.Equal(t, []string{"about.html", "index.html"}, second.paths())

	// One that is rolled back between two edits leaves nothing.
	failed := h.change(t, st, 2, Tree{"stack.yaml": "services: [{name: web, runtime: static, build: exit 3, publish: .}]", "mine.html": "mine"}, nil)
	require.NotNil(t, failed.DeployError)
	require.Equal(t, second, h.source(t, st, st.ManageToken))
	require.Equal(t, 3, h.change(t, st, 2, Tree{"about.html": "more about"}, nil).Generation)
	third := h.source(t, st, st.ManageToken)
	require.Equal(t, []string{"about.html", "index.html"}, third.paths())

	// Somebody else's deploy has the number that a failed one had.
	require.Contains(t, h.matched(t, st, 2, second.Digest, page("late")).refused(t, http.StatusPreconditionFailed), third.Digest)
	require.Contains(t, h.postArchive(t, st, archive(t, page("late")), Fields{"base": "2"}).refused(t, http.StatusConflict), "generation 3 is served")
	shows("two")

	r := h.postArchive(t, st, nil, manifest("services: [{name: web, runtime: static, spa: true}]"))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, 4, h.deployed(t, st).Generation)
	require.Equal(t, third.paths(), h.source(t, st, st.ManageToken).paths(), "a manifest alone builds the same source")
	require.Equal(t, "two", h.get(t, st.url("web", "/anywhere")).body)
}

func TestSource_StaysThroughExpiryRestartAndClaim(t *testing.T) {
	t.Parallel()
	h := start(t, short, quickly)
	st := h.live(t, page("one").plus(Tree{"more.html": "more"}), nil)
	require.Equal(t, 2, h.change(t, st, 1, page("two"), nil).Generation)
	before := h.source(t, st, st.ManageToken)
	h.expire(t, st)
	require.Equal(t, before, h.source(t, st, st.ManageToken))
	h.restart(t)
	key := h.accountCreate(t, "ana@example.com")
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "?wait=true").status)
	require.Equal(t, before, h.source(t, st, key), "whoever claims the stack gets the code")
	require.Equal(t, 3, h.change(t, st, 2, Tree{"more.html": "even more"}, nil).Generation)
	require.Equal(t, "even more", h.get(t, st.url("web", "/more.html")).body)
}

func TestSource_ThatIsDamagedIsNotBuiltUpon(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("one").plus(Tree{"more.html": "more"}), nil)
	kept, err := filepath.Glob(filepath.Join(h.dir, "stacks", st.hex(), "sources", "*", "tree", "more.html"))
	require.NoError(t, err)
	require.Len(t, kept, 1)
	require.NoError(t, os.Remove(kept[0]))
	require.Contains(t, h.postArchive(t, st, archive(t, page("two")), Fields{"base": "1"}).refused(t, http.StatusConflict), "send the whole source")
	require.Equal(t, "one", h.get(t, st.url("web", "/")).body)
	require.Equal(t, 2, h.redeploy(t, st, page("two"), nil).Generation)
	require.Equal(t, 3, h.change(t, st, 2, Tree{"more.html": "more"}, nil).Generation)
}
