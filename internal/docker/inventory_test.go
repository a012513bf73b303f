package docker

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestInventory_ReturnsWhatItFoundWithAnError(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := "{}"
		switch {
		case strings.HasSuffix(r.URL.Path, "/containers/json"):
			answer = `[{"Id": "c", "Names": ["/n"], "Labels": {"berth.stack": "stk_0123456789ab"}}, {"Id": "d"}]`
		case strings.HasSuffix(r.URL.Path, "/images/json"):
			answer = "[]"
		case strings.HasSuffix(r.URL.Path, "/networks"):
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, answer) //nolint:errcheck // the test sees it
	}))
	t.Cleanup(server.Close)
	e, err := open(t.Context(), "tcp://"+server.Listener.Addr().String(), quiet)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	there, err := NewDriver(e, Info{}, DriverOptions{}).Inventory(t.Context(), "")
	require.ErrorContains(t, err, "list networks")
	assert.Equal(t, map[string]engine.Objects{
		key.Stack: {Containers: []engine.Container{{ID: "c", Name: "n", Key: engine.Key{Stack: key.Stack}}}},
	}, there)
}

func TestEnsureVolume_MakesItOnceAndFindsItAgain(t *testing.T) {
	b := testBench(t)
	name := b.volume(t)
	isNew, err := b.driver.ensureVolume(t.Context(), name, b.driver.labels(key))
	require.NoError(t, err)
	require.False(t, isNew)
	list, err := b.driver.Volumes(t.Context(), engine.Key{})
	require.NoError(t, err)
	assert.Equal(t, []engine.Volume{{Name: name, Key: key}}, list)
	_, err = b.driver.ensureVolume(t.Context(), name, engine.Key{}.Labels("somebody-else"))
	require.ErrorIs(t, err, errConflict)
}

func TestRemoveVolume_RefusesOneInUseAndForgivesOneThatIsGone(t *testing.T) {
	b := testBench(t)
	name := b.volume(t)
	spec := b.spec("serve")
	spec.Volumes = map[string]string{"/data": name}
	id := b.create(t, spec)
	require.ErrorIs(t, b.driver.removeVolume(t.Context(), name), errConflict)
	require.NoError(t, b.driver.Remove(t.Context(), id))
	require.NoError(t, b.driver.removeVolume(t.Context(), name))
	require.NoError(t, b.driver.removeVolume(t.Context(), name))
}

func TestCreate_AVolumeThatTheEngineMakesCanBeFound(t *testing.T) {
	b := testBench(t)
	name := b.volume(t)
	require.NoError(t, b.driver.removeVolume(t.Context(), name))
	spec := b.spec("serve")
	spec.Volumes = map[string]string{"/data": name}
	// As when the volume is removed after tryCreate has looked for it.
	made, err := b.engine.api.ContainerCreate(t.Context(), config(&spec, nil), b.driver.hostConfig(&spec), nil, nil, spec.Name)
	require.NoError(t, err)
	require.NoError(t, b.driver.Remove(t.Context(), made.ID))
	list, err := b.driver.Volumes(t.Context(), engine.Key{})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, name, list[0].Name)
}

func TestRemove_TakesAnonymousVolumesAlong(t *testing.T) {
	b := testBench(t)
	named := b.volume(t)
	spec := b.spec("serve")
	spec.Volumes = map[string]string{"/data": named}
	ref := b.name() + ":1"
	require.NoError(t, b.driver.MakeImage(t.Context(), engine.ImageSpec{
		Context: b.dockerfile(t, `VOLUME /app`), Ref: ref,
	}, writerFunc(func(p []byte) (int, error) { return len(p), nil })))
	b.removeAfter(t, ref)
	spec.Image = ref
	id := b.create(t, spec)
	found, err := b.engine.api.ContainerInspect(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, found.Mounts, 2)
	require.NoError(t, b.driver.Remove(t.Context(), id))
	for _, m := range found.Mounts {
		_, err := b.engine.api.VolumeInspect(t.Context(), m.Name)
		if m.Name == named {
			assert.NoError(t, err)
		} else {
			assert.ErrorIs(t, wrap(err, "inspect volume"), engine.ErrNotFound)
		}
	}
}
