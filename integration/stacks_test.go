package integration

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"io"
	"io/fs"
	"maps"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Stack is what the API says of a stack, and what only its creation said.
type Stack struct {
	ID            string            `json:"id"`
	Name          string            `json:"name"`
	Status        string            `json:"status"`
	Claimed       bool              `json:"claimed"`
	URLs          map[string]string `json:"urls"`
	Services      []Service         `json:"services"`
	CreatedAt     float64           `json:"created_at"`
	ExpiresAt     *float64          `json:"expires_at"`
	ExpiredAt     *float64          `json:"expired_at"`
	RetainedUntil *float64          `json:"retained_until"`
	Generation    int               `json:"generation"`
	Deploying     *int              `json:"deploying"`
	Error         *string           `json:"error"`
	DeployError   *string           `json:"deploy_error"`
	Deploy        *Deploy           `json:"deploy"`

	Role string `json:"role"`

	ManageToken   string `json:"manage_token"`
	ClaimCode     string `json:"claim_code"`
	ClaimURL      string `json:"claim_url"`
	Note          string `json:"note"`
	WebhookSecret string `json:"webhook_secret"`
}

// Deploy is the latest attempt to deploy a stack.
type Deploy struct {
	Generation int      `json:"generation"`
	Attempt    int      `json:"attempt"`
	Outcome    string   `json:"outcome"`
	Phase      *string  `json:"phase"`
	Service    *string  `json:"service"`
	Problem    *string  `json:"problem"`
	Error      *string  `json:"error"`
	StartedAt  float64  `json:"started_at"`
	EndedAt    *float64 `json:"ended_at"`
}

// Service is one entry of a stack's services.
type Service struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	Status  string `json:"status"`
	URL     string `json:"url"`
}

// Event is one line of a stack's history.
type Event struct {
	ID        int64          `json:"id"`
	StackID   string         `json:"stack_id"`
	Type      string         `json:"type"`
	Data      map[string]any `json:"data"`
	CreatedAt float64        `json:"created_at"`
}

// Fields are the parts of a create besides the source: text fields by name, and
// manifest_file, which is sent as a file.
type Fields map[string]string

func manifest(text string) Fields { return Fields{"manifest": text} }

// hex is the part of the stack's id that its URLs and objects carry.
func (st *Stack) hex() string { return strings.TrimPrefix(st.ID, "stk_") }

// reason is the stack's error, "" when it has none.
func (st *Stack) reason() string {
	if st.Error == nil {
		return ""
	}
	return *st.Error
}

// url is the address of a service's path.
func (st *Stack) url(service, path string) string { return st.URLs[service] + path }

// host is the name under which a service is reached, with its port.
func (st *Stack) host(service string) string {
	return strings.TrimPrefix(st.URLs[service], "http://")
}

//go:embed testdata/app
var testdata embed.FS

// program is the node program of the tests, which has no packages and one
// route for everything that a test wants of a service.
func program(t *testing.T) Tree {
	t.Helper()
	text, err := testdata.ReadFile("testdata/app/server.js")
	require.NoError(t, err)
	return Tree{"server.js": string(text)}
}

// programManifest runs program as the service web.
const programManifest = `{name: app, services: [{name: web, runtime: node, start: node server.js}]}`

// Tree is a source tree: paths and contents.
type Tree map[string]string

// plus is the tree with more files.
func (tree Tree) plus(more Tree) Tree {
	all := maps.Clone(tree)
	maps.Copy(all, more)
	return all
}

// page is a site of one page.
func page(text string) Tree { return Tree{"index.html": text} }

// folder is the tree of a folder of this repository.
func folder(t *testing.T, dir string) Tree {
	t.Helper()
	tree := Tree{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		tree[filepath.ToSlash(name)] = string(content)
		return err
	}))
	return tree
}

// archive packs a tree as tar.gz. A content that begins with "-> " is a
// symbolic link to the rest of it.
func archive(t *testing.T, tree Tree) []byte {
	t.Helper()
	return archiveAt(t, tree, time.Now())
}

// archiveAt is archive with the time that every file was last changed.
func archiveAt(t *testing.T, tree Tree, changed time.Time) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		header := &tar.Header{Name: name, Mode: 0o644, ModTime: changed}
		content := tree[name]
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			header.Typeflag, header.Linkname, content = tar.TypeSymlink, target, ""
		}
		if strings.HasPrefix(content, "#!") {
			header.Mode = 0o755
		}
		header.Size = int64(len(content))
		require.NoError(t, w.WriteHeader(header))
		_, err := io.WriteString(w, content)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zip.Close())
	return b.Bytes()
}

