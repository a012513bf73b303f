package cli

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a server with the API that does not run anything. A source with a file called
// broken fails to build; its build log is build.log, else one line.
type fake struct {
	server *httptest.Server

	mu       sync.Mutex
	stacks   map[string]*fakeStack
	requests []string // method and path
	keys     map[string]int
	drop     int    // uploads whose answer is lost
	instead  string // body of the 404 that answers everything in its place; "" for none
	plans    bool   // it has the route that validates
	polls    int    // GETs until a build ends
}

const (
	fakeKey   = "as_live_fake"
	fakeEmail = "ana@example.com"
)

type fakeStack struct {
	data                    string // of its service
	id, name, token, status string
	claimed                 bool
	generation, deploying   int
	attempt                 int // the latest, which ran last
	failure, deployError    any
	created, expires        float64
	files, served           map[string]string
	given, servedGiven      string // manifests beside them
	events                  []map[string]any
	polls                   int               // GETs until its build ends
	env, envBefore          map[string]string // names of set variables and their values
	domains                 []string
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{stacks: map[string]*fakeStack{}, keys: map[string]int{}, polls: 2}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v0/stacks", f.create)
	mux.HandleFunc("GET /v0/stacks/{id}", f.with(f.show))
	mux.HandleFunc("PATCH /v0/stacks/{id}", f.with(f.extend))
	mux.HandleFunc("DELETE /v0/stacks/{id}", f.with(f.remove))
	mux.HandleFunc("POST /v0/stacks/{id}/deploy", f.with(f.deploy))
	mux.HandleFunc("GET /v0/stacks/{id}/source", f.with(f.source))
	mux.HandleFunc("GET /v0/stacks/{id}/events", f.with(f.listEvents))
	mux.HandleFunc("POST /v0/stacks/{id}/restart", f.with(f.restart))
	mux.HandleFunc("GET /v0/stacks/{id}/env", f.with(f.listEnv))
	mux.HandleFunc("PATCH /v0/stacks/{id}/env", f.with(f.setEnv))
	mux.HandleFunc("GET /v0/stacks/{id}/domains", f.with(f.listDomains))
	mux.HandleFunc("POST /v0/stacks/{id}/domains", f.with(f.addDomain))
	mux.HandleFunc("DELETE /v0/stacks/{id}/domains/{host}", f.with(f.removeDomain))
	mux.HandleFunc("GET /v0/stacks/{id}/logs", f.with(f.logs))
	mux.HandleFunc("POST /v0/stacks/{id}/services/{name}/exec", f.with(f.exec))
	mux.HandleFunc("GET /v0/stacks/{id}/services/{name}/data", f.with(f.readData))
	mux.HandleFunc("PUT /v0/stacks/{id}/services/{name}/data", f.with(f.replaceData))
	mux.HandleFunc("POST /v0/claim", f.claim)
	mux.HandleFunc("GET /v0/me", f.me)
	mux.HandleFunc("POST /v0/validate", f.validate)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Host, "web-") {
			fmt.Fprint(w, "a page")
			return
		}
		refuse(w, http.StatusNotFound, "there is no "+r.URL.Path)
	})
	f.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.requests = append(f.requests, r.Method+" "+r.URL.Path)
		if f.instead != "" {
			http.Error(w, f.instead, http.StatusNotFound)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	f.server.Start()
	t.Cleanup(f.server.Close)
	return f
}

// address is the server's, under the name localhost.
func (f *fake) address() string { return strings.Replace(f.server.URL, "127.0.0.1", "localhost", 1) }

