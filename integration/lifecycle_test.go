package integration

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

// postDeploy sends a redeploy as it is.
func (h *Host) postDeploy(t *testing.T, st *Stack, tree Tree, fields Fields) Reply {
	t.Helper()
	return h.postArchive(t, st, archive(t, tree), fields)
}

// postArchive is postDeploy of an archive as it is.
func (h *Host) postArchive(t *testing.T, st *Stack, source []byte, fields Fields) Reply {
	t.Helper()
	body, contentType := form(t, source, fields)
	return h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/deploy", bytes.NewReader(body),
		"Content-Type", contentType, "Authorization", "Bearer "+st.ManageToken))
}

// begin starts a redeploy and returns the stack as it is then.
func (h *Host) begin(t *testing.T, st *Stack, tree Tree, fields Fields) *Stack {
	t.Helper()
	r := h.postDeploy(t, st, tree, fields)
	require.Equal(t, http.StatusOK, r.status, r.body)
	return r.stack(t)
}

// redeploy deploys a new generation and waits for what becomes of it.
func (h *Host) redeploy(t *testing.T, st *Stack, tree Tree, fields Fields) *Stack {
	t.Helper()
	h.begin(t, st, tree, fields)
	return h.deployed(t, st)
}

// deployed waits until nothing of a stack is built any more.
func (h *Host) deployed(t *testing.T, st *Stack) *Stack {
	t.Helper()
	var now *Stack
	eventually(t, "the deploy ends", func() error {
		if now = h.show(t, st, "?wait=true"); now.Deploying != nil || now.Status == "building" {
			return fmt.Errorf("the stack is %s", now.Status)
		}
		return nil
	})
	return now
}

// deployError is why the last redeploy was rolled back, "" when it was not.
func (st *Stack) deployError() string {
	if st.DeployError == nil {
		return ""
	}
	return *st.DeployError
}

// statuses are those of the services, by name.
func (st *Stack) statuses() map[string]string {
	all := map[string]string{}
	for _, s := range st.Services {
		all[s.Name] = s.Status
	}
	return all
}

// served is the generation whose process answers for a service.
func (h *Host) served(t *testing.T, st *Stack, service string) string {
	t.Helper()
	return h.environ(t, st, service)["GENERATION"]
}

// has lists a stack's objects in the engine, and its sources: names of containers, in
// whatever state, images, data volumes and networks, as inventory gives them. An image
// that the row names has the name of its service alone. The source that it names is left
// out, and what is there for the next builds.
func (h *Host) has(t *testing.T, st *Stack) []string {
	t.Helper()
	all, err := h.inventory(t.Context())
	require.NoError(t, err)
	named := h.named(t, st)
	found := []string{}
	for _, object := range all[st.ID] {
		kind, name, _ := strings.Cut(object, " ")
		short, isNamed := named[object]
		switch {
		case isNamed && short != "":
			found = append(found, short)
		case isNamed || strings.HasPrefix(name, "container "+invariants.ReadyPrefix):
		case kind == "file" && strings.HasPrefix(name, "sources/"):
			found = append(found, object)
		case kind == "file" || kind == "volume" && !strings.Contains(name, "-data"):
		case strings.HasPrefix(name, "container "):
			found = append(found, name) // without its state
		default:
			found = append(found, object)
		}
	}
	return found
}

// named maps the images and the source that a stack's row names to what has calls them;
// "" for what it leaves out. A layer with the source is made some time after a deploy.
func (h *Host) named(t *testing.T, st *Stack) map[string]string {
	t.Helper()
	rows, err := h.rows(t.Context())
	require.NoError(t, err)
	names := map[string]string{}
	for i := range rows {
		if r := &rows[i]; r.ID == st.ID {
			names["file sources/"+r.Source.Folder] = ""
			names[r.ReadyNetwork()] = ""
			for j := range r.Services {
				names[r.Image(r.Services[j].Image)] = "image " + r.Services[j].Spec.Name
			}
			for _, layer := range r.Layers {
				names[r.Image(layer.Source.Image)] = ""
			}
		}
	}
	return names
}

// keeps waits until the engine has exactly these objects of a stack, and of its sources
// only the one that its row names.
func (h *Host) keeps(t *testing.T, st *Stack, want ...string) {
	t.Helper()
	eventually(t, "the engine has what the stack implies", func() error {
		if has := h.has(t, st); !maps.Equal(set(want), set(has)) {
			return fmt.Errorf("it has %q, not %q", has, want)
		}
		return nil
	})
}

func set(names []string) map[string]bool {
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// last is the last event of a type.
func last(t *testing.T, events []Event, kind string) Event {
	t.Helper()
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Type == kind {
			return events[i]
		}
	}
	t.Fatalf("there is no %s among %v", kind, types(events))
	return Event{}
}

// after are the events after the first n.
func (h *Host) after(t *testing.T, st *Stack, n int) []string {
	t.Helper()
	return types(h.events(t, st))[n:]
}

// gated runs program once the file "go" is in its $DATA_DIR.
const gated = `{services: [{name: web, runtime: node, start: 'while [ ! -e $DATA_DIR/go ]; do sleep 0.05; done; exec node server.js'}]}`

// put writes a file into the $DATA_DIR of a service that runs program.
func (h *Host) put(t *testing.T, st *Stack, service, name, text string) {
	t.Helper()
	r := h.do(t, h.request(t, http.MethodPost, st.url(service, "/write?name="+name), strings.NewReader(text)))
	require.Equal(t, http.StatusOK, r.status, r.body)
}

func (h *Host) file(t *testing.T, st *Stack, service, name string) string {
	t.Helper()
	return h.get(t, st.url(service, "/read?name="+name)).body
}
