package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stack is what the API says of a stack, and what only its creation said.
type Stack struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Status      string            `json:"status"`
	Claimed     bool              `json:"claimed"`
	URLs        map[string]string `json:"urls"`
	Services    []Service         `json:"services"`
	Generation  int               `json:"generation"`
	Deploying   *int              `json:"deploying"`
	Error       *string           `json:"error"`
	DeployError *string           `json:"deploy_error"`
	ManageToken string            `json:"manage_token"`
	ClaimCode   string            `json:"claim_code"`
}

// Service is one entry of a stack's services.
type Service struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// Event is one line of a stack's history.
type Event struct {
	ID        int64          `json:"id"`
	Type      string         `json:"type"`
	Data      map[string]any `json:"data"`
	CreatedAt float64        `json:"created_at"` // Unix seconds
}

// url is the address of a service's path.
func (st *Stack) url(service, path string) string { return st.URLs[service] + path }

// reason is why the stack, or its last deploy, failed.
func (st *Stack) reason() string {
	for _, why := range []*string{st.Error, st.DeployError} {
		if why != nil {
			return *why
		}
	}
	return ""
}

//go:embed testdata/server.pl
var program string

// Tree is a source tree: paths and contents.
type Tree map[string]string

// page is a site of one page.
func page(text string) Tree { return Tree{"index.html": text} }

// app is a stack of a program that keeps data, and a site.
var app = Tree{"server.pl": program, "site/index.html": "a site"}

const appManifest = `{name: app, services: [
  {name: web, runtime: node, start: exec perl server.pl, stop_timeout: 1s},
  {name: site, runtime: static, root: site}]}`

// plus is the tree with one more file.
func (tree Tree) plus(name, content string) Tree {
	all := maps.Clone(tree)
	all[name] = content
	return all
}

// archive packs a tree as tar.gz.
func archive(t *testing.T, tree Tree) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(tree[name]))}))
		_, err := io.WriteString(w, tree[name])
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return b.Bytes()
}

// form packs the body of a create or deploy; without a manifest the server finds out what
// the tree is.
func form(t *testing.T, tree Tree, manifest string) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	if manifest != "" {
		require.NoError(t, w.WriteField("manifest", manifest))
	}
	out, err := w.CreateFormFile("source", "source.tar.gz")
	require.NoError(t, err)
	_, err = out.Write(archive(t, tree))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes(), w.FormDataContentType()
}

// Reply is a whole response, the zero Reply if there was none.
type Reply struct {
	status int
	header http.Header
	body   string
}

