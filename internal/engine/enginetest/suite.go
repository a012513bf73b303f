package enginetest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/stackid"
)

// Bench is what a test of the contract gets: a driver and an engine that it may disturb.
type Bench struct {
	Driver  engine.Driver // of an installation without objects
	Another engine.Driver // of another such installation on the same engine
	Subnets int           // free subnets in the pool that both have, at least two

	// Image has the program that Command runs. It runs as root, and its first argument
	// says what it does:
	//
	//	print TEXT         prints a line
	//	count N PAUSE      prints N lines, 0 and so on, a pause after each
	//	exit CODE          ends with a code
	//	serve [FILE TEXT]  prints "serving"; when it is asked to end, writes a file and
	//	                   ends with 0
	//	stubborn           prints "serving" and never ends by itself
	//	listen :PORT...    prints "listening", greets whoever connects, and answers
	//	dial NAME:PORT     prints the greeting there; ends with 1 when there is none
	//	call NAME:PORT     prints the greeting there; when it is asked to end, prints
	//	                   "still connected", or ends with 1 if it is not
	//	append FILE TEXT   adds to a file
	//	cat FILE           prints a file; ends with 1 when there is none
	Image   string
	Command func(words ...string) []string

	Tools string // image of a SnapshotSpec

	Registry string // beginning of references in a registry that asks nobody for a name

	// Script returns a command for containers of Tools. Its first argument says what it
	// does:
	//
	//	print TEXT         prints a line
	//	exit CODE          ends with a code
	//	cat FILE           prints a file
	//	mourn FILE         prints "begun" and waits, with a child that writes "asked" to a
	//	                   file when it is asked to end
	//	stubborn           prints "begun" and never ends by itself
	Script func(words ...string) []string

	// LoseAnswers loses the first answer to each request from now on that changes
	// something: the engine does what it is asked, but the driver does not learn that.
	LoseAnswers func()

	// Leave makes the engine unreachable, and Return makes it answer again. Processes may
	// end in between.
	Leave, Return func()

	// BreakStart loses the answer of the next Start or Restart of a container, which has
	// ended by then, and makes the engine unreachable for a moment that is shorter than a
	// driver asks again.
	BreakStart func()

	// BreakPromote makes the engine unreachable in the middle of the next Promote, while
	// the container is off its network.
	BreakPromote func()

	// BreakFill makes the engine end for a moment while it fills the volume of a name and a
	// key for the next container, in Run or Restore: the volume has a file, part, and
	// nothing else, there is no container, and the answer is lost.
	BreakFill func(key engine.Key, volume string)

	// TakeAddress gives the address of a container to another one on its network in the
	// middle of the next Promote of the first, and with leave makes the engine unreachable
	// before the first is on the network again. Both are ids.
	TakeAddress func(id, other string, leave bool)
}

// Suite runs the contract of engine.Driver, a test for each part of it. The function with
// runs one test on a bench that no other one has.
func Suite(t *testing.T, with func(t *testing.T, test func(*testing.T, Bench))) {
	for name, check := range contract {
		t.Run(name, func(t *testing.T) {
			with(t, func(t *testing.T, b Bench) {
				c := trial{t: t, bench: b, driver: b.Driver, web: newKey()}
				defer c.tidy()
				check(c)
			})
		})
	}
}

// contract has the tests by what each shows.
var contract = map[string]func(trial){
	"Promote keeps open connections":                        promoteConnected,
	"Promote says that an address was taken":                promoteTaken,
	"Promote that breaks is mended by Restart":              promoteBroken,
	"Promote that breaks after an address was taken":        promoteTakenBroken,
	"Snapshot of no data makes none":                        snapshotMissing,
	"Snapshot, Restore and Commit at the same time":         keepAtOnce,
	"Discard goes on after an error":                        discardGoesOn,
	"Discard leaves an image that a container has":          discardUsed,
	"What is made is made when a call returns":              makeCancelled,
	"Promote that is cut short leaves its container whole":  promoteCancelled,
	"Snapshot and Restore that are cut short lose no data":  keepCancelled,
	"A lost answer leaves a Promote whole":                  lostPromote,
	"Place makes one network":                               placeMakesOne,
	"Place finds no free network":                           placeFindsNone,
	"Run replaces what is in the way":                       runReplaces,
	"Run says what is missing":                              runMissing,
	"Run at the same time leaves one":                       runAtOnce,
	"Run fills a new volume from the image":                 runFillsVolume,
	"Run copies files in before the start":                  runCopiesFiles,
	"Run starts nothing without its files":                  runWithoutFiles,
	"Run awaits the network while it makes the container":   runAwaits,
	"Run starts nothing that waits in vain":                 runAwaitsInVain,
	"Run puts a container on the shared network, too":       runShares,
	"Restart runs again what has ended":                     restartEnded,
	"Restart leaves alone what runs":                        restartRunning,
	"Promote changes names and keeps the address":           promoteRenames,
	"Promote names what is not started":                     promotePrepared,
	"Look knows a container by id and by name":              lookKnows,
	"Stop asks, then kills":                                 stopKills,
	"Stop ends with its context":                            stopCancelled,
	"Stop and Remove succeed when it is gone":               removeGone,
	"Stop and Remove at the same time":                      removeAtOnce,
	"Follow gives every line":                               followLines,
	"Follow ends with its context":                          followCancelled,
	"Sockets are in the order of their ports":               socketsListed,
	"Ended reports the installation's own":                  endedOwn,
	"Containers, Volumes and Networks are those of the key": objectsOfKey,
	"Inventory has what is the installation's own":          inventoryOwn,
	"Discard removes everything":                            discardAll,
	"Snapshot and Restore carry the data":                   snapshotRestores,
	"Snapshot and Restore remove what was left":             snapshotLeft,
	"Restore says that its volume is in use":                restoreInUse,
	"Snapshot needs room":                                   snapshotRoom,
	"HasData knows a volume with files":                     dataKnown,
	"ReadData and FillData carry the data":                  dataCarried,
	"ReadData of no data says so":                           dataMissing,
	"DataState changes with the data":                       dataStated,
	"ReadData reads the data of a paused container":         dataReadPaused,
	"Pause and Unpause end nothing":                         pauseKeeps,
	"Pause needs a container that runs":                     pauseMissing,
	"Stop and Remove end what is paused":                    pauseEnds,
	"ReadData and FillData that break off":                  dataCut,
	"FillData says that its volume is in use":               dataInUse,
	"UnpackData makes a volume beside the one before":       dataUnpacked,
	"Push and Fetch carry an image":                         imagesCarried,
	"Measure reads what a container uses":                   usageMeasured,
	"Measure needs a container that runs":                   usageNotRunning,
	"VolumeSize grows with the data":                        volumeSized,
	"LayerSize grows with what a container writes":          layerSized,
	"ImagesSize counts what images add":                     imagesSized,
	"Probe shows that containers run":                       probeShows,
	"Prepare replaces and Start starts":                     prepareStarts,
	"CopyIn puts files into container and volume":           copyInFiles,
	"Exec returns output and exit code":                     execReturns,
	"Exec unpacks files before the command":                 execUnpacks,
	"Exec ends with its context":                            execCancelled,
	"Command returns output and exit code":                  commandReturns,
	"Command ends its process group with its context":       commandEnds,
	"Command kills what does not end":                       commandKills,
	"Command says that its container ended":                 commandContainer,
	"Commit makes the image of a generation":                commitMakes,
	"Commit leaves the floor free":                          commitRoom,
	"Tag gives one more reference":                          tagAdds,
	"MakeImage and Import make images":                      imagesMade,
	"HasImage takes an image without files for missing":     emptyImage,
	"Pull reports what cannot be had":                       pullFails,
	"A lost answer runs no command twice":                   lostRun,
	"A lost answer and an absence run no command twice":     lostStart,
	"A lost answer is asked for again":                      lostAsked,
	"A lost answer costs no data":                           lostData,
	"A volume that is filled in part is filled anew":        lostFill,
	"An engine that is away is unreachable":                 awayFails,
	"A removal outlasts the absence of the engine":          awayRemoval,
	"Ended breaks once when the engine goes away":           awayEnded,
}

// trial is a test of one part of the contract.
type trial struct {
	t      *testing.T
	bench  Bench
	driver engine.Driver
	web    engine.Key // of a service that no other test has
}

// newKey returns the key of a service in a new stack.
func newKey() engine.Key {
	return engine.Key{Stack: stackid.New(), Service: "web", Generation: 1}
}