func refuse(w http.ResponseWriter, status int, detail string) {
	answer(w, status, map[string]string{"detail": detail})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func bearerOf(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// exec runs no command. It prints the service, the timeout and the command, and ends with
// the number that is the last word of the command, or after its time for another word.
func (f *fake) exec(w http.ResponseWriter, r *http.Request, _ *fakeStack) {
	var in struct{ Command, Timeout string }
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.PathValue("name") != "web" {
		refuse(w, http.StatusNotFound, "the stack has no service "+r.PathValue("name")+"; it has web")
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	line, _ := json.Marshal(map[string]string{"line": "web " + in.Timeout + " " + in.Command + "\x1b[2J"})
	fmt.Fprintf(w, "data: %s\n\ndata: {\"line\": \"no newline\", \"partial\": true}\n\n", line)
	code, err := strconv.Atoi(in.Command[strings.LastIndex(in.Command, " ")+1:])
	end := map[string]any{"exit_code": code, "truncated": false, "timed_out": false}
	if err != nil {
		end["exit_code"], end["timed_out"] = nil, true
	}
	text, _ := json.Marshal(end)
	fmt.Fprintf(w, "event: exit\ndata: %s\n\n", text)
}

func (f *fake) readData(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	if r.PathValue("name") != "web" {
		refuse(w, http.StatusNotFound, "the stack has no service "+r.PathValue("name")+"; it has web")
		return
	}
	fmt.Fprint(w, s.data)
	if s.data == "broken\n" {
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	if r.URL.Query().Has("stop") {
		fmt.Fprintln(w, " "+r.URL.RawQuery)
	}
}

func (f *fake) replaceData(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	s.data = string(text)
	f.show(w, r, s)
}

func (f *fake) with(do func(http.ResponseWriter, *http.Request, *fakeStack)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s := f.stacks[r.PathValue("id")]
		token := bearerOf(r)
		switch {
		case token == "":
			refuse(w, http.StatusUnauthorized, "no Authorization header")
		case s == nil:
			refuse(w, http.StatusNotFound, "there is no stack "+r.PathValue("id"))
		case token != s.token && (token != fakeKey || !s.claimed):
			refuse(w, http.StatusForbidden, "this token does not grant access to this stack")
		default:
			do(w, r, s)
		}
	}
}

// receive reads the archive of a form, without its one folder.
func receive(r *http.Request) (files map[string]string, folder string, err error) {
	if err := r.ParseMultipartForm(1 << 20); err != nil {
		return nil, "", err
	}
	changes := r.FormValue("base") != ""
	part, _, err := r.FormFile("source")
	if err != nil {
		return nil, "", err
	}
	zip, err := gzip.NewReader(part)
	if err != nil {
		return nil, "", err
	}
	files = map[string]string{}
	for entries := tar.NewReader(zip); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files, folder, nil
		}
		if err != nil {
			return nil, "", err
		}
		text, err := io.ReadAll(entries)
		if err != nil {
			return nil, "", err
		}
		var name string
		if folder, name, _ = strings.Cut(h.Name, "/"); changes {
			name = h.Name
		}
		files[name] = string(text)
	}
}

func (f *fake) create(w http.ResponseWriter, r *http.Request) {
	files, folder, err := receive(r)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	if files["index.html"] == "" {
		refuse(w, http.StatusUnprocessableEntity, "service web: publish dist: there is no such folder")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if f.keys[key]++; f.keys[key] > 1 {
		answer(w, http.StatusCreated, f.created(f.stacks[f.newest()]))
		return
	}
	s := &fakeStack{
		id: fmt.Sprintf("stk_%012x", len(f.stacks)+1), name: folder, status: "building", generation: 1, deploying: 1, attempt: 1,
		token: fmt.Sprintf("ast_anon_%d", len(f.stacks)+1), files: files, given: manifestOf(r), polls: f.polls, created: 1.5 + float64(len(f.stacks))/100,
		expires: float64(time.Now().Add(time.Hour).Unix()), claimed: bearerOf(r) == fakeKey,
	}
	if name := r.FormValue("name"); name != "" {
		s.name = name
	}
	f.stacks[s.id] = s
	f.event(s, "stack.created", map[string]any{"anonymous": !s.claimed})
	f.event(s, "service.building", map[string]any{"service": "web", "generation": 1})
	if f.drop > 0 {
		f.drop--
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("ETag", tagOf(s.files))
	answer(w, http.StatusCreated, f.created(s))
}

func (f *fake) newest() string {
	return fmt.Sprintf("stk_%012x", len(f.stacks))
}

func (f *fake) created(s *fakeStack) map[string]any {
	v := f.view(s)
	v["manage_token"] = s.token
	if !s.claimed {
		v["claim_code"] = "CLM-7K2M-Q9XD-4HTR"
		v["claim_url"] = f.address() + "/claim/CLM-7K2M-Q9XD-4HTR"
	}
	return v
}

func (f *fake) event(s *fakeStack, kind string, data map[string]any) {
	s.events = append(s.events, map[string]any{
		"id": len(s.events) + 1, "stack_id": s.id, "type": kind, "data": data, "created_at": 1.5,
	})
}

func (f *fake) urlOf(s *fakeStack) string {
	return strings.Replace(f.address(), "localhost", "web-"+strings.TrimPrefix(s.id, "stk_")+".localhost", 1)
}

func (f *fake) view(s *fakeStack) map[string]any {
	v := map[string]any{
		"id": s.id, "name": s.name, "status": s.status, "claimed": s.claimed, "generation": s.generation,
		"urls":       map[string]string{"web": f.urlOf(s)},
		"services":   []map[string]string{{"name": "web", "runtime": "static", "status": "running", "url": f.urlOf(s)}},
		"created_at": s.created, "expires_at": s.expires, "expired_at": nil, "retained_until": nil,
		"deploying": nil, "error": s.failure, "deploy_error": s.deployError,
		"deploy": map[string]any{"attempt": s.attempt},
	}
	if s.claimed {
		v["expires_at"] = nil
	}
	if s.deploying > 0 {
		v["deploying"] = s.deploying
	}
	return v
}

func (f *fake) show(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	if s.deploying > 0 && r.FormValue("wait") == "true" {
		if s.polls--; s.polls <= 0 {
			f.settle(s)
		}
	}
	answer(w, http.StatusOK, f.view(s))
}

func (f *fake) settle(s *fakeStack) {
	_, broken := s.files["broken"]
	wrong := s.env["all/WRONG"]
	if broken = broken || wrong == "broken"; broken {
		s.env = s.envBefore
	}
	if wrong == "overtaken" {
		s.attempt++
	}
	switch {
	case broken && s.status == "building":
		s.status, s.failure = "failed", "web: the build command exited with 1"
		f.event(s, "stack.failed", map[string]any{"error": s.failure})
	case broken:
		s.deployError = "web: the build command exited with 1"
		f.event(s, "stack.deploy_failed", map[string]any{"error": s.deployError, "serving_generation": s.generation})
	default:
		s.status, s.generation, s.failure, s.deployError = "live", s.deploying, nil, nil
		s.served, s.servedGiven = s.files, s.given
		f.event(s, "service.ready", map[string]any{"service": "web", "url": f.urlOf(s)})
		f.event(s, "stack.live", map[string]any{"generation": s.generation})
	}
	s.deploying = 0
}

func (f *fake) deploy(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	files, _, err := receive(r)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	for _, flag := range []string{"supersede", "fresh"} {
		if r.URL.Query().Get(flag) == "true" {
			f.requests = append(f.requests, flag+" "+r.URL.Path)
		}
	}
	s.given = manifestOf(r)
	if base := r.FormValue("base"); base != "" {
		if base != strconv.Itoa(s.generation) {
			refuse(w, http.StatusConflict, "base is not served")
			return
		}
		if match := r.Header.Get("If-Match"); match != "" && match != tagOf(s.served) {
			refuse(w, http.StatusPreconditionFailed, "the source has changed")
			return
		}
		if files["stack.yaml"] == "" {
			s.given = cmp.Or(s.given, s.servedGiven)
		}
		files = laidOver(s.served, files, r.FormValue("delete"))
	}
	w.Header().Set("ETag", tagOf(files))
	s.files, s.polls, s.deploying, s.envBefore = files, f.polls, s.generation+1, s.env
	s.attempt++
	if s.status == "failed" {
		s.status, s.deploying = "building", s.generation
	}
	f.event(s, "stack.redeploying", map[string]any{"generation": s.deploying})
	f.event(s, "service.building", map[string]any{"service": "web", "generation": s.deploying})
	answer(w, http.StatusOK, f.view(s))
}

// manifestOf returns the manifest beside the source of a form, "" for none.
func manifestOf(r *http.Request) string {
	part, _, err := r.FormFile("manifest_file")
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(part)
	return strings.TrimSpace(string(text))
}

// laidOver returns files with changes: new ones, and paths to delete as a list in JSON.
func laidOver(base, changed map[string]string, remove string) map[string]string {
	files := maps.Clone(base)
	var gone []string
	_ = json.Unmarshal([]byte(remove), &gone)
	for _, path := range gone {
		maps.DeleteFunc(files, func(name, _ string) bool { return name == path || strings.HasPrefix(name, path+"/") })
	}
	maps.Copy(files, changed)
	return files
}

// tagOf returns the ETag of files.
func tagOf(files map[string]string) string {
	text, _ := json.Marshal(files)
	return fmt.Sprintf("%q", hashOf(string(text)))
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// source lists the served files, or sends them as an archive.
func (f *fake) source(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	if s.served == nil {
		refuse(w, http.StatusNotFound, "no source is kept")
		return
	}
	w.Header().Set("ETag", tagOf(s.served))
	if r.Header.Get("Accept") != "application/json" {
		zip := gzip.NewWriter(w)
		out := tar.NewWriter(zip)
		for _, name := range slices.Sorted(maps.Keys(s.served)) {
			_ = out.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(s.served[name]))})
			_, _ = io.WriteString(out, s.served[name])
		}
		_ = errors.Join(out.Close(), zip.Close())
		return
	}
	list := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.served)) {
		list = append(list, map[string]any{"path": name, "size": len(s.served[name]), "mode": "0644", "sha256": hashOf(s.served[name])})
	}
	answer(w, http.StatusOK, map[string]any{"generation": s.generation, "digest": strings.Trim(tagOf(s.served), `"`), "files": list})
}