func (r Reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// unexpected returns an error if no node may give such an answer of the API.
func unexpected(r Reply) error {
	switch {
	case r.status == http.StatusBadGateway, r.status == http.StatusServiceUnavailable:
		if r.header.Get("Retry-After") == "" {
			return errors.New("an answer without Retry-After: " + r.String())
		}
	case r.status >= 500, r.status == http.StatusUnauthorized:
		return errors.New("an answer that must not be: " + r.String())
	}
	return nil
}

// stack reads a stack object.
func (r Reply) stack(t *testing.T) *Stack {
	t.Helper()
	st := &Stack{}
	require.NoError(t, json.Unmarshal([]byte(r.body), st), r.body)
	return st
}

// attempt sends a request through this node. The url is a path of the API or a whole URL,
// such as a service's; the headers are names and values in turn.
func (h *Host) attempt(t *testing.T, method, url string, body []byte, headers ...string) Reply {
	t.Helper()
	if strings.HasPrefix(url, "/") {
		url = h.c.env["BERTH_BASE_URL"] + url
	}
	req, err := http.NewRequestWithContext(context.Background(), method, url, bytes.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	res, err := h.client.Do(req)
	if err != nil {
		return Reply{body: err.Error()}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return Reply{body: err.Error()}
	}
	return Reply{res.StatusCode, res.Header, string(text)}
}

// get asks for a path of the API, or a whole URL such as a service's.
func (h *Host) get(t *testing.T, url string, headers ...string) Reply {
	t.Helper()
	return h.attempt(t, http.MethodGet, url, nil, headers...)
}

// as sends a request with a token.
func (h *Host) as(t *testing.T, token, method, path, body string) Reply {
	t.Helper()
	return h.attempt(t, method, path, []byte(body), "Authorization", "Bearer "+token, "Content-Type", "application/json")
}

// create posts a tree and returns the stack as it is then: building.
func (h *Host) create(t *testing.T, tree Tree, manifest string) *Stack {
	t.Helper()
	body, contentType := form(t, tree, manifest)
	r := h.attempt(t, http.MethodPost, "/v0/stacks", body, "Content-Type", contentType)
	require.Equal(t, http.StatusCreated, r.status, r)
	st := r.stack(t)
	h.c.adopt(st)
	return st
}

// live posts a tree that must come up.
func (h *Host) live(t *testing.T, tree Tree, manifest string) *Stack {
	t.Helper()
	st := h.create(t, tree, manifest)
	return h.mustLive(t, st)
}

// mustLive waits until a stack that must come up is live and has no deploy under way.
func (h *Host) mustLive(t *testing.T, st *Stack) *Stack {
	t.Helper()
	var now *Stack
	eventually(t, "the stack is settled", func() error {
		now = h.show(t, st)
		if now.Status == "building" || now.Deploying != nil {
			return fmt.Errorf("it is %s, %s", now.Status, now.reason())
		}
		return nil
	})
	if now.Status != "live" || now.DeployError != nil {
		t.Fatalf("the stack is %s: %s\n%s", now.Status, now.reason(), h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/logs?kind=build", ""))
	}
	return now
}

// show asks for a stack. The one-time fields of st are kept.
func (h *Host) show(t *testing.T, st *Stack) *Stack {
	t.Helper()
	r := h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID, "")
	require.Equal(t, http.StatusOK, r.status, r)
	now := r.stack(t)
	now.ManageToken, now.ClaimCode = st.ManageToken, st.ClaimCode
	return now
}

// redeploy sends the next generation of a stack.
func (h *Host) redeploy(t *testing.T, st *Stack, tree Tree, manifest string) Reply {
	t.Helper()
	body, contentType := form(t, tree, manifest)
	return h.attempt(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy", body, "Content-Type", contentType, "Authorization", "Bearer "+st.ManageToken)
}

// claim claims a stack with an API key.
func (h *Host) claim(t *testing.T, key string, st *Stack) Reply {
	t.Helper()
	return h.as(t, key, http.MethodPost, "/v0/claim", `{"claim_code": "`+st.ClaimCode+`"}`)
}

// extend sets the TTL of a stack.
func (h *Host) extend(t *testing.T, st *Stack, ttl string) Reply {
	t.Helper()
	return h.as(t, st.ManageToken, http.MethodPatch, "/v0/stacks/"+st.ID, `{"ttl": "`+ttl+`"}`)
}

// delete sends the DELETE of a stack.
func (h *Host) delete(t *testing.T, st *Stack) Reply {
	t.Helper()
	r := h.as(t, st.ManageToken, http.MethodDelete, "/v0/stacks/"+st.ID, "")
	if r.status == http.StatusOK {
		h.c.forget(st)
	}
	return r
}

// events reads all events of a stack, page by page.
func (h *Host) events(t *testing.T, st *Stack) []Event {
	t.Helper()
	var all []Event
	for after := int64(0); ; after = all[len(all)-1].ID {
		r := h.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"/events?after="+strconv.FormatInt(after, 10), "")
		require.Equal(t, http.StatusOK, r.status, r)
		var page struct{ Events []Event }
		require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
		all = append(all, page.Events...)
		if len(page.Events) == 0 {
			return all
		}
	}
}

// types are the events' types.
func types(events []Event) []string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Type
	}
	return names
}

// write has the service web keep a text under a name.
func (h *Host) write(t *testing.T, st *Stack, name, content string) {
	t.Helper()
	r := h.attempt(t, http.MethodPost, st.url("web", "/write?name="+name), []byte(content))
	require.Equal(t, "200 written", r.String())
}

// reads asks the service web for what it keeps under a name.
func (h *Host) reads(t *testing.T, st *Stack, name string) string {
	t.Helper()
	return h.get(t, st.url("web", "/read?name="+name)).String()
}
