package supervisor

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// links are the ways between the nodes of a test.
type links struct {
	nodes    map[string]*world
	registry *enginetest.Registry
	archive  *shelf
	meet     func(moment string) error // called before and after each call, which fails with its error
}

func (l *links) Peer(node string) (Peer, error) { return link{l, node}, nil }

// link is the way to one node.
type link struct {
	links *links
	node  string
}

func (l link) call(name string, do func(Peer) error) error {
	if err := l.links.meet("before " + name); err != nil {
		return err
	}
	if err := do(l.links.nodes[l.node].sup.Receiver()); err != nil {
		return err
	}
	return l.links.meet("after " + name)
}

func (l link) Prepare(ctx context.Context, offer Offer, files io.Reader) error {
	return l.call("prepare", func(p Peer) error { return p.Prepare(ctx, offer, files) })
}

func (l link) Fill(ctx context.Context, id, service string, data io.Reader) error {
	return l.call("fill", func(p Peer) error { return p.Fill(ctx, id, service, data) })
}

func (l link) Fetch(ctx context.Context, id, service string) error {
	return l.call("fetch", func(p Peer) error { return p.Fetch(ctx, id, service) })
}

func (l link) Start(ctx context.Context, id string, logs io.Reader) error {
	return l.call("start", func(p Peer) error { return p.Start(ctx, id, logs) })
}

func (l link) Take(ctx context.Context, id string) error {
	return l.call("take", func(p Peer) error { return p.Take(ctx, id) })
}

func (l link) Drop(ctx context.Context, id string) error {
	return l.call("drop", func(p Peer) error { return p.Drop(ctx, id) })
}

// depot is a registry in memory.
type depot struct{ registry *enginetest.Registry }

func (depot) StackImage(id, tag string) string { return "registry/" + id + ":" + tag }
func (depot) Login() engine.Login              { return engine.Login{} }

// inCluster is inNodes with ways between the nodes, and a registry.
func inCluster(t *testing.T, test func(a, b *world, l *links), configure ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		registry := enginetest.NewRegistry("registry")
		l := &links{nodes: map[string]*world{}, registry: registry, archive: &shelf{kept: map[string][]byte{}}, meet: func(string) error { return nil }}
		for _, node := range []string{"a", "b"} {
			w := newWorld(t, enginetest.Options{Registry: registry})
			l.nodes[node] = w
			w.db = l.nodes["a"].db
			l.archive.rows = w.db
			defer w.close()
			w.configure = func(c *Config) {
				c.Node, c.Peers, c.Registry, c.Archive = node, l, depot{registry}, l.archive
				long(c)
				for _, f := range configure {
					f(c)
				}
			}
			w.startServer()
		}
		test(l.nodes["a"], l.nodes["b"], l)
	})
}

// nowhere requires that a node has nothing of a stack.
func (w *world) nowhere(st *stack.Stack) {
	w.t.Helper()
	require.Empty(w.t, w.there(st).Names())
	require.False(w.t, w.dir.Has(st.ID))
	require.Nil(w.t, w.sup.lookup(st.ID))
	require.Nil(w.t, w.sup.guest(st.ID))
	require.Equal(w.t, 404, w.ask(st, "web"))
}

func TestMove_BringsAllOfAStackAndLeavesNothing(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		speaking := func(p *enginetest.Process) int {
			p.Print("hello from " + variable(p, "STACK_ID"))
			return keeping(p)
		}
		a.program("", 1, speaking)
		b.program("", 1, speaking)
		st := a.live(service("web"))
		require.NoError(t, a.claim(st.ID))
		a.restart(st)
		a.awaitEvent(st.ID, "service.restarted", 1)
		a.settle()
		before := len(a.events(st.ID))

		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.True(t, b.answers(st, "web"))
		require.Equal(t, []string{"stack.restored"}, a.after(st.ID, before))
		require.Equal(t, map[string]string{"kept": st.ID}, b.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
		row := b.get(st.ID)
		require.Equal(t, []any{"b", int64(2)}, []any{row.Node, row.Epoch})
		a.settle()
		a.nowhere(st)
		_, ok := a.remains(st, "a")
		require.False(t, ok)
		require.Equal(t, 3, strings.Count(b.runLog(st), "hello from "+st.ID))
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "on its new node"))

		require.NoError(t, b.sup.Move(a.t.Context(), st.ID, "a"))
		require.Equal(t, "L1", a.consistent(a.get(st.ID), "back again"))
		b.settle()
		b.nowhere(st)
		a.deploy(st.ID, service("web"))
		a.serves(st.ID, 2)
		require.Equal(t, map[string]string{"kept": st.ID}, a.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
		a.reboot()
		require.Equal(t, "L2", a.consistent(a.serves(st.ID, 2), "after a restart"))
	})
}

