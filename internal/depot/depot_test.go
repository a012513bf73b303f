package depot

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
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

// world is a registry, a database and a stack of one service.
type world struct {
	t        *testing.T
	away     atomic.Bool // the registry
	registry *registry.Registry
	images   *enginetest.Registry
	store    *store.Store
	stack    *stack.Stack
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t}
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
	w.stack = stack.New("guestbook", []stack.Spec{{Name: "web"}}, stack.Now())
	w.stack.Network, w.stack.Node, w.stack.Epoch = "192.0.2.1", "one", 1
	require.NoError(t, w.store.Create(t.Context(), w.stack, nil))
	return w
}

// node returns the depot of a node and its engine, which has the image base.
func (w *world) node(id string) (*Depot, both) {
	driver := both{enginetest.New(nil, "base").Driver(enginetest.Options{Instance: "own", Registry: w.images})}
	return New(Config{Registry: w.registry, Engine: driver, Store: w.store, Node: id, Log: slog.New(slog.DiscardHandler)}), driver
}

// tags returns those whose manifests are there.
func (w *world) tags() []string {
	w.t.Helper()
	tags, err := w.registry.Tags(w.t.Context(), w.stack.ID)
	require.NoError(w.t, err)
	return tags
}

func (w *world) get() *stack.Stack {
	w.t.Helper()
	k, err := w.store.Get(w.t.Context(), w.stack.ID)
	require.NoError(w.t, err)
	return k
}

// put keeps a text of the stack as the owner in its row.
func (w *world) put(d *Depot, name, text string) error {
	return d.Put(w.t.Context(), w.get(), name, func(_ context.Context, to io.Writer) error {
		_, err := io.WriteString(to, text)
		return err
	})
}

func (w *world) read(d *Depot, name string) (text string, err error) {
	err = d.Get(w.t.Context(), w.get(), name, func(from io.Reader) error {
		all, err := io.ReadAll(from)
		text = string(all)
		return err
	})
	return text, err
}

func TestDepot_GivesAnotherNodeWhatItKept(t *testing.T) {
	w := newWorld(t)
	one, driver := w.node("one")
	two, other := w.node("two")
	long := strings.Repeat("the files of the stack ", 100_000)
	require.NoError(t, w.put(one, "files-g1", long))
	require.NoError(t, driver.Push(t.Context(), "base", one.StackImage(w.stack.ID, "web-g1"), one.Login()))

	there, err := two.Has(t.Context(), w.get(), "files-g1")
	require.NoError(t, err)
	require.True(t, there)
	text, err := w.read(two, "files-g1")
	require.NoError(t, err)
	require.Equal(t, long, text)
	require.NoError(t, other.Fetch(t.Context(), two.StackImage(w.stack.ID, "web-g1"), "fetched", two.Login()))
	_, err = w.read(two, "files-g2")
	require.ErrorIs(t, err, engine.ErrNotFound)
}

func TestPut_FailsWhileTheRegistryIsAway(t *testing.T) {
	w := newWorld(t)
	one, _ := w.node("one")
	w.away.Store(true)
	require.Error(t, w.put(one, "files-g1", "text"))
	w.away.Store(false)
	require.Empty(t, w.tags())
	require.NoError(t, w.put(one, "files-g1", "text"))
}

func TestPut_OfAStackWithAnotherOwnerIsRefused(t *testing.T) {
	w := newWorld(t)
	two, _ := w.node("two")
	require.ErrorIs(t, w.put(two, "files-g1", "text"), store.ErrNotOwner)
	require.Empty(t, w.tags())
	require.False(t, w.get().Pushed)
}

func TestKeep_RemovesTheRest(t *testing.T) {
	w := newWorld(t)
	one, driver := w.node("one")
	for _, name := range []string{"files-g1", "files-g2"} {
		require.NoError(t, w.put(one, name, name))
	}
	require.NoError(t, driver.Push(t.Context(), "base", one.StackImage(w.stack.ID, "web-g1"), one.Login()))
	require.NoError(t, one.Keep(t.Context(), w.get(), func(_ *stack.Stack, name string) bool { return name == "files-g2" }))
	require.Equal(t, []string{"files-g2"}, w.tags())
}

// goesTo makes another node the owner.
func (w *world) goesTo(node string) {
	w.t.Helper()
	_, err := w.store.Update(w.t.Context(), w.stack.ID, func(k *stack.Stack) ([]stack.Event, error) {
		k.Node, k.Epoch = node, k.Epoch+1
		return nil, nil
	})
	require.NoError(w.t, err)
}

