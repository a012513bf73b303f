package docker

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestEnsureNetwork_MakesItOnceAndFindsItAgain(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	require.NoError(t, b.driver.ensureNetwork(t.Context(), spec))
	list, err := b.driver.Networks(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, []engine.Network{{Name: spec.name, Key: key}}, list)
	require.NoError(t, b.driver.removeNetwork(t.Context(), spec.name))
	require.NoError(t, b.driver.removeNetwork(t.Context(), spec.name), "gone already")
}

func TestEnsureNetwork_NamesItsBridge(t *testing.T) {
	b := testBench(t)
	made := b.network(t)
	found, err := b.engine.api.NetworkInspect(t.Context(), made.name, network.InspectOptions{})
	require.NoError(t, err)
	assert.Equal(t, "bridge", found.Driver)
	assert.Equal(t, made.device, found.Options[bridgeName])
}

func TestEnsureNetwork_RecognisesASubnetInUse(t *testing.T) {
	b := testBench(t)
	taken := b.network(t)
	for _, bits := range []int{24, 28, 30} {
		spec := b.bridge()
		spec.subnet = netip.PrefixFrom(taken.subnet.Addr(), bits)
		err := b.driver.ensureNetwork(t.Context(), spec)
		require.ErrorIs(t, err, errSubnetTaken)
		assert.NotErrorIs(t, err, errConflict)
		assert.Contains(t, err.Error(), "create network "+spec.name)
	}
}

func TestEnsureNetwork_RecognisesASubnetThatIsBeingTaken(t *testing.T) {
	b := testBench(t)
	free := b.network(t)
	require.NoError(t, b.driver.removeNetwork(t.Context(), free.name))
	results := make(chan error, 2)
	for range 2 {
		spec := b.bridge()
		spec.subnet = free.subnet
		t.Cleanup(func() { require.NoError(t, b.driver.removeNetwork(context.Background(), spec.name)) })
		go func() {
			err := b.driver.ensureNetwork(t.Context(), spec)
			results <- err
		}()
	}
	first, second := <-results, <-results
	if first == nil {
		first, second = second, first
	}
	require.NoError(t, second)
	require.ErrorIs(t, first, errSubnetTaken)
}

func TestEnsureNetwork_RefusesABridgeInUse(t *testing.T) {
	b := testBench(t)
	taken, free := b.network(t), b.network(t)
	for _, name := range []string{taken.name, free.name} {
		require.NoError(t, b.driver.removeNetwork(t.Context(), name))
	}
	free.device = taken.device
	err := b.driver.ensureNetwork(t.Context(), taken)
	require.NoError(t, err)
	err = b.driver.ensureNetwork(t.Context(), free)
	require.ErrorIs(t, err, errConflict)
}

func TestEnsureNetwork_RefusesANameOfSomebodyElse(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	spec.labels = engine.Key{}.Labels("somebody-else")
	err := b.driver.ensureNetwork(t.Context(), spec)
	require.ErrorIs(t, err, errConflict)
}

func TestEnsureNetwork_ManyAtOnceMakeOne(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	require.NoError(t, b.driver.removeNetwork(t.Context(), spec.name))
	var makers sync.WaitGroup
	for range 3 {
		makers.Go(func() { assert.NoError(t, b.driver.ensureNetwork(t.Context(), spec)) })
	}
	makers.Wait()
	named, err := b.driver.networksNamed(t.Context(), spec.name)
	require.NoError(t, err)
	assert.Len(t, named, 1)
}

func TestRestart_FreesAContainerOfAnAddressThatAnotherGot(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	first, second := b.spec("serve"), b.spec("serve")
	first.Network, second.Network = spec.name, spec.name
	id, other := b.run(t, first), b.run(t, second)
	require.NoError(t, b.driver.Promote(t.Context(), id, "name"))
	takes := b.exchange(t, id, other)
	require.NoError(t, b.driver.Stop(t.Context(), id))
	takes()
	require.ErrorIs(t, b.driver.Start(t.Context(), id), engine.ErrAddressTaken)
	require.NoError(t, b.driver.Restart(t.Context(), id, "name"))
	found, err := b.driver.inspect(t.Context(), id)
	require.NoError(t, err)
	now := found.NetworkSettings.Networks[spec.name]
	require.NotNil(t, now)
	assert.NotEmpty(t, now.IPAddress)
	assert.Contains(t, now.Aliases, "name")
}

func TestRemoveNetwork_DisconnectsWhatIsLeft(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	for range 2 {
		c := b.spec("serve")
		c.Network = spec.name
		b.run(t, c)
	}
	require.NoError(t, b.driver.removeNetwork(t.Context(), spec.name))
	named, err := b.driver.networksNamed(t.Context(), spec.name)
	require.NoError(t, err)
	assert.Empty(t, named)
}

func TestRemoveNetwork_RemovesEveryOneOfThatName(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	_, err := b.engine.api.NetworkCreate(t.Context(), spec.name+"x", network.CreateOptions{Labels: b.driver.labels(key)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.driver.removeNetwork(context.Background(), spec.name+"x")) })
	require.NoError(t, b.driver.removeNetwork(t.Context(), spec.name))
	named, err := b.driver.networksNamed(t.Context(), spec.name+"x")
	require.NoError(t, err)
	assert.Len(t, named, 1, "a name that only begins alike stays")
}

// The answer that was lost may have been a refusal, so that there is no network.
func TestEnsureNetwork_AsksAgainWhereALostAnswerLeftNone(t *testing.T) {
	var creates atomic.Int32
	engine := http.NewServeMux()
	engine.HandleFunc("GET /v1.41/networks", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "[]") }) //nolint:errcheck // the test sees it
	engine.HandleFunc("POST /v1.41/networks/create", func(w http.ResponseWriter, _ *http.Request) {
		if creates.Add(1) == 1 {
			panic(http.ErrAbortHandler) // ends the connection
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, `{"Id":"made"}`) //nolint:errcheck // the test sees it
	})
	err := fakeDriver(t, engine).ensureNetwork(t.Context(), bridge{name: "n", device: "bt1", subnet: netip.MustParsePrefix("10.9.9.0/28")})
	if err != nil || creates.Load() != 2 {
		t.Errorf("%d requests: %v", creates.Load(), err)
	}
}

// An engine that lists slowly has still said that the subnet is in use.
func TestEnsureNetwork_RecognisesASubnetInUseOnASlowEngine(t *testing.T) {
	t.Parallel()
	var refused atomic.Bool
	engine := http.NewServeMux()
	engine.HandleFunc("GET /v1.41/networks", func(w http.ResponseWriter, _ *http.Request) {
		if refused.Load() {
			time.Sleep(networkMaking + networkPause)
		}
		io.WriteString(w, "[]") //nolint:errcheck // the test sees it
	})
	engine.HandleFunc("POST /v1.41/networks/create", func(w http.ResponseWriter, _ *http.Request) {
		refused.Store(true)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, `{"message":"Pool overlaps with other one on this address space"}`) //nolint:errcheck // the test sees it
	})
	err := fakeDriver(t, engine).ensureNetwork(t.Context(), bridge{name: "n", device: "bt1", subnet: netip.MustParsePrefix("10.9.9.0/28")})
	require.ErrorIs(t, err, errSubnetTaken)
}

// A full disk keeps the engine from removing the endpoint of a container that ends.
func TestNetwork_IsRemovedWithWhatIsLeftOfContainers(t *testing.T) {
	left := map[string]bool{"running": true, "berth-1-build": true}
	engine := http.NewServeMux()
	engine.HandleFunc("GET /v1.41/networks/{id}", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"Id": "n", "Containers": {"running": {"Name": "web"}, "ep-4711": {"Name": "berth-1-build"}}}`) //nolint:errcheck // the test sees it
	})
	engine.HandleFunc("POST /v1.41/networks/{id}/disconnect", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Container string
			Force     bool
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || !left[asked.Container] || !asked.Force {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		delete(left, asked.Container)
	})
	engine.HandleFunc("DELETE /v1.41/networks/{id}", func(w http.ResponseWriter, _ *http.Request) {
		if len(left) > 0 {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, `{"message":"network n has active endpoints"}`) //nolint:errcheck // the test sees it
		}
	})
	require.NoError(t, fakeDriver(t, engine).removeNetworkByID(t.Context(), "n"))
	require.Empty(t, left)
}

// fakeDriver returns the driver of an engine that also answers what else it is asked.
func fakeDriver(t *testing.T, engine *http.ServeMux) *Driver {
	t.Helper()
	engine.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		io.WriteString(w, "{}") //nolint:errcheck // the test sees it
	})
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	e, err := open(t.Context(), "tcp://"+server.Listener.Addr().String(), quiet)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return NewDriver(e, Info{}, DriverOptions{})
}
