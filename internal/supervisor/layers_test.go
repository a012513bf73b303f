package supervisor

import (
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/datadir"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// installed is a service with an install command that reads package.json alone.
func installed(name string) stack.Spec {
	s := service(name)
	s.Builder, s.Install = node, "npm install"
	return s
}

// dependencies is a source for installed, with a program.
func dependencies(version, program string) map[string]string {
	return map[string]string{
		"package.json": `{"dependencies": {"a": "` + version + `"}}`,
		"server.js":    program,
	}
}

// npm makes install and build commands note what they see, and returns the notes since
// the last call.
func (w *world) npm() (ran func() string) {
	var mu sync.Mutex
	var notes []string
	w.command(func(p *enginetest.Process) int {
		mu.Lock()
		defer mu.Unlock()
		command := strings.TrimPrefix(p.Args[len(p.Args)-1], "exec 2>&1\n")
		notes = append(notes, command+" sees "+p.Read("/app", "server.js")+" "+p.Read("/app", "node_modules"))
		if command == "npm install" {
			p.Write("/app", "node_modules", "modules "+variable(p, "GENERATION"))
			p.Write("/app", "package.json", "as install left it")
		}
		return 0
	})
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { notes = nil }()
		return strings.Join(notes, "; ")
	}
}

// shows makes the programs of a generation note what is in their container.
func (w *world) shows(id string, generation int) (seen func() string) {
	var last noted[string]
	w.program(id, generation, func(p *enginetest.Process) int {
		last.set(p.Read("/app", "server.js") + ", " + p.Read("/app", "node_modules") + ", " + p.Read("/app", "package.json"))
		return listen(p)
	})
	return last.get
}

// deployOf deploys a source of files.
func (w *world) deployOf(id string, files map[string]string, specs ...stack.Spec) {
	w.t.Helper()
	_, err := w.sup.Deploy(w.t.Context(), id, source.Upload{Manifest: &stack.Manifest{Services: specs}, Source: w.uploadOf(files)}, nil)
	require.NoError(w.t, err)
}

// installs returns the line of the latest build log of the service web that says how
// install was done.
func (w *world) installs(st *stack.Stack) string {
	w.t.Helper()
	text, err := os.ReadFile(w.dir.Log(st.ID, "web", datadir.BuildLog))
	require.NoError(w.t, err)
	_, line, _ := strings.Cut(string(text), "\ninstall: ")
	line, _, _ = strings.Cut(line, "\n")
	return line
}

func layerOf(st *stack.Stack, attempt int) string {
	return engine.Key{Stack: st.ID, Service: "web"}.Layer(attempt)
}

func TestLayers_AreTakenOverWhileInstallSeesTheSame(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		seen := w.shows(st.ID, 2)
		w.deployOf(st.ID, dependencies("1", "one"), installed("web"))
		w.serves(st.ID, 2)
		require.Equal(t, "npm install sees  ", ran(), "it sees what it reads alone")
		require.Equal(t, "one, modules 2, as install left it", seen())
		require.Equal(t, "run (the command changed)", w.installs(st))

		seen = w.shows(st.ID, 3)
		w.deployOf(st.ID, dependencies("1", "two"), installed("web"))
		w.serves(st.ID, 3)
		require.Empty(t, ran())
		require.Equal(t, "two, modules 2, as install left it", seen())
		require.Equal(t, "taken over from generation 2 (package.json unchanged)", w.installs(st))

		seen = w.shows(st.ID, 4)
		w.deployOf(st.ID, dependencies("2", "two"), installed("web"))
		now := w.serves(st.ID, 4)
		require.Equal(t, "two, modules 4, as install left it", seen())
		require.Equal(t, "run (package.json changed)", w.installs(st))
		w.settle()
		require.Equal(t, []string{layerOf(st, 4)}, imagesOf(w.there(st)))
		require.Equal(t, layerOf(st, 4), now.Service("web").Image)
	})
}

func TestLayers_ABuildGoesOnFromThem(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		spec := installed("web")
		spec.Build = "make"
		w.deployOf(st.ID, dependencies("1", "one"), spec)
		w.serves(st.ID, 2)
		require.Equal(t, "npm install sees  ; make sees one modules 2", ran())
		w.deployOf(st.ID, dependencies("1", "two"), spec)
		w.serves(st.ID, 3)
		require.Equal(t, "make sees two modules 2", ran())
		w.settle()
		require.ElementsMatch(t, []string{layerOf(st, 2), engine.Key{Stack: st.ID, Service: "web"}.Image(3)}, imagesOf(w.there(st)))

		w.deployOf(st.ID, dependencies("2", "two"), spec)
		w.serves(st.ID, 4)
		require.Equal(t, "npm install sees  ; make sees two modules 4", ran())
		w.settle()
		require.ElementsMatch(t, []string{layerOf(st, 4), engine.Key{Stack: st.ID, Service: "web"}.Image(4)}, imagesOf(w.there(st)))
	})
}

// A site is not an image, but the layer of its commands stays for the next build.
func TestLayers_OfASiteStayBesideIt(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		spec := installed("web")
		spec.Runtime, spec.Start, spec.Build, spec.Publish = stack.Runtime{Name: stack.Static}, "", "make", "."
		w.deployOf(st.ID, dependencies("1", "one"), spec)
		w.await(st.ID, "deployed", func(st *stack.Stack) bool { return st.Deploying == 0 })
		require.Equal(t, "npm install sees  ; make sees one modules 2", ran())
		require.Equal(t, layerOf(st, 2), w.get(st.ID).Layers["web"].Image)
	})
}

// The next attempt need not install again what one that failed has installed.
func TestLayers_OfAFailedAttemptAreKept(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		before := w.get(st.ID).Service("web").Image
		w.program(st.ID, 2, exits(1))
		w.deployOf(st.ID, dependencies("1", "one"), installed("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.ElementsMatch(t, []string{before, layerOf(st, 2)}, imagesOf(w.there(st)))
		ran()

		w.program(st.ID, 2, nil)
		w.deployOf(st.ID, dependencies("1", "two"), installed("web"))
		w.serves(st.ID, 2)
		require.Empty(t, ran())
		w.settle()
		require.Equal(t, []string{layerOf(st, 2)}, imagesOf(w.there(st)))
	})
}

func TestLayers_ThatAreGoneAreMadeAgain(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.live(service("web"))
		spec := installed("web")
		spec.Build = "make"
		w.deployOf(st.ID, dependencies("1", "one"), spec)
		w.serves(st.ID, 2)
		time.Sleep(readyWait + time.Second) // nothing is made from it any more
		synctest.Wait()
		require.NoError(t, w.driver.Discard(t.Context(), engine.Objects{Images: []engine.Image{{Tags: []string{layerOf(st, 2)}}}}))
		w.deployOf(st.ID, dependencies("1", "two"), spec)
		w.serves(st.ID, 3)
		require.Equal(t, "run (what generation 2 installed is gone)", w.installs(st))
	})
}

func TestLayers_GoWithTheManageToken(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		spec := installed("web")
		spec.Build = "make"
		w.deployOf(st.ID, dependencies("1", "one"), spec)
		w.serves(st.ID, 2)
		require.NoError(t, w.claim(st.ID))
		w.settle()
		w.deployOf(st.ID, dependencies("1", "two"), spec)
		w.serves(st.ID, 3)
		require.Equal(t, "taken over from generation 2 (package.json unchanged)", w.installs(st), "a claim drops nothing")
		w.settle()
		require.NoError(t, w.change(st, (*stack.Stack).RevokeAgent))
		w.settle()
		require.Equal(t, []string{engine.Key{Stack: st.ID, Service: "web"}.Image(3)}, imagesOf(w.there(st)))
		ran()
		w.deployOf(st.ID, dependencies("1", "three"), spec)
		w.serves(st.ID, 4)
		require.Contains(t, ran(), "npm install")
		require.Equal(t, "run (nothing of earlier builds is kept)", w.installs(st))
	})
}

func TestLayers_AreNotTakenOverByAFreshBuild(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		files := dependencies("1", "one")
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 2)
		ran()
		w.fresh(st.ID, files, installed("web"))
		w.serves(st.ID, 3)
		require.Equal(t, "npm install sees  ", ran())
		require.Equal(t, "run (a fresh build was asked for)", w.installs(st))
		w.settle()
		require.Equal(t, []string{layerOf(st, 3)}, imagesOf(w.there(st)))

		w.deployOf(st.ID, dependencies("1", "two"), installed("web"))
		w.serves(st.ID, 4)
		require.Empty(t, ran())
		require.Equal(t, "taken over from generation 3 (package.json unchanged)", w.installs(st))

		files["package.json"] = `{"scripts": {"postinstall": "node setup.js"}}`
		w.fresh(st.ID, files, installed("web"))
		w.serves(st.ID, 5)
		require.Equal(t, "run with the whole source (a fresh build was asked for; package.json has a postinstall script)", w.installs(st))
	})
}

func TestLayers_OfAServiceThatIsNoLongerDeployedGo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.live(service("web"))
		spec := installed("web")
		spec.Build = "make"
		w.deployOf(st.ID, dependencies("1", "one"), spec)
		w.serves(st.ID, 2)
		w.deploy(st.ID, pages("docs"))
		now := w.serves(st.ID, 3)
		w.settle()
		require.Empty(t, imagesOf(w.there(st)))
		require.Empty(t, now.Layers)
	})
}

// The whole source is what install may have read: with the same one, nothing runs again.
func TestLayers_OfTheWholeSource(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.live(service("web"))
		files := dependencies("1", "one")
		files["package.json"] = `{"scripts": {"postinstall": "node setup.js"}}`
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 2)
		require.Equal(t, "npm install sees one ", ran())
		require.Equal(t, "run with the whole source (package.json has a postinstall script)", w.installs(st))

		later := installed("web")
		later.Health = "/healthz"
		seen := w.shows(st.ID, 3)
		w.deployOf(st.ID, files, later)
		w.serves(st.ID, 3)
		require.Empty(t, ran())
		require.Equal(t, "one, modules 2, as install left it", seen())
		require.Equal(t, "taken over from generation 2 (the source unchanged)", w.installs(st))

		files = maps.Clone(files)
		files["server.js"] = "two"
		w.deployOf(st.ID, files, later)
		w.serves(st.ID, 4)
		require.Equal(t, "npm install sees two ", ran())
	})
}

// Whoever starts a container later, after a crash of the server or of the engine, copies
// the source of the served generation into it.
func TestLayers_AServerThatFollowsCopiesTheSource(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.live(service("web"))
		w.deployOf(st.ID, dependencies("1", "one"), installed("web"))
		w.serves(st.ID, 2)
		w.deployOf(st.ID, dependencies("1", "two"), installed("web"))
		w.serves(st.ID, 3)
		w.settle()
		w.stopServer()
		container := engine.Key{Stack: st.ID, Service: "web", Generation: 3}.Process(0)
		require.NoError(t, w.driver.Remove(t.Context(), container))
		seen := w.shows(st.ID, 3)
		w.startServer()
		w.settle()
		require.Equal(t, "two, modules 2, as install left it", seen())
		require.Equal(t, "L3", w.consistent(st, "after the restart"))
	})
}

func TestLayers_AServiceWithoutItsSourceSaysSo(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(service("web"))
		w.stopServer()
		require.NoError(t, w.driver.Remove(t.Context(), engine.Key{Stack: st.ID, Service: "web", Generation: 1}.Process(0)))
		require.NoError(t, os.RemoveAll(w.dir.Source(st.ID, w.get(st.ID).Generation.Source.Folder)))
		w.startServer()
		failed := w.becomes(st.ID, stack.Failed)
		require.Equal(t, "service web: its source on this host is missing or damaged; upload the source again", failed.Error)
	})
}

// large is a source that is worth a layer.
func large(program string) map[string]string {
	files := dependencies("1", program)
	for i := range 600 {
		files["assets/"+strconv.Itoa(i)] = strconv.Itoa(i)
	}
	return files
}

func TestSourceLayer_IsWhatTheNextContainerBeginsWith(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.long(service("web"))
		files := large("one")
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 2)
		w.settle()
		layer := w.get(st.ID).Layers["web"]
		require.Equal(t, engine.Key{Stack: st.ID, Service: "web"}.SourceLayer(2), layer.Source.Image)
		require.ElementsMatch(t, []string{layer.Image, layer.Source.Image}, imagesOf(w.there(st)))

		seen := w.shows(st.ID, 3)
		files["server.js"] = "two"
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 3)
		require.Equal(t, "two, modules 2, as install left it", seen())
		w.settle()
		require.Equal(t, layer.Source, w.get(st.ID).Layers["web"].Source, "little differs: it stays")

		// What is gone from the source must be gone from the container.
		delete(files, "assets/7")
		var left noted[string]
		w.program(st.ID, 4, func(p *enginetest.Process) int {
			left.set(p.Read("/app/assets", "7") + p.Read("/app/assets", "8"))
			return listen(p)
		})
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 4)
		require.Equal(t, "8", left.get())
		w.settle()
		require.Equal(t, engine.Key{Stack: st.ID, Service: "web"}.SourceLayer(4), w.get(st.ID).Layers["web"].Source.Image)
		require.ElementsMatch(t, []string{layer.Image, w.get(st.ID).Layers["web"].Source.Image}, imagesOf(w.there(st)))
		require.Len(t, w.dir.Listings(st.ID, func(string) bool { return true }), 1)
	})
}