// form packs a multipart body; a nil source leaves it out.
func form(t *testing.T, source []byte, fields Fields) (body []byte, contentType string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part := func(out io.Writer, err error) io.Writer {
		require.NoError(t, err)
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var out io.Writer
		if name == "manifest_file" {
			out = part(w.CreateFormFile(name, "stack.yaml"))
		} else {
			out = part(w.CreateFormField(name))
		}
		_, err := io.WriteString(out, fields[name])
		require.NoError(t, err)
	}
	if source != nil {
		_, err := part(w.CreateFormFile("source", "source.tar.gz")).Write(source)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return b.Bytes(), w.FormDataContentType()
}

// post sends a create as it is, and notes the stack for its deletion.
func (h *Host) post(t *testing.T, source []byte, fields Fields, query string, headers ...string) Reply {
	t.Helper()
	body, contentType := form(t, source, fields)
	headers = append([]string{"Content-Type", contentType}, headers...)
	r := h.do(t, h.request(t, http.MethodPost, "/v0/stacks"+query, bytes.NewReader(body), headers...))
	if r.status == http.StatusCreated {
		h.adoptStack(r.stack(t))
	}
	return r
}

// create posts a tree and returns the stack as it is then: building.
func (h *Host) create(t *testing.T, tree Tree, fields Fields) *Stack {
	t.Helper()
	r := h.post(t, archive(t, tree), fields, "")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	return r.stack(t)
}

// deploy posts a tree and returns the stack once it is live or failed.
func (h *Host) deploy(t *testing.T, tree Tree, fields Fields) *Stack {
	t.Helper()
	return h.settled(t, h.create(t, tree, fields))
}

// live deploys a tree that must come up.
func (h *Host) live(t *testing.T, tree Tree, fields Fields) *Stack {
	t.Helper()
	return h.mustLive(t, h.create(t, tree, fields))
}

// mustLive waits for a stack that must come up.
func (h *Host) mustLive(t *testing.T, st *Stack) *Stack {
	t.Helper()
	st = h.settled(t, st)
	if st.Status != "live" {
		t.Fatalf("the stack is %s: %s\n%s\n%s", st.Status, st.reason(), h.logs(t, st, "kind=build"), h.logs(t, st, "kind=run"))
	}
	return st
}

// settled waits until a stack is no longer building, as long as its build log grows: a
// build that waits for a slot logs its place in line. The one-time fields of st are kept.
func (h *Host) settled(t *testing.T, st *Stack) *Stack {
	t.Helper()
	var log string
	var deadline time.Time
	for {
		now := h.show(t, st, "?wait=true")
		if now.Status != "building" {
			return now
		}
		if longer := h.logs(t, st, "kind=build&tail=1000"); longer != log || deadline.IsZero() {
			log, deadline = longer, time.Now().Add(2*patience)
		}
		require.True(t, time.Now().Before(deadline), "the build has stopped: nothing in its log for %s\n%s", 2*patience, log)
	}
}

// show asks for a stack.
func (h *Host) show(t *testing.T, st *Stack, query string) *Stack {
	t.Helper()
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+query)
	require.Equal(t, http.StatusOK, r.status, r.body)
	now := r.stack(t)
	now.ManageToken, now.ClaimCode, now.ClaimURL = st.ManageToken, st.ClaimCode, st.ClaimURL
	now.Note, now.WebhookSecret = st.Note, st.WebhookSecret
	return now
}

// delete sends the DELETE of a stack.
func (h *Host) delete(t *testing.T, st *Stack) Reply {
	t.Helper()
	req := h.request(t, http.MethodDelete, "/v0/stacks/"+st.ID, nil, "Authorization", "Bearer "+st.ManageToken)
	return h.do(t, req.WithContext(t.Context()))
}

// remove deletes a stack when its test ends.
func (h *Host) remove(t *testing.T, st *Stack) {
	t.Helper()
	req, err := http.NewRequest(http.MethodDelete, h.base()+"/v0/stacks/"+st.ID, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+st.ManageToken)
	r := h.do(t, req)
	if r.status != http.StatusOK && r.status != http.StatusNotFound {
		t.Errorf("stack %s is not deleted: %s", st.ID, r)
	}
	h.forgetStack(st.ID)
}

// logs reads a stack's logs; the query is as in "kind=build&service=web".
func (h *Host) logs(t *testing.T, st *Stack, query string) string {
	t.Helper()
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/logs?"+query)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return r.body
}

// events reads all events of a stack, page by page.
func (h *Host) events(t *testing.T, st *Stack) []Event {
	t.Helper()
	var all []Event
	for after := int64(0); ; after = all[len(all)-1].ID {
		page := h.eventsAfter(t, st, after)
		all = append(all, page...)
		if len(page) < 200 {
			return all
		}
	}
}

// eventsAfter reads one page of events.
func (h *Host) eventsAfter(t *testing.T, st *Stack, after int64) []Event {
	t.Helper()
	query := url.Values{"after": {strconv.FormatInt(after, 10)}}
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events?"+query.Encode())
	require.Equal(t, http.StatusOK, r.status, r.body)
	var page struct{ Events []Event }
	require.NoError(t, json.Unmarshal([]byte(r.body), &page), r.body)
	return page.Events
}

// types are the events' types, each with its service where it has one, as in
// "service.ready web".
func types(events []Event) []string {
	names := make([]string, len(events))
	for i, e := range events {
		names[i] = e.Type
		if service, ok := e.Data["service"].(string); ok {
			names[i] += " " + service
		}
	}
	return names
}

// stack reads a stack object.
func (r Reply) stack(t *testing.T) *Stack {
	t.Helper()
	st := &Stack{}
	require.NoError(t, json.Unmarshal([]byte(r.body), st), r.body)
	return st
}

// json reads an object.
func (r Reply) json(t *testing.T) map[string]any {
	t.Helper()
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.body), &v), r.body)
	return v
}

// detail checks the one shape of errors and returns their text.
func (r Reply) detail(t *testing.T) string {
	t.Helper()
	require.Contains(t, r.header.Get("Content-Type"), "application/json", r.body)
	v := r.json(t)
	require.Len(t, v, 1, r.body)
	require.IsType(t, "", v["detail"], r.body)
	return v["detail"].(string)
}

// refused asserts the status of an error and returns its text.
func (r Reply) refused(t *testing.T, status int) string {
	t.Helper()
	require.Equal(t, status, r.status, r.body)
	return r.detail(t)
}
