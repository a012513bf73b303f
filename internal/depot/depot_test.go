package depot

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	served "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/registry"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// both is an engine in memory whose images are in a registry in memory, with a manifest of
// the same reference in the one that the depot speaks to.
type both struct{ engine.Driver }

func (b both) Push(ctx context.Context, ref, remoteRef string, login engine.Login) error {
	if err := b.Driver.Push(ctx, ref, remoteRef, login); err != nil {
		return err
	}
	image, err := random.Image(10, 1)
	if err != nil {
		return err
	}
	at, err := name.NewTag(remoteRef)
	if err != nil {
		return err
	}
	return remote.Write(at, image)
}

// world is a registry, a database and a stack of two services that was served.
type world struct {
	t        *testing.T
	away     atomic.Bool // the registry
	registry *registry.Registry
	images   *enginetest.Registry
	store    *store.Store
	stack    *stack.Stack
	nodes    map[string]*node
}

// node is what one machine has.
type node struct {
	depot  *Depot
	driver both
	dir    datadir.Dir
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, nodes: map[string]*node{}}
	handler := served.New(served.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if w.away.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(answer, r)
	}))
	t.Cleanup(server.Close)
	address, err := registry.ParseAddress(server.URL)
	require.NoError(t, err)
	w.registry, err = registry.Open(registry.Options{Address: address})
	require.NoError(t, err)
	t.Cleanup(w.registry.Close)
	w.images = enginetest.NewRegistry(address.Host)
	w.store, err = store.Open(t.Context(), store.Options{Path: filepath.Join(t.TempDir(), "berth.db"), Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, w.store.Close()) })
	w.node("one")
	w.serve()
	return w
}

func (w *world) node(id string) *node {
	driver := both{enginetest.New(nil, "base").Driver(enginetest.Options{Instance: "own", Registry: w.images})}
	n := &node{driver: driver, dir: datadir.Dir(w.t.TempDir())}
	n.depot = New(Config{Registry: w.registry, Engine: driver, Store: w.store, Dir: n.dir, Node: id, Log: slog.New(slog.DiscardHandler)})
	w.nodes[id] = n
	return n
}

// key is of the service that has a process.
func (w *world) key() engine.Key {
	return engine.Key{Stack: w.stack.ID, Service: "web", Generation: 1}
}

