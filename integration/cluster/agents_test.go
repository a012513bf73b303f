package cluster

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// agent uses the cluster through random nodes and remembers what was acknowledged.
type agent struct {
	chaos *chaos
	name  string
	rand  *rand.Rand
	made  int
	mine  []*belief
	open  []*request // creates that were not answered
}

// request is a create, which can be sent again.
type request struct {
	key, site string
	body      []byte
	kind      string // Content-Type
}

// stacksEach is how many stacks an agent has at once.
const stacksEach = 2

// any returns the server of a random node.
func (a *agent) any() *Host { return a.chaos.c.hosts[a.rand.IntN(len(a.chaos.c.hosts))] }

// act does one thing.
func (a *agent) act(t *testing.T) {
	t.Helper()
	var alive []*belief
	for _, b := range a.mine {
		if !b.deleted && !b.doomed {
			alive = append(alive, b)
		}
	}
	if len(alive) < stacksEach {
		a.create(t)
		return
	}
	b := alive[a.rand.IntN(len(alive))]
	switch a.rand.IntN(26) {
	case 0:
		a.delete(t, b)
	case 1, 2, 3:
		a.redeploy(t, b)
	case 4:
		if !b.claimed {
			a.claim(t, b)
		}
	case 5:
		a.noted(t, "extend", b, a.any().extend(t, b.st, "1h"))
	case 6:
		a.shorten(t, b)
	case 7:
		a.counted(t, "crash", b, a.any().get(t, b.st.url("web", "/exit")))
	case 8:
		a.exec(t, b)
	case 9:
		a.write(t, b)
	case 10, 11, 12, 13:
		a.look(t, b)
	default:
		a.counted(t, "process", b, b.sightings.look(t, a.any(), b.st))
	}
}

// noted counts an answer of the API, of which b is nil for a create, and asserts that it may
// be.
func (a *agent) noted(t *testing.T, what string, b *belief, r Reply) Reply {
	t.Helper()
	a.chaos.count(fmt.Sprintf("%s %d", what, r.status))
	err := unexpected(r)
	if r.status == http.StatusNotFound && b != nil && !b.mayBeGone() {
		err = fmt.Errorf("stack %s is not found: %s", b.st.ID, r)
	}
	if err != nil {
		t.Errorf("%s: %s: %v", time.Now().Format(time.TimeOnly), what, err)
	}
	return r
}

// counted counts an answer of a service, and asserts that it may be.
func (a *agent) counted(t *testing.T, what string, b *belief, r Reply) {
	t.Helper()
	a.chaos.count(fmt.Sprintf("%s %d", what, r.status))
	if err := b.mayAnswer(r); err != nil {
		t.Errorf("%s: %s of stack %s: %v", time.Now().Format(time.TimeOnly), what, b.st.ID, err)
	}
}

func (a *agent) create(t *testing.T) {
	t.Helper()
	a.made++
	site := fmt.Sprintf("a site of %s, number %d", a.name, a.made)
	body, kind := form(t, app.plus("site/index.html", site), appManifest)
	a.post(t, &request{key: fmt.Sprintf("%s-%d", a.name, a.made), site: site, body: body, kind: kind})
}

// post sends a create and remembers it if it has to be sent again.
func (a *agent) post(t *testing.T, q *request) {
	t.Helper()
	r := a.noted(t, "create", nil, a.any().attempt(t, http.MethodPost, "/v0/stacks", q.body, "Content-Type", q.kind, "Idempotency-Key", q.key))
	switch {
	case r.status == http.StatusCreated:
		b := &belief{st: r.stack(t), site: q.site, texts: map[int]string{1: q.site}, files: map[string]written{}, left: map[string]written{}}
		a.mine = append(a.mine, b)
		a.chaos.c.adopt(b.st)
	case r.vague(), r.status == http.StatusConflict: // the same create is under way
		a.open = append(a.open, q)
	default:
		t.Errorf("a create is answered %s", r)
	}
}

// settle repeats the creates that were not answered, once everything works again.
func (a *agent) settle(t *testing.T) {
	t.Helper()
	eventually(t, "every create is answered", func() error {
		open := a.open
		a.open = nil
		for _, q := range open {
			a.post(t, q)
		}
		return same("0", strconv.Itoa(len(a.open)))
	})
}