// tidy removes everything that a test has left.
func (c trial) tidy() {
	ctx := context.WithoutCancel(c.t.Context())
	c.bench.Return()
	for _, d := range []engine.Driver{c.bench.Driver, c.bench.Another} {
		there, err := d.Inventory(ctx, "")
		assert.NoError(c.t, err)
		for _, objects := range there {
			assert.NoError(c.t, d.Discard(ctx, objects))
		}
		if len(there) > 0 {
			there, err = d.Inventory(ctx, "")
			assert.NoError(c.t, err)
			assert.Empty(c.t, there)
		}
	}
}

// spec describes a container of the trial's service that runs the bench's program.
func (c trial) spec(name string, words ...string) engine.Spec {
	return engine.Spec{
		Name: name, Key: c.web, Image: c.bench.Image, User: "0:0", Cmd: c.bench.Command(words...),
		Volumes: map[string]string{dataPath: c.web.Data()}, Pids: 100, StopTimeout: time.Second,
	}
}

// dataPath is where spec's containers have the service's data.
const dataPath = "/data"

// process describes the service's process.
func (c trial) process(words ...string) engine.Spec { return c.spec(c.web.Process(0), words...) }

// runUntil runs a container and waits until it has printed a line, unless that is "".
func (c trial) runUntil(spec engine.Spec, until string) (id string) {
	c.t.Helper()
	id, err := c.driver.Run(c.t.Context(), spec)
	require.NoError(c.t, err)
	c.await(id, until)
	return id
}

// await waits until a container has printed a line, unless that is "".
func (c trial) await(id, line string) {
	c.t.Helper()
	if line == "" {
		return
	}
	ctx, seen := context.WithCancel(c.t.Context())
	defer seen()
	err := c.driver.Follow(ctx, id, time.Time{}, func(_ time.Time, text []byte) {
		if string(text) == line {
			seen()
		}
	})
	require.ErrorIs(c.t, err, context.Canceled, "the log ended without %q", line)
}

// output runs a command in a container of its own to its end, and returns what it
// printed.
func (c trial) output(words ...string) string {
	c.t.Helper()
	return c.log(c.runUntil(c.spec(c.web.Release(), words...), ""))
}

// log returns what a container printed, once it has ended.
func (c trial) log(id string) string {
	c.t.Helper()
	var text strings.Builder
	require.NoError(c.t, c.driver.Follow(c.t.Context(), id, time.Time{}, func(_ time.Time, line []byte) {
		text.Write(append(line, '\n'))
	}))
	return text.String()
}

// look returns what the engine knows of a container that exists.
func (c trial) look(id string) engine.Container {
	c.t.Helper()
	found, err := c.driver.Look(c.t.Context(), id)
	require.NoError(c.t, err)
	return found
}

// inventory returns what there is of the trial's stack.
func (c trial) inventory() engine.Objects {
	c.t.Helper()
	there, err := c.driver.Inventory(c.t.Context(), c.web.Stack)
	require.NoError(c.t, err)
	return there[c.web.Stack]
}

// place makes the network of the service's generation and returns its name.
func (c trial) place() string {
	c.t.Helper()
	require.NoError(c.t, c.driver.Place(c.t.Context(), c.web, 1))
	return c.web.Network()
}

// listen runs the service's process on its network, where others find it by a name.
func (c trial) listen(name string) (id string) {
	c.t.Helper()
	spec := c.process("listen", ":8080")
	spec.Network, spec.Aliases, spec.Volumes = c.place(), []string{name}, nil
	return c.runUntil(spec, "listening")
}

// neighbour runs a container on the service's network.
func (c trial) neighbour(name string, until string, words ...string) (id string) {
	c.t.Helper()
	spec := c.spec(name, words...)
	spec.Network, spec.Volumes = c.web.Network(), nil
	return c.runUntil(spec, until)
}

// greets reports whether a container is greeted at an address.
func (c trial) greets(id, addr string) bool {
	c.t.Helper()
	text, code, err := engine.Answer(c.t.Context(), c.driver, id, engine.Cmd{Args: c.bench.Command("dial", addr)})
	require.NoError(c.t, err)
	return code == 0 && text == "hello\n"
}

// atOnce calls do several times at the same time.
func (c trial) atOnce(do func() error) {
	c.t.Helper()
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() { assert.NoError(c.t, do()) })
	}
	all.Wait()
}

// moments are times after which contexts end before, during and after a call.
var moments = []time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second}

// within calls do with a context that ends after a moment.
func (c trial) within(moment time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), moment)
	defer cancel()
	return do(ctx)
}

// soon returns a context that ends in a moment.
func (c trial) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.t.Context(), 300*time.Millisecond)
}
