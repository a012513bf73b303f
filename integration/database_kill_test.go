package integration

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// When a server dies that replaces the data of a database, the next one serves the old data
// until the new is committed, and then the new: never a part of it, and nothing else is left.
func TestDatabase_IsWholeAfterAKillDuringItsReplacement(t *testing.T) {
	t.Parallel()
	tree := packed(t)
	for service, path := range map[string]string{"db": "/pg", "cache": "/redis"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			h := start(t, with("BERTH_ORPHAN_GRACE", "1s"))
			k := &killed{h: h, st: h.live(t, tree, manifest(packedManifest)), service: service, path: path}
			k.write(t, "kept")
			k.dump = h.getAs(t, k.st.ManageToken, dataPath(k.st, service)).body
			k.holds(t, "kept")
			k.write(t, "later")
			k.duringTheBody(t)
			k.holds(t, "kept", "later")
			for _, point := range []string{"data-filled", "data-halted", "data-started", "data-healthy"} {
				k.at(t, point)
				k.holds(t, "kept", "later")
			}
			for _, point := range []string{"next-committed", "data-discarded"} {
				k.at(t, point)
				k.holds(t, "kept")
				k.write(t, "later")
			}
			require.NotContains(t, h.eventTypes(t, k.st), "service.crashed")
		})
	}
}

// killed is a database whose replacement the server's death interrupts.
type killed struct {
	h             *Host
	st            *Stack
	service, path string
	dump          string
}

func (k *killed) write(t *testing.T, name string) {
	t.Helper()
	eventually(t, "it takes "+name, func() error {
		if r := k.h.get(t, k.st.url("web", k.path+"/"+name)); r.status != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
}

// duringTheBody kills the server when it has received half of the dump.
func (k *killed) duringTheBody(t *testing.T) {
	t.Helper()
	body, sender := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		res, err := k.h.newClient().Do(k.request(t, body))
		if err == nil {
			res.Body.Close()
		}
		ended <- err
	}()
	_, err := io.WriteString(sender, k.dump[:len(k.dump)/2])
	require.NoError(t, err)
	eventually(t, "a volume is being filled", func() error {
		if n := k.volumes(t); n != 2 {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	k.h.kill(t)
	sender.CloseWithError(io.ErrClosedPipe) // for which the client waits
	require.Error(t, <-ended)
	k.h.run(t)
}

// at kills the server at a failpoint of a replacement.
func (k *killed) at(t *testing.T, point string) {
	t.Helper()
	k.h.stop(t)
	k.h.failAt(point)
	k.h.run(t)
	p := k.h.running()
	k.h.attempt(t, http.MethodPut, dataPath(k.st, k.service), k.dump, "Authorization", "Bearer "+k.st.ManageToken)
	_ = p.wait(t)
	require.Contains(t, k.h.log.String(), "killed at the failpoint "+point)
	k.h.failAt("")
	k.h.run(t)
}

func (k *killed) request(t *testing.T, body io.Reader) *http.Request {
	return k.h.request(t, http.MethodPut, dataPath(k.st, k.service), body, "Authorization", "Bearer "+k.st.ManageToken)
}

// holds asserts that the database is healthy and has exactly these names, with one container
// and one volume.
func (k *killed) holds(t *testing.T, names ...string) {
	t.Helper()
	eventually(t, "nothing else is left", func() error { // until then it may be another process that answers
		if n, all := k.volumes(t), k.containers(t); n != 1 || len(all) != 1 {
			return fmt.Errorf("there are %d volumes and %q", n, all)
		}
		return nil
	})
	eventually(t, fmt.Sprintf("it has %q", names), func() error {
		if r := k.h.get(t, k.st.url("web", k.path+"-all")); r.status != http.StatusOK {
			return errors.New(r.String())
		}
		return nil
	})
	require.ElementsMatch(t, names, of[[]string](t, k.h, k.st, k.path+"-all"))
	eventually(t, "it is running", func() error {
		if status := k.h.show(t, k.st, "").statuses()[k.service]; status != "running" {
			return errors.New("it is " + status)
		}
		return nil
	})
}

func (k *killed) volumes(t *testing.T) int {
	t.Helper()
	return len(k.objects(t, "volume "+k.service+"-data"))
}

func (k *killed) containers(t *testing.T) []string {
	t.Helper()
	return k.objects(t, "container "+k.service+"-")
}

// objects returns the names of the database's objects that begin with a prefix.
func (k *killed) objects(t *testing.T, prefix string) []string {
	t.Helper()
	return slices.DeleteFunc(k.h.has(t, k.st), func(name string) bool { return !strings.HasPrefix(name, prefix) })
}