func TestMove_BackWaitsUntilTheNewOwnerHasTheStack(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.live(service("web"))
		back := make(chan error, 1)
		var guest *guest
		l.meet = func(moment string) error {
			switch {
			case moment == "after start" && guest == nil:
				guest = b.sup.guest(st.ID)
				guest.mu.Lock() // so that it does not become b's by itself
			case moment == "before take" && b.sup.lookup(st.ID) == nil:
				defer guest.mu.Unlock()
				require.Equal(t, "b", b.get(st.ID).Node)
				go func() { back <- b.sup.Move(b.t.Context(), st.ID, "a") }()
				time.Sleep(time.Second)
				require.Empty(t, back)
			}
			return nil
		}
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.NoError(t, <-back)
		require.True(t, a.answers(st, "web"))
		require.Equal(t, "a", a.get(st.ID).Node)
	})
}

// A node that is not done with a stack which it has just given away gets it back as soon as it is.
func TestMove_BackWaitsUntilTheOldOwnerHasLetGo(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		a.program("", 1, keeping)
		b.program("", 1, keeping)
		st := a.live(service("web"))
		back := make(chan error, 1)
		l.meet = onceAt("after take", func() error {
			go func() { back <- b.sup.Move(b.t.Context(), st.ID, "a") }()
			time.Sleep(time.Second)
			require.Empty(t, back)
			require.True(t, b.answers(st, "web"))
			return nil
		})
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.NoError(t, <-back)
		b.settle()
		require.Equal(t, "L1", a.consistent(a.get(st.ID), "back again"))
		require.Equal(t, map[string]string{"kept": st.ID}, a.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
		b.nowhere(st)
	})
}

// A node whose engine does not let it remove what it has of a stack says so.
func TestMove_BackIsRefusedWhileTheOldOwnerCannotLetGo(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.live(service("web"))
		l.meet = onceAt("after take", func() error { a.engine.Leave(); return nil })
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.ErrorContains(t, b.sup.Move(b.t.Context(), st.ID, "a"), "still removes what it had of the stack")
		require.True(t, b.answers(st, "web"))
		a.engine.Return()
		a.settle()
		require.NoError(t, b.sup.Move(b.t.Context(), st.ID, "a"))
		require.True(t, a.answers(st, "web"))
	})
}

func TestMove_OfAStackThatServesNothing(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		failed := a.becomes(a.createRunning(time.Hour, exits(1), service("web")).ID, stack.Failed)
		expired := a.createRunning(5*time.Second, keeping, service("web"))
		a.awaitEvent(expired.ID, "stack.expired", 1)
		a.settle()
		for st, end := range map[*stack.Stack]string{failed: "F1", expired: "E1"} {
			before := len(a.events(st.ID))
			require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
			b.settle()
			require.Empty(t, a.after(st.ID, before))
			require.Equal(t, end, b.consistent(b.get(st.ID), "on its new node"))
			a.nowhere(st)
		}
		b.program(expired.ID, 1, keeping)
		require.NoError(t, b.claim(expired.ID))
		b.serves(expired.ID, 1)
		require.Equal(t, map[string]string{"kept": expired.ID}, b.engine.Volume(engine.Key{Stack: expired.ID, Service: "web"}.Data()))
	})
}

// The data of an expired stack comes from the registry, if that has it.
func TestMove_SendsNoDataThatTheRegistryHas(t *testing.T) {
	t.Parallel()
	for want, away := range map[string]bool{"fetch": false, "fill": true} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			inCluster(t, func(a, b *world, l *links) {
				st := a.createRunning(5*time.Second, keeping, service("web"))
				a.awaitEvent(st.ID, "stack.expired", 1)
				a.settle()
				l.archive.leave(away)
				var calls []string
				l.meet = func(moment string) error {
					if moment == "after fill" || moment == "after fetch" {
						calls = append(calls, strings.TrimPrefix(moment, "after "))
					}
					return nil
				}
				require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
				require.Equal(t, []string{want}, calls)
				a.settle()
				a.nowhere(st)
				require.Equal(t, "E1", b.consistent(b.get(st.ID), "on its new node"))
				b.program(st.ID, 1, keeping)
				require.NoError(t, b.claim(st.ID))
				b.serves(st.ID, 1)
				require.Equal(t, map[string]string{"kept": st.ID}, b.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
			})
		})
	}
}