// redeploy sends another generation, now and then one that cannot come up.
func (a *agent) redeploy(t *testing.T, b *belief) {
	t.Helper()
	text := fmt.Sprintf("%s, version %d", b.site, a.rand.IntN(1e6))
	tree := app.plus("site/index.html", text)
	if a.rand.IntN(6) == 0 {
		tree = tree.plus("server.pl", "exit 4")
	}
	r := a.noted(t, "deploy", b, a.any().redeploy(t, b.st, tree, appManifest))
	switch {
	case r.vague():
		b.perhaps = append(b.perhaps, text)
	case r.status < 300:
		b.deploys++
		if now := r.stack(t); now.Deploying != nil {
			b.texts[*now.Deploying] = text
		} else {
			t.Errorf("a deploy is answered %s", r)
		}
	}
}

// claim claims a stack, perhaps not for the first time: the answer to the first may not have
// come.
func (a *agent) claim(t *testing.T, b *belief) {
	t.Helper()
	r := a.any().claim(t, a.chaos.key, b.st)
	if r.status == http.StatusNotFound && b.maybeClaimed {
		a.chaos.count("claim repeated 404")
		return
	}
	a.noted(t, "claim", b, r)
	b.claimed = b.claimed || r.status == http.StatusOK
	b.maybeClaimed = b.maybeClaimed || b.claimed || r.vague()
}

// shorten has a stack expire soon, unless it is claimed.
func (a *agent) shorten(t *testing.T, b *belief) {
	t.Helper()
	r := a.noted(t, "shorten", b, a.any().extend(t, b.st, "2s"))
	b.mortal = b.mortal || r.vague() || r.status == http.StatusOK
}

// deletions is how often an agent sends a DELETE that is not answered.
const deletions = 3

// delete deletes a stack. That it is not found is the answer to a DELETE that is sent again, by
// this agent or by the node that it asked, since the one before deleted the stack. compare looks
// at a stack that may have expired.
func (a *agent) delete(t *testing.T, b *belief) {
	t.Helper()
	for range deletions {
		r := a.any().delete(t, b.st)
		if r.status == http.StatusNotFound {
			a.chaos.count("delete repeated 404")
			b.deleted = true
			return
		}
		a.noted(t, "delete", b, r)
		b.deleted = r.status == http.StatusOK
		b.doomed = b.doomed || r.vague() && !strings.Contains(r.body, "so the stack was not deleted")
		if !r.vague() {
			return
		}
	}
}

// exec runs a command beside the service web.
func (a *agent) exec(t *testing.T, b *belief) {
	t.Helper()
	token := b.st.ManageToken
	if b.claimed {
		token = a.chaos.key
	}
	r := a.noted(t, "exec", b, a.any().as(t, token, http.MethodPost, "/v0/stacks/"+b.st.ID+"/services/web/exec", `{"command": "echo $((6 * 7))"}`))
	if r.status != http.StatusOK {
		return
	}
	var end struct {
		ExitCode *int `json:"exit_code"`
		Output   string
	}
	if err := json.Unmarshal([]byte(r.body), &end); err != nil {
		t.Errorf("a command is answered %s: %v", r, err)
		return
	}
	// Whatever ends a command from outside leaves no exit code, or that of a signal.
	ended := end.ExitCode == nil || *end.ExitCode > 128
	if whole := end.ExitCode != nil && *end.ExitCode == 0 && end.Output == "42\n"; !whole && (!ended || !strings.HasPrefix("42\n", end.Output)) {
		t.Errorf("a command ends with %s", r)
	}
}

// write has the service web write a file.
func (a *agent) write(t *testing.T, b *belief) {
	t.Helper()
	b.writes++
	name, content := fmt.Sprintf("file%d", b.writes), strconv.Itoa(a.rand.Int())
	r := a.any().attempt(t, http.MethodPost, b.st.url("web", "/write?name="+name), []byte(content))
	a.counted(t, "write", b, r)
	if r.status == http.StatusOK {
		b.files[name] = written{content: content, at: time.Now()}
	}
}

// look asks for the site of a stack.
func (a *agent) look(t *testing.T, b *belief) {
	t.Helper()
	r := a.any().get(t, b.st.url("site", "/"))
	a.counted(t, "site", b, r)
	if r.status == http.StatusOK && !strings.HasPrefix(r.body, b.site) {
		t.Errorf("%s: the site of %q answers %s", time.Now().Format(time.TimeOnly), b.site, r)
	}
}