// A node may stand still at any moment, while another takes the stack and puts what it serves.
func TestKeep_RemovesNothingThatTheNextOwnerHasPut(t *testing.T) {
	for name, before := range map[string]bool{"before the row is read": true, "after that": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			one, _ := w.node("one")
			two, _ := w.node("two")
			for _, name := range []string{"files-g1", "files-g2"} {
				require.NoError(t, w.put(one, name, name))
			}
			row, taken := w.get(), false
			take := func() {
				if !taken {
					taken = true
					w.goesTo("two")
					require.NoError(t, w.put(two, "files-g3", "text"))
				}
			}
			want := []string{"files-g1", "files-g2", "files-g3"}
			if before {
				take()
			}
			err := one.Keep(t.Context(), row, func(_ *stack.Stack, name string) bool {
				take()
				return name == "files-g2"
			})
			if before {
				require.ErrorIs(t, err, store.ErrNotOwner)
			} else {
				require.NoError(t, err)
				want = want[1:]
			}
			require.Equal(t, want, w.tags())
			_, err = one.Begin(t.Context(), row)
			require.ErrorIs(t, err, store.ErrNotOwner)
		})
	}
}

// delete deletes the stack.
func (w *world) delete() {
	w.t.Helper()
	_, err := w.store.Update(w.t.Context(), w.stack.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	require.NoError(w.t, err)
}

// pushes is the registry's store, in which something is pushed before it is told to forget.
type pushes struct {
	Store
	push func()
}

func (p pushes) ForgetPushed(ctx context.Context, id string) error {
	p.push()
	return p.Store.ForgetPushed(ctx, id)
}

// A push that was under way when a stack was deleted may end at any time later.
func TestForgetDeleted_RemovesWhatWasPutSince(t *testing.T) {
	w := newWorld(t)
	one, driver := w.node("one")
	late := func() {
		require.NoError(t, driver.Push(t.Context(), "base", one.StackImage(w.stack.ID, "web-g1"), one.Login()))
		require.NoError(t, one.ForgetDeleted(t.Context(), w.stack.ID))
	}
	require.NoError(t, w.put(one, "files-g1", "text"))
	require.NoError(t, one.ForgetDeleted(t.Context(), w.stack.ID))
	w.delete()
	times := 0
	two, _ := w.node("two")
	two.cfg.Store = pushes{w.store, func() {
		if times++; times == 1 {
			late()
		}
	}}
	for range 3 {
		two.round(t.Context())
		require.Empty(t, w.tags())
		left, err := w.store.DeletedPushed(t.Context())
		require.NoError(t, err)
		require.Empty(t, left)
		late()
	}
	require.Equal(t, 3, times)
}

// A node that was cut off may push after another one has deleted the stack, and never be back.
func TestRound_RemovesWhatALostNodePushesLater(t *testing.T) {
	w := newWorld(t)
	one, driver := w.node("one")
	two, _ := w.node("two")
	require.NoError(t, w.put(one, "files-g1", "text"))
	w.goesTo("two")
	w.delete()
	for range 3 {
		two.round(t.Context())
		require.Empty(t, w.tags())
		require.NoError(t, driver.Push(t.Context(), "base", one.StackImage(w.stack.ID, "web-g1"), one.Login()))
		require.LessOrEqual(t, two.round(t.Context()), lateEvery)
		require.NotEmpty(t, w.tags(), "it was looked for a moment ago")
		for _, s := range two.states {
			s.again = time.Now() // lateEvery later
		}
	}
}

func TestRun_LeavesNothingOfADeletedStack(t *testing.T) {
	w := newWorld(t)
	one, _ := w.node("one")
	require.NoError(t, w.put(one, "files-g1", "text"))
	require.Len(t, w.get().DataKey, registry.KeyBytes)
	w.delete()

	w.away.Store(true)
	require.LessOrEqual(t, one.round(t.Context()), firstWait)
	w.away.Store(false)
	one.round(t.Context())
	require.NotEmpty(t, w.tags(), "it was tried a moment ago")
	next, _ := w.node("one")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { next.Run(ctx); close(done) }()
	require.Eventually(t, func() bool { return len(w.tags()) == 0 }, time.Minute, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		left, err := w.store.DeletedPushed(t.Context())
		return err == nil && len(left) == 0
	}, time.Minute, 20*time.Millisecond)
	cancel()
	<-done
}

func TestBases_AreKeptOnceAndFetchedElsewhere(t *testing.T) {
	w := newWorld(t)
	const ref = "berth/base-node:22-0123456789ab"
	one, driver := w.node("one")
	two, other := w.node("two")
	require.NoError(t, driver.Tag(t.Context(), "base", ref))
	require.ErrorIs(t, two.FetchBase(t.Context(), ref), engine.ErrNotFound)
	for range 2 {
		one.OfferBase(ref)
		one.round(t.Context())
	}
	require.NoError(t, two.FetchBase(t.Context(), ref))
	there, err := other.HasImage(t.Context(), ref)
	require.NoError(t, err)
	require.True(t, there)
}