func (f *fake) extend(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	var body struct{ TTL string }
	_ = json.NewDecoder(r.Body).Decode(&body)
	ttl, err := time.ParseDuration(body.TTL)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, fmt.Sprintf("duration %q is not one; write it as in 90m", body.TTL))
		return
	}
	s.expires = float64(time.Now().Add(ttl).Unix())
	answer(w, http.StatusOK, f.view(s))
}

func (f *fake) restart(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	if service := r.FormValue("service"); service != "" && service != "web" {
		refuse(w, http.StatusNotFound, "the stack has no service "+service+"; it has web")
		return
	}
	v := f.view(s)
	v["services"].([]map[string]string)[0]["status"] = "restarting"
	answer(w, http.StatusOK, v)
}

// listEnv lists variables with their values as the names of services, so that scripts see
// what arrived.
func (f *fake) listEnv(w http.ResponseWriter, _ *http.Request, s *fakeStack) {
	list := []map[string]any{{"service": "web", "name": "LEVEL", "from": "manifest", "changed_at": nil}}
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		service, _, _ := strings.Cut(name, "/")
		list = append(list, map[string]any{"service": service, "name": name + "=" + s.env[name], "from": "set", "changed_at": 1767323045.25})
	}
	answer(w, http.StatusOK, map[string]any{"variables": list})
}