// serve makes the stack, as a deploy on the first node leaves it.
func (w *world) serve() {
	w.t.Helper()
	ctx, n := w.t.Context(), w.nodes["one"]
	k := stack.New("guestbook", []stack.Spec{{Name: "web"}, {Name: "page", Runtime: stack.Runtime{Name: stack.Static}}}, stack.Now())
	k.Network, k.Node, k.Status, k.DeployedAt = "192.0.2.1", "one", stack.Live, stack.Now()
	w.stack = k
	k.Generation.Services[0].Image, k.Generation.Services[1].Site = w.key().Image(1), 1
	k.Generation.Source = stack.Source{Folder: "12345", Digest: "abc"}
	require.NoError(w.t, w.store.Create(ctx, k, nil))
	id, err := n.driver.Run(ctx, engine.Spec{Name: w.key().Process(0), Key: w.key(), Image: "base", Volumes: map[string]string{"/data": w.key().Data()}})
	require.NoError(w.t, err)
	require.NoError(w.t, n.driver.Commit(ctx, id, w.key().Image(1), w.key(), engine.ImageConfig{}))
	for path, text := range map[string]string{
		filepath.Join(n.dir.Site(k.ID, "page", 1), "index.html"): "<h1>hello",
		filepath.Join(n.dir.Source(k.ID, "12345"), "a", "main"):  "the source",
	} {
		require.NoError(w.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(w.t, os.WriteFile(path, []byte(text), 0o640))
	}
	require.NoError(w.t, os.Symlink("main", filepath.Join(n.dir.Source(k.ID, "12345"), "a", "link")))
}

func (w *world) update(fn func(k *stack.Stack)) {
	w.t.Helper()
	k, err := w.store.Update(w.t.Context(), w.stack.ID, func(k *stack.Stack) ([]stack.Event, error) {
		fn(k)
		return nil, nil
	})
	require.NoError(w.t, err)
	w.stack = k
}

func (w *world) expire() {
	w.update(func(k *stack.Stack) { k.Status, k.ExpiredAt = stack.Expired, stack.Now() })
}

// tags returns those whose manifests are there.
func (w *world) tags() []string {
	w.t.Helper()
	tags, err := w.registry.Tags(w.t.Context(), w.stack.ID)
	require.NoError(w.t, err)
	return tags
}

func TestDepot_BringsAnotherNodeWhatItPushed(t *testing.T) {
	w := newWorld(t)
	w.nodes["one"].depot.round(t.Context())
	assert.Equal(t, []string{"site-page-1", "source-12345", "web-g1"}, w.tags())
	assert.Equal(t, wanted(w.stack)[0], "web-g1")
	w.expire()
	w.nodes["one"].depot.round(t.Context())
	assert.Contains(t, w.tags(), dataTag(w.stack, "web"))

	two := w.node("two")
	w.update(func(k *stack.Stack) { k.Node, k.Epoch = "two", 1 })
	require.NoError(t, two.depot.Bring(t.Context(), w.stack))
	require.NoError(t, two.depot.Bring(t.Context(), w.stack), "it is there")
	require.NoError(t, two.depot.BringData(t.Context(), w.stack, &w.stack.Generation.Services[0]))
	there, err := two.driver.Inventory(t.Context(), w.stack.ID)
	require.NoError(t, err)
	assert.Equal(t, []string{w.key().Data(), w.key().Image(1)}, there[w.stack.ID].Names())
	text, err := os.ReadFile(filepath.Join(two.dir.Site(w.stack.ID, "page", 1), "index.html"))
	require.NoError(t, err)
	assert.Equal(t, "<h1>hello", string(text))
	link, err := os.Readlink(filepath.Join(two.dir.Source(w.stack.ID, "12345"), "a", "link"))
	require.NoError(t, err)
	assert.Equal(t, "main", link)
}

func TestDepot_PushesLaterWhatItCouldNot(t *testing.T) {
	w := newWorld(t)
	d := w.nodes["one"].depot
	w.away.Store(true)
	require.LessOrEqual(t, d.round(t.Context()), firstWait)
	require.False(t, w.get().Pushed, "nothing is there to be forgotten")
	w.away.Store(false)
	d.round(t.Context())
	require.Empty(t, w.tags(), "it was tried a moment ago")
	New(d.cfg).round(t.Context()) // the next server
	assert.Equal(t, []string{"site-page-1", "source-12345", "web-g1"}, w.tags())
}

func (w *world) get() *stack.Stack {
	w.t.Helper()
	k, err := w.store.Get(w.t.Context(), w.stack.ID)
	require.NoError(w.t, err)
	return k
}

func TestDepot_LeavesNothingOfADeletedStack(t *testing.T) {
	w := newWorld(t)
	d := w.nodes["one"].depot
	d.round(t.Context())
	key := w.get().DataKey
	require.Len(t, key, registry.KeyBytes)
	require.NoError(t, d.KeepLive(t.Context(), w.get(), &w.stack.Generation.Services[0]))
	require.Contains(t, w.tags(), "live-web")
	_, err := w.store.Update(t.Context(), w.stack.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	require.NoError(t, err)
	w.away.Store(true)
	d.round(t.Context())
	w.away.Store(false)
	d = New(d.cfg)
	d.round(t.Context())
	assert.Empty(t, w.tags())
	left, err := w.store.DeletedPushed(t.Context())
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestDepot_RemovesWhatIsNotServedAnyMore(t *testing.T) {
	w := newWorld(t)
	d := w.nodes["one"].depot
	w.expire()
	d.round(t.Context())
	old := dataTag(w.stack, "web")
	require.Contains(t, w.tags(), old)
	w.update(func(k *stack.Stack) { k.Status, k.Generation.Source = stack.Live, stack.Source{} })
	d.round(t.Context())
	assert.Equal(t, []string{"site-page-1", "web-g1"}, w.tags())
	require.NoError(t, d.KeepLive(t.Context(), w.stack, &w.stack.Generation.Services[0]))
	w.expire()
	assert.NotEqual(t, old, dataTag(w.stack, "web"))
	d.round(t.Context())
	assert.NotContains(t, w.tags(), "live-web")
}

func TestDepot_PushesNothingOfAnothersStack(t *testing.T) {
	w := newWorld(t)
	w.node("two").depot.round(t.Context())
	assert.Empty(t, w.tags())
	old := w.get()
	w.update(func(k *stack.Stack) { k.Node, k.Epoch = "two", 1 })
	require.ErrorIs(t, w.nodes["one"].depot.Push(t.Context(), old), errMoved)
	assert.Empty(t, w.tags())
}

func TestRun_FollowsTheRows(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.nodes["one"].depot.Run(ctx); close(done) }()
	require.Eventually(t, func() bool { return len(w.tags()) == 3 }, 5*time.Second, 20*time.Millisecond)
	w.expire()
	require.Eventually(t, func() bool { return len(w.tags()) == 4 }, 10*time.Second, 50*time.Millisecond)
	cancel()
	<-done
}

func TestBases_AreKeptOnceAndFetchedElsewhere(t *testing.T) {
	w := newWorld(t)
	const ref = "berth/base-node:22-0123456789ab"
	one, two := w.nodes["one"], w.node("two")
	require.NoError(t, one.driver.Tag(t.Context(), "base", ref))
	require.ErrorIs(t, two.depot.FetchBase(t.Context(), ref), engine.ErrNotFound)
	for range 2 {
		one.depot.OfferBase(ref)
		one.depot.round(t.Context())
	}
	require.NoError(t, two.depot.FetchBase(t.Context(), ref))
	there, err := two.driver.HasImage(t.Context(), ref)
	require.NoError(t, err)
	assert.True(t, there)
}

func TestUnpackFolder_LeavesNothingOfAPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "site")
	broken := errors.New("it was cut")
	require.ErrorIs(t, unpackFolder(path, io.MultiReader(errReader{broken})), broken)
	for _, p := range []string{path, path + ".part"} {
		_, err := os.Lstat(p)
		require.ErrorIs(t, err, os.ErrNotExist)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }
