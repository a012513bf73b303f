package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/admission"
	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// built is a service with a command that writes its generation into the cache, and reads
// what an earlier one wrote there.
func built(name string) stack.Spec {
	s := service(name)
	s.Build, s.Builder = "make", node
	return s
}

// cached makes builds use the cache, and returns what the last one found there.
func (w *world) cached() (found func() string) {
	var last noted[string]
	w.command(func(p *enginetest.Process) int {
		last.set(p.Read("/cache/tool", "file"))
		p.Write("/cache/tool", "file", variable(p, "SERVICE_NAME")+variable(p, "GENERATION"))
		return 0
	})
	return last.get
}

// cache returns the files in the cache of a stack's service web after so many drops.
func (w *world) cache(st *stack.Stack, dropped int) map[string]string {
	return w.engine.Volume(engine.Key{Stack: st.ID, Service: "web"}.Cache(dropped))
}

func TestCaches_OutliveAGenerationAndAFailedBuild(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := w.cached()
		st := w.live(built("web"))
		require.Empty(t, found())
		w.program(st.ID, 2, exits(1))
		w.deploy(st.ID, built("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		require.Equal(t, "web1", found())
		w.program(st.ID, 2, nil)
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 2)
		require.Equal(t, "web2", found())
		w.settle()
		require.NotNil(t, w.cache(st, 0))
	})
}

func TestCaches_OfAServiceThatIsNoLongerDeployedGo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.cached()
		st := w.live(built("web"))
		w.program(st.ID, 2, exits(1))
		w.deploy(st.ID, built("api"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.NotNil(t, w.cache(st, 0))
		api := engine.Key{Stack: st.ID, Service: "api"}.Cache(0)
		require.NotNil(t, w.engine.Volume(api), "the next attempt uses it")
		w.program(st.ID, 2, nil)
		w.deploy(st.ID, built("api"))
		w.serves(st.ID, 2)
		w.settle()
		require.Nil(t, w.cache(st, 0))
		require.NotNil(t, w.engine.Volume(api))
	})
}

func TestCaches_GoAtTheExpiry(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.cached()
		st := w.live(built("web"))
		w.becomes(st.ID, stack.Expired)
		synctest.Wait()
		require.Nil(t, w.cache(st, 0))
	})
}

// Whoever claims a stack gets it as it is.
func TestCaches_StayAtAClaim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := w.cached()
		st := w.live(built("web"))
		require.NoError(t, w.claim(st.ID))
		w.settle()
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 2)
		require.Equal(t, "web1", found())
	})
}

func TestCaches_GoWithTheManageToken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := w.cached()
		st := w.live(built("web"))
		w.settle()
		require.NoError(t, w.claim(st.ID))
		require.NoError(t, w.change(st, (*stack.Stack).RevokeAgent))
		synctest.Wait()
		require.Nil(t, w.cache(st, 0))
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 2)
		require.Empty(t, found())
		require.NotNil(t, w.cache(st, 1))
	})
}

// A build that was under way when its token was revoked leaves nothing to later ones.
func TestCaches_GoWithTheManageTokenDuringABuild(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		require.NoError(t, w.claim(st.ID))
		found := w.cached()
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			time.Sleep(10 * time.Second)
			return listen(p)
		})
		w.deploy(st.ID, built("web"))
		w.runs(st, "web-g1", "web-g2")
		require.NoError(t, w.change(st, (*stack.Stack).RevokeAgent))
		w.serves(st.ID, 2)
		w.settle()
		require.Nil(t, w.cache(st, 0))
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 3)
		require.Empty(t, found())
	})
}

// trimmed notes what is in the cache of each service whose caches are too large and are
// trimmed, and lets the trimming end with a code.
func (w *world) trimmed(code int) (seen func() []string) {
	var contents noted[[]string]
	w.trimming(func(p *enginetest.Process) int {
		if slices.Contains(p.Args, "look") {
			return 1
		}
		contents.set(append(contents.get(), p.Read("/cache/tool", "file")))
		return code
	})
	return func() []string { synctest.Wait(); return contents.get() }
}

func TestTrim_FollowsTheLastOfSeveralDeploysOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.trimmed(0)
		w.cached()
		st := w.live(built("web"), service("api"))
		for generation := 2; generation <= 4; generation++ {
			time.Sleep(trimPause * 3 / 4)
			w.deploy(st.ID, built("web"), service("api"))
			w.serves(st.ID, generation)
		}
		require.Empty(t, seen(), "while deploys follow each other")
		time.Sleep(2 * time.Minute)
		require.Equal(t, []string{"web4"}, seen())
		require.NotNil(t, w.cache(st, 0))
	}, func(c *Config) { c.Limits.TTL = time.Hour })
}

func TestTrim_DoesNotKeepADeployWaiting(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.cached()
		st := w.live(built("web"))
		w.trimming(silent)
		w.runs(st, "web-g1", "web-trim")
		begun := time.Now()
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 2)
		require.Less(t, time.Since(begun), time.Second)
		seen := w.trimmed(0)
		w.settle()
		require.Equal(t, []string{"web2"}, seen())
	})
}

func TestTrim_RemovesCachesThatItCannotTrim(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.trimmed(1)
		w.cached()
		st := w.live(built("web"))
		w.settle()
		require.Equal(t, []string{"web1"}, seen())
		require.Nil(t, w.cache(st, 0))
	})
}

// What was installed into a cache that is trimmed may be gone, so it is installed again.
func TestTrim_ForgetsWhatLayInTheCaches(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.cached()
		st := w.long(built("web"))
		w.settle()
		require.Contains(t, w.get(st.ID).Layers, "web", "there is nothing to remove")
		w.trimmed(0)
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 2)
		w.settle()
		require.NotContains(t, w.get(st.ID).Layers, "web")
		require.NotNil(t, w.cache(st, 0))
	})
}

func TestTrim_IsTriedAgainAfterAFaultOfTheHost(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.trimmed(0)
		w.cached()
		st := w.live(built("web"))
		w.engine.Before("Volumes", func(string) error { return engine.ErrHost })
		w.settle()
		require.Empty(t, seen())
		w.engine.Before("Volumes", nil)
		time.Sleep(leftoverGrace)
		require.Equal(t, []string{"web1"}, seen())
		require.NotNil(t, w.cache(st, 0))
	})
}

func TestTrim_IsMadeUpForByTheNextServer(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		seen := w.trimmed(0)
		w.cached()
		w.live(built("web"))
		w.reboot()
		require.Empty(t, seen())
		w.settle()
		require.Equal(t, []string{"web1"}, seen())
	})
}

// crowd gives a world a disk on which so many build caches and layers leave room for the
// next build. It returns a function that changes the number.
func (w *world) crowd(c *Config, most int) (allow func(int)) {
	free := func() (disk.Space, error) {
		all, err := w.driver.Inventory(w.t.Context(), "")
		kept := 0
		for _, there := range all {
			for _, v := range there.Volumes {
				if v.Name != v.Key.Data() {
					kept++
				}
			}
			for _, ref := range imagesOf(there) {
				if strings.Contains(ref, ":i") || strings.Contains(ref, ":s") {
					kept++
				}
			}
		}
		return disk.Space{Bytes: int64(most - kept), Inodes: disk.Endless}, err
	}
	c.Admission = admission.New(admission.Config{
		Stacks: w.db.All, Firewall: walls{w}, DiskFloor: 1, Log: c.Log,
		Disks: []admission.Disk{{Free: free, Reclaim: func(enough func() bool) { w.sup.Reclaim(enough) }}},
	})
	return func(n int) { most = n }
}

func TestReclaim_RemovesTheCachesOfStacksDeployedLongestAgoUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, enginetest.Options{})
		defer w.close()
		var allow func(int)
		w.configure = func(c *Config) { allow = w.crowd(c, 10) }
		w.startServer()
		w.cached()
		var stacks []*stack.Stack
		for range 4 {
			stacks = append(stacks, w.live(built("web")))
			time.Sleep(time.Second)
		}
		w.deploy(stacks[0].ID, built("web"))
		w.serves(stacks[0].ID, 2)
		synctest.Wait() // for the rest of the deploy
		w.program(stacks[1].ID, 2, silent)
		w.deploy(stacks[1].ID, built("web"))
		w.runs(stacks[1], "web-g1", "web-g2")

		allow(3)
		require.NoError(t, w.sup.cfg.Admission.Admit(false))
		for i, kept := range []bool{true, true, false, false} {
			require.Equal(t, kept, w.cache(stacks[i], 0) != nil, "of stack %d", i)
			require.Equal(t, kept, w.get(stacks[i].ID).CachesDropped == 0, "of stack %d", i)
		}
		allow(1)
		require.Error(t, w.sup.cfg.Admission.Admit(false), "what a deploy uses stays")
		require.Nil(t, w.cache(stacks[0], 0))
		require.NotNil(t, w.cache(stacks[1], 0))
	})
}

func TestReclaim_OfTheStackThatIsBuiltItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, enginetest.Options{})
		defer w.close()
		var allow func(int)
		w.configure = func(c *Config) { allow = w.crowd(c, 10) }
		w.startServer()
		found := w.cached()
		st := w.live(built("web"))
		allow(1)
		w.deploy(st.ID, built("web"))
		w.serves(st.ID, 2)
		require.Empty(t, found())
	})
}

// crowded is a world with a disk for so many build caches and layers, whose builds run
// npm. It returns functions that change the number and that tell which commands ran.
func crowded(t *testing.T, most int, test func(w *world, allow func(int), ran func() string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, enginetest.Options{})
		defer w.close()
		var allow func(int)
		w.configure = func(c *Config) { allow = w.crowd(c, most) }
		w.startServer()
		test(w, allow, w.npm())
	})
}

// servedFrom is a stack that serves files as its second generation.
func (w *world) servedFrom(files map[string]string, spec stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.long(service("web"))
	w.deployOf(st.ID, files, spec)
	st = w.serves(st.ID, 2)
	w.settle()
	return st
}

// compiled is a service that runs from an image that a command built, not from what it installs.
func compiled(name string) stack.Spec {
	s := installed(name)
	s.Build = "make"
	return s
}

func TestReclaim_RemovesLayersThatNoServiceRunsFrom(t *testing.T) {
	t.Parallel()
	crowded(t, 20, func(w *world, allow func(int), _ func() string) {
		own := w.servedFrom(large("one"), compiled("web"))
		runs := w.servedFrom(large("two"), installed("web"))
		later := w.servedFrom(dependencies("1", "three"), compiled("web"))
		key := func(st *stack.Stack) engine.Key { return engine.Key{Stack: st.ID, Service: "web"} }
		require.ElementsMatch(t, []string{key(own).Image(2), key(own).Layer(2), key(own).SourceLayer(2)}, imagesOf(w.there(own)))
		require.ElementsMatch(t, []string{key(runs).Layer(2), key(runs).SourceLayer(2)}, imagesOf(w.there(runs)))

		allow(4)
		require.NoError(t, w.sup.cfg.Admission.Admit(false))
		require.Equal(t, []string{key(own).Image(2)}, imagesOf(w.there(own)))
		require.Equal(t, []string{key(runs).Layer(2)}, imagesOf(w.there(runs)), "which it runs from")
		require.ElementsMatch(t, []string{key(later).Image(2), key(later).Layer(2)}, imagesOf(w.there(later)), "there is room")
		for _, st := range []*stack.Stack{own, runs} {
			require.Nil(t, w.cache(st, 0))
			require.Empty(t, w.get(st.ID).Layers)
			require.Equal(t, "L2", w.consistent(st, "after the disk was full"))
		}
	})
}

// What a service runs from makes no room, so its stack keeps it for the next build.
func TestReclaim_TakesAStackWithoutCachesForItsLayersAlone(t *testing.T) {
	t.Parallel()
	crowded(t, 20, func(w *world, allow func(int), ran func() string) {
		runs, own := w.servedFrom(dependencies("1", "one"), installed("web")), w.servedFrom(dependencies("1", "two"), compiled("web"))
		time.Sleep(readyWait) // no container has them any more
		synctest.Wait()
		for _, st := range []*stack.Stack{runs, own} {
			cache := engine.Volume{Name: engine.Key{Stack: st.ID, Service: "web"}.Cache(0)}
			require.NoError(t, w.driver.Discard(t.Context(), engine.Objects{Volumes: []engine.Volume{cache}}))
		}
		allow(2)
		require.NoError(t, w.sup.cfg.Admission.Admit(false))
		require.Zero(t, w.get(runs.ID).CachesDropped)
		require.NotEmpty(t, w.get(runs.ID).Layers)
		require.Empty(t, w.get(own.ID).Layers)
		require.Equal(t, []string{engine.Key{Stack: own.ID, Service: "web"}.Image(2)}, imagesOf(w.there(own)))
		ran()
		allow(20)
		w.deployOf(own.ID, dependencies("1", "three"), compiled("web"))
		w.serves(own.ID, 3)
		require.Contains(t, ran(), "npm install")
	})
}

func TestReclaim_OfTheLayersOfTheServiceThatIsBuiltItself(t *testing.T) {
	t.Parallel()
	crowded(t, 20, func(w *world, allow func(int), ran func() string) {
		files := large("one")
		st := w.servedFrom(files, compiled("web"))
		require.Len(t, imagesOf(w.there(st)), 3)
		ran()
		allow(1)
		files["server.js"] = "two"
		w.deployOf(st.ID, files, compiled("web"))
		w.serves(st.ID, 3)
		require.Equal(t, "npm install sees  ; make sees two modules 3", ran())
		require.Equal(t, "run (what generation 2 installed is gone)", w.installs(st))
	})
}

func TestReclaim_KeepsTheLayerThatTheServiceRunsFromWhileItIsBuilt(t *testing.T) {
	t.Parallel()
	crowded(t, 20, func(w *world, allow func(int), ran func() string) {
		st := w.servedFrom(dependencies("1", "one"), installed("web"))
		ran()
		allow(2) // with the layer, not with the cache as well
		w.deployOf(st.ID, dependencies("1", "two"), installed("web"))
		w.serves(st.ID, 3)
		require.Empty(t, ran())
		require.Equal(t, "taken over from generation 2 (package.json unchanged)", w.installs(st))
	})
}

// same is a source that is the same in each upload.
var same = map[string]string{"index.html": "the same"}

// fresh deploys a source of files and uses nothing of earlier builds.
func (w *world) fresh(id string, files map[string]string, specs ...stack.Spec) {
	w.t.Helper()
	_, err := w.sup.Deploy(w.t.Context(), id, source.Upload{Manifest: &stack.Manifest{Services: specs}, Source: w.uploadOf(files), Fresh: true}, nil)
	require.NoError(w.t, err)
}

func TestFresh_BuildsAgainWithoutWhatEarlierBuildsLeft(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := w.cached()
		st := w.live(built("web"))
		for generation := 2; generation <= 3; generation++ { // the second time the source is the same
			w.fresh(st.ID, same, built("web"))
			st = w.serves(st.ID, generation)
			require.Empty(t, found())
			require.Equal(t, generation, st.CachesDropped+1)
			require.Contains(t, st.Service("web").Image, fmt.Sprintf(":g%d", generation))
		}
		w.settle()
		require.Nil(t, w.cache(st, 1))
		require.Equal(t, "web3", w.cache(st, 2)["tool/file"], "which the next build uses")
	})
}

func TestRebuild_TakesTheKeptSourceAndNothingElse(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		found := w.cached()
		st := w.live(built("web"))
		before := st.Generation.Source
		w.program(st.ID, 2, func(p *enginetest.Process) int {
			time.Sleep(10 * time.Second)
			return listen(p)
		})
		_, err := w.sup.Rebuild(w.t.Context(), st.ID)
		require.NoError(t, err)
		_, err = w.sup.Rebuild(w.t.Context(), st.ID)
		require.Equal(t, stack.Conflict, stack.KindOf(err), "while one is under way")
		st = w.serves(st.ID, 2)
		require.Empty(t, found())
		require.Equal(t, before, st.Generation.Source)
		w.settle()
		require.Equal(t, "L2", w.consistent(st, "built again"))

		w.program(st.ID, 3, exits(1))
		_, err = w.sup.Rebuild(w.t.Context(), st.ID)
		require.NoError(t, err)
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.Equal(t, "L2", w.consistent(st, "a rebuild failed"))
	})
}

func TestRebuild_OfAFailedStack(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.cached()
		st := w.live(built("web"))
		require.NoError(t, w.change(st, func(st *stack.Stack) ([]stack.Event, error) { return st.RestoreFailed("lost") }))
		_, err := w.sup.Rebuild(w.t.Context(), st.ID)
		require.NoError(t, err)
		require.Equal(t, 2, w.serves(st.ID, 2).Generation.Number)
	})
}

func TestRebuild_NeedsAKeptSource(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(built("web"))
		require.NoError(t, w.change(st, func(st *stack.Stack) ([]stack.Event, error) {
			st.Generation.Source = stack.Source{}
			return nil, nil
		}))
		_, err := w.sup.Rebuild(w.t.Context(), st.ID)
		require.ErrorContains(t, err, "is not kept")
		require.Zero(t, w.get(st.ID).CachesDropped)
	})
}

func TestRebuild_NeedsAWholeSource(t *testing.T) {
	t.Parallel()
	onLayer := installed("web")
	onLayer.Build = "make"
	files := dependencies("1", "one")
	files["index.html"] = "a page"
	for name, spec := range map[string]stack.Spec{
		"built":            built("web"),
		"built on a layer": onLayer,
		"beside a layer":   installed("web"),
		"as it was sent":   service("web"),
		"published":        pages("web"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.npm()
				st := w.long(service("web"))
				w.deployOf(st.ID, files, spec)
				w.serves(st.ID, 2)
				w.settle()
				w.damage(st, "server.js")
				before := w.get(st.ID)
				_, err := w.sup.Rebuild(w.t.Context(), st.ID)
				w.wantsWholeSource(before, err)

				w.fresh(st.ID, files, spec)
				w.serves(st.ID, 3)
				_, err = w.sup.Rebuild(w.t.Context(), st.ID)
				require.NoError(w.t, err)
				w.serves(st.ID, 4)
			})
		})
	}
}
