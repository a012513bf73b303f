package docker

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/network"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestEnsureNetwork_MakesItOnceAndFindsItAgain(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	first, err := b.engine.ensureNetwork(t.Context(), spec)
	require.NoError(t, err)
	again, err := b.engine.ensureNetwork(t.Context(), spec)
	require.NoError(t, err)
	assert.Equal(t, first, again)

	list, err := b.engine.networks(t.Context(), b.labels)
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, Network{ID: first, Name: spec.Name, Subnet: spec.Subnet, Labels: b.labels}, list[0])

	require.NoError(t, b.engine.removeNetwork(t.Context(), spec.Name))
	require.NoError(t, b.engine.removeNetwork(t.Context(), spec.Name), "gone already")
}

func TestEnsureNetwork_NamesItsBridge(t *testing.T) {
	b := testBench(t)
	free := b.network(t) // finds a subnet
	require.NoError(t, b.engine.removeNetwork(t.Context(), free.Name))
	free.Bridge = "bt" + b.name()[11:22]
	id, err := b.engine.ensureNetwork(t.Context(), free)
	require.NoError(t, err)
	found, err := b.engine.api.NetworkInspect(t.Context(), id, network.InspectOptions{})
	require.NoError(t, err)
	assert.Equal(t, "bridge", found.Driver)
	assert.Equal(t, free.Bridge, found.Options[bridgeName])
}

func TestEnsureNetwork_RecognisesASubnetInUse(t *testing.T) {
	b := testBench(t)
	taken := b.network(t)
	for _, bits := range []int{24, 28, 30} {
		spec := NetworkSpec{Name: b.name(), Labels: b.labels, Subnet: netip.PrefixFrom(taken.Subnet.Addr(), bits)}
		_, err := b.engine.ensureNetwork(t.Context(), spec)
		require.ErrorIs(t, err, ErrSubnetTaken)
		assert.NotErrorIs(t, err, ErrConflict)
		assert.Contains(t, err.Error(), "create network "+spec.Name)
	}
}

func TestEnsureNetwork_RecognisesASubnetThatIsBeingTaken(t *testing.T) {
	b := testBench(t)
	free := b.network(t)
	require.NoError(t, b.engine.removeNetwork(t.Context(), free.Name))
	results := make(chan error, 2)
	for range 2 {
		spec := NetworkSpec{Name: b.name(), Labels: b.labels, Subnet: free.Subnet}
		t.Cleanup(func() { require.NoError(t, b.engine.removeNetwork(context.Background(), spec.Name)) })
		go func() {
			_, err := b.engine.ensureNetwork(t.Context(), spec)
			results <- err
		}()
	}
	first, second := <-results, <-results
	if first == nil {
		first, second = second, first
	}
	require.NoError(t, second)
	require.ErrorIs(t, first, ErrSubnetTaken)
}

func TestEnsureNetwork_RefusesABridgeInUse(t *testing.T) {
	b := testBench(t)
	taken, free := b.network(t), b.network(t)
	for _, name := range []string{taken.Name, free.Name} {
		require.NoError(t, b.engine.removeNetwork(t.Context(), name))
	}
	taken.Bridge = "bt" + b.name()[11:22]
	free.Bridge = taken.Bridge
	_, err := b.engine.ensureNetwork(t.Context(), taken)
	require.NoError(t, err)
	_, err = b.engine.ensureNetwork(t.Context(), free)
	require.ErrorIs(t, err, ErrConflict)
}

func TestEnsureNetwork_RefusesANameOfSomebodyElse(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	spec.Labels = Labels{"berth-test": "somebody-else"}
	_, err := b.engine.ensureNetwork(t.Context(), spec)
	require.ErrorIs(t, err, ErrConflict)
}

func TestEnsureNetwork_ManyAtOnceMakeOne(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	require.NoError(t, b.engine.removeNetwork(t.Context(), spec.Name))
	ids := make([]string, 6)
	var makers sync.WaitGroup
	for i := range ids {
		makers.Go(func() {
			id, err := b.engine.ensureNetwork(t.Context(), spec)
			assert.NoError(t, err)
			ids[i] = id
		})
	}
	makers.Wait()
	named, err := b.engine.networksNamed(t.Context(), spec.Name)
	require.NoError(t, err)
	require.Len(t, named, 1)
	for _, id := range ids {
		assert.Equal(t, named[0].ID, id)
	}
}

func TestRealias_FreesAContainerOfAnAddressThatAnotherGot(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	first, second := b.spec("serve"), b.spec("serve")
	first.Network, second.Network = spec.Name, spec.Name
	id := b.run(t, first)
	require.NoError(t, b.engine.realias(t.Context(), id, spec.Name, "name"))
	had, err := b.engine.inspect(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, b.engine.stop(t.Context(), id))

	other := b.create(t, second)
	require.NoError(t, b.engine.api.NetworkDisconnect(t.Context(), spec.Name, other, false))
	require.NoError(t, b.engine.api.NetworkConnect(t.Context(), spec.Name, other, &network.EndpointSettings{
		IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: had.IP},
	}))
	require.NoError(t, b.engine.start(t.Context(), other))
	require.ErrorIs(t, b.engine.start(t.Context(), id), engine.ErrAddressTaken)
	require.NoError(t, b.engine.realias(t.Context(), id, spec.Name, "name"))
	require.NoError(t, b.engine.start(t.Context(), id))
}

func TestRealias_LeavesAContainerOnTheNetworkWhoseAddressAnotherGot(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	first, second := b.spec("serve"), b.spec("serve")
	first.Network, second.Network = spec.Name, spec.Name
	id, other := b.run(t, first), b.run(t, second)
	had, err := b.engine.inspect(t.Context(), id)
	require.NoError(t, err)
	require.NoError(t, b.engine.api.NetworkDisconnect(t.Context(), spec.Name, other, false))
	remote := b.after(t, "/disconnect", func() {
		assert.NoError(t, b.engine.api.NetworkConnect(t.Context(), spec.Name, other, &network.EndpointSettings{
			IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: had.IP},
		}))
	})
	require.ErrorIs(t, remote.realias(t.Context(), id, spec.Name, "name"), engine.ErrAddressTaken)
	found, err := b.engine.rawInspect(t.Context(), id)
	require.NoError(t, err)
	now := found.NetworkSettings.Networks[spec.Name]
	require.NotNil(t, now)
	assert.NotEmpty(t, now.IPAddress)
	assert.NotEqual(t, had.IP, now.IPAddress)
	assert.Contains(t, now.Aliases, "name")
}

func TestRealias_PutsAContainerBackOnTheNetwork(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	c := b.spec("serve")
	c.Network = spec.Name
	id := b.run(t, c)
	require.NoError(t, b.engine.api.NetworkDisconnect(t.Context(), spec.Name, id, false))
	require.NoError(t, b.engine.stop(t.Context(), id))
	require.NoError(t, b.engine.start(t.Context(), id))
	had, err := b.engine.inspect(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, had.IP, "the engine puts it back by itself")
	require.NoError(t, b.engine.realias(t.Context(), id, spec.Name, "name"))
	found, err := b.engine.rawInspect(t.Context(), id)
	require.NoError(t, err)
	now := found.NetworkSettings.Networks[spec.Name]
	require.NotNil(t, now)
	assert.NotEmpty(t, now.IPAddress)
	assert.Contains(t, now.Aliases, "name")
}

// after is the engine by a way on which something is done after each request to a
// path, before its answer goes on.
func (b *bench) after(t *testing.T, path string, do func()) *Engine {
	t.Helper()
	return b.newWay(t, func(answer *http.Response) error {
		if strings.HasSuffix(answer.Request.URL.Path, path) {
			do()
		}
		return nil
	}).engine
}

func TestRemoveNetwork_DisconnectsWhatIsLeft(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	for range 2 {
		c := b.spec("serve")
		c.Network = spec.Name
		b.run(t, c)
	}
	require.NoError(t, b.engine.removeNetwork(t.Context(), spec.Name))
	named, err := b.engine.networksNamed(t.Context(), spec.Name)
	require.NoError(t, err)
	assert.Empty(t, named)
}

func TestRemoveNetwork_RemovesEveryOneOfThatName(t *testing.T) {
	b := testBench(t)
	spec := b.network(t)
	// The engine checks names on request only; two makers at once can do this.
	_, err := b.engine.api.NetworkCreate(t.Context(), spec.Name+"x", network.CreateOptions{Labels: b.labels})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.engine.removeNetwork(context.Background(), spec.Name+"x")) })
	require.NoError(t, b.engine.removeNetwork(t.Context(), spec.Name))
	named, err := b.engine.networksNamed(t.Context(), spec.Name+"x")
	require.NoError(t, err)
	assert.Len(t, named, 1, "a name that only begins alike stays")
}

// A lost answer may have been a refusal, so that there is no network.
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
	engine.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		io.WriteString(w, "{}") //nolint:errcheck // the test sees it
	})
	server := httptest.NewServer(engine)
	t.Cleanup(server.Close)
	e, err := Open(t.Context(), Options{Host: "tcp://" + server.Listener.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	id, err := e.ensureNetwork(t.Context(), NetworkSpec{Name: "n", Subnet: netip.MustParsePrefix("10.9.9.0/28")})
	if err != nil || id != "made" || creates.Load() != 2 {
		t.Errorf("network %q after %d requests: %v", id, creates.Load(), err)
	}
}