// A stack of sites may have the data of a service that it dropped, which goes with it.
func TestMove_BringsTheDataOfADroppedService(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.createRunning(time.Hour, keeping, service("web"))
		a.becomes(st.ID, stack.Live)
		a.deploy(st.ID, pages("site"))
		st = a.serves(st.ID, 2)
		a.settle()
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.Equal(t, 200, b.ask(b.get(st.ID), "site"))
		data := engine.Key{Stack: st.ID, Service: "web"}.Data()
		require.Equal(t, map[string]string{"kept": st.ID}, b.engine.Volume(data))
		a.settle()
		a.nowhere(st)
	})
}

// A move waits for the end of a deploy, and a deploy that is accepted while the move
// prepares comes first.
func TestMove_WaitsForADeploy(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.redeploying(service("web"))
		b.program(st.ID, 2, listen)
		begun := false
		l.meet = func(moment string) error {
			if moment == "after prepare" && !begun {
				begun = true
				a.deploy(st.ID, service("web"))
			}
			return nil
		}
		moved := make(chan error)
		go func() { moved <- a.sup.Move(a.t.Context(), st.ID, "b") }()
		synctest.Wait()
		require.False(t, begun, "it prepared during a deploy")
		a.release()
		require.NoError(t, <-moved)
		require.True(t, begun)
		a.settle()
		require.Equal(t, "L3", b.consistent(b.get(st.ID), "on its new node"))
		a.nowhere(st)
	})
}

func TestMove_WhileAStackIsStoppedItIsNotChanged(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, l *links) {
		st := a.live(service("web"))
		var held atomic.Int32
		a.sup.cfg.Hold = func(string) { held.Add(1) }
		claimed := make(chan error, 1)
		l.meet = func(moment string) error {
			if moment != "before start" {
				return nil
			}
			require.EqualValues(t, 1, held.Load())
			_, err := a.sup.Deploy(a.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: a.upload()}, nil)
			require.Equal(t, stack.Unavailable, stack.KindOf(err))
			_, err = a.sup.Restart(a.t.Context(), st.ID, "web")
			require.Equal(t, stack.Unavailable, stack.KindOf(err))
			_, err = a.sup.RunCommand(a.t.Context(), a.once(st, "web"), time.Minute, io.Discard)
			require.Equal(t, stack.Unavailable, stack.KindOf(err))
			asked := time.Now()
			require.ErrorIs(t, a.claim(st.ID), errMoving)
			require.InDelta(t, moveHold, time.Since(asked), float64(moveLook))
			go func() { claimed <- a.claim(st.ID) }()
			time.Sleep(moveHold / 2)
			require.Empty(t, claimed, "it waits for the end of the move")
			return nil
		}
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.ErrorIs(t, <-claimed, store.ErrNotOwner)
		require.NoError(t, b.claim(st.ID))
		require.Equal(t, stack.Unavailable, stack.KindOf(a.claim(st.ID)))
		require.Equal(t, "L1", b.consistent(b.get(st.ID), "in the end"))
	})
}

// moments are those at which a move may break off.
var moments = []string{
	"before prepare", "after prepare", "before fill", "after fill", "before start", "after start", "before take", "after take",
}

// onceAt calls do at a moment, the first time.
func onceAt(moment string, do func() error) func(string) error {
	var met sync.Once
	return func(now string) (err error) {
		if now == moment {
			met.Do(func() { err = do() })
		}
		return err
	}
}

var errCut = errors.New("the connection was cut")

// mishaps are what may go wrong at a moment.
var mishaps = map[string]func(a, b *world) error{
	"cut":           func(_, _ *world) error { return errCut },
	"owner killed":  func(a, _ *world) error { a.sup.cancel(); return errCut },
	"target killed": func(_, b *world) error { b.sup.cancel(); return errCut },
	"both killed":   func(a, b *world) error { a.sup.cancel(); b.sup.cancel(); return errCut },
	"expiry": func(a, _ *world) error {
		for _, st := range a.all() {
			if err := a.extend(st, time.Second); err != nil {
				return err
			}
		}
		time.Sleep(3 * time.Second)
		return nil
	},
	"delete": func(a, _ *world) error {
		for _, st := range a.all() {
			go func() { _ = a.sup.Delete(context.Background(), st.ID) }()
		}
		time.Sleep(time.Second)
		return nil
	},
	"database away": func(a, _ *world) error {
		a.db.breaks(func(string, []stack.Event) error { return errors.New("database away") })
		time.AfterFunc(40*time.Second, func() { a.db.breaks(nil) })
		return nil
	},
	"target's engine away": func(_, b *world) error { b.away(5 * time.Second); return nil },
	"owner's engine away":  func(a, _ *world) error { a.away(5 * time.Second); return nil },
}