// A build without an install begins with the base image, and so does the layer of its source.
func TestSourceLayer_IsWhatTheNextBuildBeginsWith(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		ran := w.npm()
		st := w.long(built("web"))
		ran()
		spec, files := built("web"), large("one")
		w.deployOf(st.ID, files, spec)
		w.serves(st.ID, 2)
		require.Equal(t, "make sees one ", ran())
		w.settle()
		layer := w.get(st.ID).Layers["web"]
		require.Equal(t, stack.SourceLayer{Image: engine.Key{Stack: st.ID, Service: "web"}.SourceLayer(2), Digest: w.get(st.ID).Generation.Source.Digest}, layer.Source)
		require.Empty(t, layer.Image)

		var asked noted[[]string]
		w.engine.Before("HasImage", func(ref string) error {
			asked.set(append(asked.get(), ref))
			return nil
		})
		files["server.js"] = "two"
		w.deployOf(st.ID, files, spec)
		w.serves(st.ID, 3)
		require.Equal(t, "make sees two ", ran())
		require.Contains(t, asked.get(), layer.Source.Image)
		w.settle()
		require.ElementsMatch(t, []string{layer.Source.Image, w.get(st.ID).Service("web").Image}, imagesOf(w.there(st)))

		// Without the build command a process needs another image.
		w.deployOf(st.ID, files, service("web"))
		w.serves(st.ID, 4)
		w.settle()
		require.Equal(t, layerOf(st, 4), w.get(st.ID).Service("web").Image)
	})
}

func TestSourceLayer_IsNotMadeOfADamagedSource(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.long(service("web"))
		files := large("one")
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 2)
		w.damage(st, "assets/7")
		w.settle()
		require.Empty(t, w.get(st.ID).Layers["web"].Source)

		var seen noted[string]
		w.program(st.ID, 3, func(p *enginetest.Process) int {
			seen.set(p.Read("/app", "server.js") + p.Read("/app/assets", "7"))
			return listen(p)
		})
		files["server.js"] = "two"
		w.deployOf(st.ID, files, installed("web"))
		w.serves(st.ID, 3)
		require.Equal(t, "two7", seen.get())
	})
}

// beforeCopy calls do before a method of the engine is asked for the container in which
// the layer with the source of the service web is made.
func (w *world) beforeCopy(st *stack.Stack, method string, do func()) {
	copied := engine.Key{Stack: st.ID, Service: "web"}.SourceCopy()
	w.engine.Before(method, func(object string) error {
		c, err := w.driver.Look(w.t.Context(), copied)
		if object == copied || err == nil && c.ID == object {
			do()
		}
		return nil
	})
}

func TestSourceLayer_IsFinishedBesideTheDeploysThatFollow(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.long(service("web"))
		w.beforeCopy(st, "Commit", func() { time.Sleep(5 * time.Second) })
		files := large("one")
		w.deployOf(st.ID, files, installed("web"))
		for generation := 3; generation <= 6; generation++ {
			w.serves(st.ID, generation-1)
			time.Sleep(time.Second)
			files["server.js"] = strconv.Itoa(generation)
			w.deployOf(st.ID, files, installed("web"))
		}
		w.settle()
		layer := w.get(st.ID).Layers["web"]
		require.Equal(t, engine.Key{Stack: st.ID, Service: "web"}.SourceLayer(2), layer.Source.Image)
		require.ElementsMatch(t, []string{layer.Image, layer.Source.Image}, imagesOf(w.there(st)))
	})
}

func TestSourceLayer_GoesIfTheLayersWereDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.long(service("web"))
		var refused error
		w.beforeCopy(st, "Commit", func() {
			refused = errors.Join(w.claim(st.ID), w.change(st, (*stack.Stack).RevokeAgent))
		})
		w.deployOf(st.ID, large("one"), installed("web"))
		w.serves(st.ID, 2)
		w.settle()
		require.NoError(t, refused)
		require.Equal(t, []string{w.get(st.ID).Service("web").Image}, imagesOf(w.there(st)))
	})
}

func TestSourceLayer_IsNotMadeOfASourceThatGoesMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.npm()
		st := w.long(service("web"))
		w.beforeCopy(st, "Prepare", func() { w.damage(st, "assets/7") })
		w.deployOf(st.ID, large("one"), installed("web"))
		w.serves(st.ID, 2)
		w.settle()
		require.Empty(t, w.get(st.ID).Layers["web"].Source)
		require.Equal(t, []string{layerOf(st, 2)}, imagesOf(w.there(st)))
	})
}