// setEnv changes variables, and refuses those of another service than web. A variable WRONG
// makes the generation fail with the value broken, and lets another deploy take its place
// with overtaken.
func (f *fake) setEnv(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	var in struct {
		Services map[string]map[string]*string
		All      map[string]*string
		Build    bool
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	before := maps.Clone(s.env)
	values := map[string]map[string]*string{"all": in.All}
	maps.Copy(values, in.Services)
	if s.env == nil {
		s.env = map[string]string{}
	}
	for service, set := range values {
		if service == "api" {
			refuse(w, http.StatusUnprocessableEntity, "there is no service api; the services are web")
			return
		}
		for name, value := range set {
			delete(s.env, service+"/"+name)
			if value != nil {
				s.env[service+"/"+name] = *value
			}
		}
	}
	if !maps.Equal(before, s.env) {
		s.polls, s.deploying, s.envBefore = 1, s.generation+1, before
		s.attempt++
		f.event(s, "stack.redeploying", map[string]any{"generation": s.deploying, "build": in.Build})
	}
	answer(w, http.StatusOK, f.view(s))
}

func (f *fake) remove(w http.ResponseWriter, _ *http.Request, s *fakeStack) {
	delete(f.stacks, s.id)
	answer(w, http.StatusOK, map[string]string{"id": s.id, "status": "deleted"})
}

func (f *fake) listEvents(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	after, _ := strconv.Atoi(r.FormValue("after"))
	answer(w, http.StatusOK, map[string]any{"events": s.events[min(after, len(s.events)):]})
}

func (f *fake) logs(w http.ResponseWriter, r *http.Request, s *fakeStack) {
	kind, service := r.FormValue("kind"), cmp.Or(r.FormValue("service"), "web")
	if service != "web" && (kind != "build" || service != strings.TrimSpace(s.files["adds"])) {
		refuse(w, http.StatusNotFound, fmt.Sprintf("the stack has no service %q; its services are web", service))
		return
	}
	lines := []string{"one", "two \x1b]0;title\a", "three"}
	if kind == "build" {
		lines = strings.Fields(s.files["build.log"] + " built")
	}
	tail, _ := strconv.Atoi(r.FormValue("tail"))
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "### %s (%s)\n", service, kind)
	prefix := ""
	if r.FormValue("timestamps") == "true" {
		prefix = "2026-01-02T03:04:05.678Z gen 1 "
	}
	for _, line := range lines[max(0, len(lines)-tail):] {
		fmt.Fprintln(w, prefix+line)
	}
}

func (f *fake) claim(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ClaimCode string `json:"claim_code"`
	}
	_ = json.NewDecoder(r.Body).Decode(&body)
	switch {
	case bearerOf(r) != fakeKey:
		refuse(w, http.StatusUnauthorized, "no valid API key")
	case body.ClaimCode != "CLM-7K2M-Q9XD-4HTR":
		refuse(w, http.StatusNotFound, "there is no claim code "+body.ClaimCode)
	default:
		s := f.stacks[f.newest()]
		s.claimed = true
		answer(w, http.StatusOK, f.view(s))
	}
}

func (f *fake) me(w http.ResponseWriter, r *http.Request) {
	if bearerOf(r) != fakeKey {
		refuse(w, http.StatusUnauthorized, "no valid API key")
		return
	}
	stacks := []map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(f.stacks)) {
		if s := f.stacks[id]; s.claimed {
			stacks = append(stacks, f.view(s))
		}
	}
	answer(w, http.StatusOK, map[string]any{"email": fakeEmail, "stacks": stacks})
}

// validate answers with one plan, which is right when there is an index.html.
func (f *fake) validate(w http.ResponseWriter, r *http.Request) {
	if !f.plans {
		refuse(w, http.StatusNotFound, "there is no /v0/validate")
		return
	}
	if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer ast_anon_") {
		refuse(w, http.StatusUnauthorized, "this is not an API key")
		return
	}
	files, folder, err := receive(r)
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	faults := []string{}
	if files["index.html"] == "" {
		faults = []string{"service web: first", "service web: second"}
	}
	answer(w, http.StatusOK, map[string]any{
		"valid": len(faults) == 0, "faults": faults, "name": folder, "ttl": nil,
		"services": []map[string]any{{
			"name": "web", "runtime": "static", "built_with": "node@22", "root": ".", "build": "make it", "publish": "out", "env": []string{"KEY"},
			"from": map[string]string{"runtime": "the server", "build": "Makefile"},
		}},
	})
}

// asked returns how often a request came.
func (f *fake) asked(request string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, r := range f.requests {
		if r == request {
			n++
		}
	}
	return n
}

// uploaded returns the names of the files from which the newest stack was built.
func (f *fake) uploaded() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name := range f.stacks[f.newest()].files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// given returns the manifest beside the files from which the newest stack was built.
func (f *fake) given() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stacks[f.newest()].given
}