func (w *world) all() []*stack.Stack {
	all, err := w.db.All(w.t.Context())
	require.NoError(w.t, err)
	return all
}

// Whenever a move breaks off, and whatever is lost with it, one node owns the stack in the
// end, with all its data, and the other has nothing.
func TestMove_ThatBreaksOffLeavesOneOwnerWithAllData(t *testing.T) {
	t.Parallel()
	for mishap, happen := range mishaps {
		for _, moment := range moments {
			t.Run(mishap+" "+moment, func(t *testing.T) {
				t.Parallel()
				inCluster(t, func(a, b *world, l *links) {
					a.program("", 1, keeping)
					b.program("", 1, keeping)
					st := a.long(service("web"))
					a.settle()
					met := false
					l.meet = onceAt(moment, func() error {
						met = true
						return happen(a, b)
					})
					_ = a.sup.Move(a.t.Context(), st.ID, "b")
					require.True(t, met)
					synctest.Wait()
					for _, w := range []*world{a, b} {
						if w.sup.ctx.Err() != nil {
							w.reboot()
						}
					}
					for range 5 {
						a.settle()
					}
					a.endsAlone(st, b, mishap)
				}, func(c *Config) { c.Limits.TTLMin = time.Second })
			})
		}
	}
}

// endsAlone requires that one of two nodes has a stack, or none if it is deleted, and the
// other has nothing.
func (w *world) endsAlone(st *stack.Stack, other *world, mishap string) {
	w.t.Helper()
	row, err := w.db.Get(w.t.Context(), st.ID)
	if stack.KindOf(err) == stack.NotFound {
		require.Equal(w.t, "delete", mishap)
		w.nowhere(st)
		other.nowhere(st)
		return
	}
	require.NoError(w.t, err)
	owner, rest := w, other
	if row.Node == "b" {
		owner, rest = other, w
	}
	require.Equal(w.t, map[bool]string{true: "E1", false: "L1"}[row.Status == stack.Expired], owner.consistent(row, "in the end"))
	require.Equal(w.t, row.Status == stack.Expired, mishap == "expiry")
	if row.Status == stack.Live {
		require.Equal(w.t, map[string]string{"kept": st.ID}, owner.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
	} else {
		require.NoError(w.t, owner.claim(st.ID))
		owner.becomes(st.ID, stack.Live)
		require.Equal(w.t, map[string]string{"kept": st.ID}, owner.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Data()))
	}
	rest.nowhere(st)
	left, err := w.db.RemainsOn(w.t.Context(), "a")
	require.NoError(w.t, err)
	more, err := w.db.RemainsOn(w.t.Context(), "b")
	require.NoError(w.t, err)
	require.Empty(w.t, append(left, more...))
}

// A node with data of the stack that only it has gets no other.
func TestMove_NotToANodeThatKeepsDataOfTheStack(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.live(service("web"))
		a.settle()
		require.NoError(t, a.db.MarkRemains(a.t.Context(), st.ID, "b", []string{"its volume"}))
		require.ErrorContains(t, a.sup.Move(a.t.Context(), st.ID, "b"), "still has data")
		require.Equal(t, "L1", a.consistent(st, "in the end"))
		b.nowhere(st)
	})
}

func TestMove_OfASiteNeedsNoRegistry(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.live(pages("web"))
		a.deploy(st.ID, pages("web"))
		st = a.serves(st.ID, 2)
		page := a.body(st, "web", "/")
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.Equal(t, page, b.body(b.get(st.ID), "web", "/"))
		a.settle()
		a.nowhere(st)
		b.reboot()
		b.settle()
		require.Equal(t, page, b.body(b.get(st.ID), "web", "/"))
		other := b.live(service("web"))
		require.ErrorContains(t, b.sup.Move(a.t.Context(), other.ID, "a"), "BERTH_REGISTRY")
		require.Equal(t, "L1", b.consistent(other, "in the end"))
	}, func(c *Config) { c.Registry = nil })
}

// A client of HTTP closes what it has read, and a server may answer before the end.
func TestStreaming_WorksOverHTTP(t *testing.T) {
	for _, most := range []int64{1 << 30, 512} {
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, io.LimitReader(r.Body, most))
			assert.NoError(t, err)
		}))
		post := func(r io.Reader) error {
			res, err := http.Post(server.URL, "", r)
			if err != nil {
				return err
			}
			return res.Body.Close()
		}
		for _, size := range []int{0, 1024, 100_000} {
			write := func(_ context.Context, w io.Writer) error { _, err := w.Write(make([]byte, size)); return err }
			require.NoError(t, streaming(t.Context(), write, post), "%d bytes, of which the server reads %d", size, most)
		}
		server.Close()
	}
}
