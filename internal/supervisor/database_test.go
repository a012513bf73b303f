package supervisor

import (
	"cmp"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

// database is what a database runs: it accepts connections until it is asked to end. Its
// data says whether it was ended in peace the last time.
func database(p *enginetest.Process) int {
	p.Print("was " + p.Read(stack.DataDir, "state"))
	p.Write(stack.DataDir, "state", "cut off")
	p.Listen(5432)
	select {
	case <-p.Terminated:
		p.Write(stack.DataDir, "state", "shut down")
	case <-p.Killed:
	}
	return 0
}

// databaseReady is the command that shows whether a database is ready.
func databaseReady(p *enginetest.Process) int {
	if p.Dial(variable(p, "PGHOST")+":5432") == nil {
		return 2
	}
	return 0
}

// databaseDump is the command that dumps a database.
func databaseDump(p *enginetest.Process) int {
	p.Print("dump of " + cmp.Or(p.Read(stack.DataDir, "state"), p.Read(stack.DataDir, enginetest.LoadedDump)))
	return 0
}

// db is a service that is a database.
func db() stack.Spec {
	return stack.Spec{Name: "db", Runtime: postgres, Root: ".", Start: "postgres-start", Strategy: stack.Recreate, StopTimeout: 30 * time.Second}
}

// using is a service that uses db.
func using(name string) stack.Spec {
	s := service(name)
	s.DependsOn = []string{"db"}
	return s
}

// connected is a program that serves as long as the connection works that it has made.
func connected(p *enginetest.Process) int {
	works := p.Dial("db:5432")
	if works == nil {
		return 1
	}
	p.Listen(8080)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for works() {
		select {
		case <-tick.C:
		case <-p.Terminated:
			return 0
		case <-p.Killed:
			return 0
		}
	}
	return 1
}

func TestDatabase_GoesOnInTheNextGeneration(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, connected, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		w.runs(st, "db-g0", "web-g1")
		id := w.served(st).process("db").id
		for number := 2; number < 5; number++ {
			before := len(w.events(st.ID))
			w.program(st.ID, number, connected)
			w.deploy(st.ID, db(), using("web"))
			w.serves(st.ID, number)
			require.Equal(t, []string{"stack.redeploying", "service.building", "service.ready", "stack.live"}, w.after(st.ID, before))
			require.Equal(t, id, w.served(st).process("db").id)
		}
		w.settle()
		w.runs(st, "db-g0", "web-g4")
		require.Zero(t, count(w.events(st.ID), "service.crashed"))

		w.crash(st, "db-g0", 3) // its new watcher notices
		w.awaitEvent(st.ID, "service.restarted", 1)
		w.settle() // web has lost its connection and is started again, too
		w.reboot()
		w.runs(st, "db-g0", "web-g4")
		require.Equal(t, id, w.served(st).process("db").id)
	})
}

// Whoever reads in the row that a database runs gets its dump, even if nothing else has
// followed from that row yet.
func TestDatabase_IsDumpedAsSoonAsTheRowSaysThatItRuns(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		dumped := make(chan error)
		dumpAt := func(id, kind string) {
			w.db.after(func(of string, events []stack.Event) {
				if of != id || !slices.ContainsFunc(events, func(e stack.Event) bool { return string(e.Type) == kind }) {
					return
				}
				go func() { dumped <- w.sup.ReadData(w.t.Context(), id, "db", false, io.Discard) }()
				time.Sleep(time.Second)
			})
		}
		st := created(time.Hour, db(), using("web"))
		dumpAt(st.ID, "stack.live")
		require.NoError(t, w.sup.Create(w.t.Context(), st, w.upload(), nil))
		require.NoError(t, <-dumped)

		w.deploy(st.ID, db(), using("web")) // the database goes on
		require.NoError(t, <-dumped)

		dumpAt(st.ID, "service.restarted")
		_, err := w.sup.Restart(w.t.Context(), st.ID, "db")
		require.NoError(t, err)
		require.NoError(t, <-dumped)
	})
}

func TestDatabase_IsNotDumpedWhileItIsStopped(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(db(), using("web"))
		w.settle()
		w.program(st.ID, 0, silent) // it takes its time to get healthy
		w.crash(st, "db-g0", 3)
		err := w.sup.ReadData(w.t.Context(), st.ID, "db", false, io.Discard)
		require.Equal(t, stack.Conflict, stack.KindOf(err), "%v", err)
		require.ErrorContains(t, err, "the process of db does not run at the moment")
	})
}

func TestDatabase_GoesOutAndInAsADump(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, keeping, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		var dump strings.Builder
		require.NoError(t, w.sup.ReadData(w.t.Context(), st.ID, "db", true, &dump))
		require.Equal(t, "dump of cut off", strings.TrimSpace(dump.String()))
		w.runs(st, "db-g0", "web-g1")

		replace := func(dump string) error {
			_, err := w.sup.ReplaceData(w.t.Context(), st.ID, "db", strings.NewReader(dump))
			return err
		}
		require.ErrorContains(t, replace(""), "the dump is empty")
		require.ErrorContains(t, replace("CREATE TABLE a (b int);"), "pg_dump -Fc")
		require.ErrorContains(t, replace("PGDMP"+strings.Repeat("x", 1<<20)), "the dump is larger than 1.049MB")
		w.runs(st, "db-g0", "web-g1")
		require.NoError(t, replace("PGDMP"))
		w.runs(st, "db-g0-r1", "web-g1")
		data := w.engine.Volume(engine.Key{Stack: st.ID, Service: "db", Volume: 1}.Data())
		require.Equal(t, "PGDMP", data[enginetest.LoadedDump])
		require.Equal(t, map[string]int{"db": 1}, w.get(st.ID).DataVolumes)
		require.Zero(t, count(w.events(st.ID), "service.crashed"))
	}, ofData)
}

func TestDatabase_SaysWhereItSpeaks(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		res := httptest.NewRecorder()
		w.sup.cfg.Routes.Serve(res, httptest.NewRequest(http.MethodGet, "/", nil), w.sup.cfg.URLs.Hostname(st, "db"))
		require.Equal(t, http.StatusNotFound, res.Code)
		require.Contains(t, res.Body.String(), "he service db is a database that speaks the protocol of PostgreSQL; the services of its stack reach it at db:5432 inside")
	})
}

func TestDatabase_StaysWhenADeployFails(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		id := w.served(st).process("db").id
		w.program(st.ID, 2, exits(3))
		w.deploy(st.ID, db(), using("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.Equal(t, id, w.served(st).process("db").id)
		w.runs(st, "db-g0", "web-g1")
	})
}

func TestDatabase_IsStartedAgainWhenItsOwnSettingsChange(t *testing.T) {
	t.Parallel()
	changed := db()
	changed.StopTimeout = 40 * time.Second
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		w.deploy(st.ID, changed, using("web"))
		w.serves(st.ID, 2)
		w.settle()
		w.runs(st, "db-g0-r1", "web-g2")
		require.Contains(t, w.runLog(st), "was shut down")

		w.program(st.ID, 3, exits(3)) // the one of before comes back
		w.deploy(st.ID, db(), using("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		w.runs(st, "db-g0-r1", "web-g2")
		require.NotContains(t, w.runLog(st), "was cut off")
	})
}

// A program that ends if it cannot connect is started again after its database, even if that
// takes its time.
func TestDatabase_ComesBackBeforeThoseThatUseItWhenADeployFails(t *testing.T) {
	t.Parallel()
	changed, web := db(), using("web")
	changed.StopTimeout = 40 * time.Second
	web.Strategy = stack.Recreate
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, connected, db(), web)
		w.becomes(st.ID, stack.Live)
		database := w.served(st).process("db").id
		w.engine.Before("Restart", func(object string) error {
			if object == database {
				time.Sleep(5 * time.Second)
			}
			return nil
		})
		w.program(st.ID, 2, exits(3))
		w.deploy(st.ID, changed, web)
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.Equal(t, stack.Live, w.get(st.ID).Status, w.get(st.ID).Error)
		w.runs(st, "db-g0", "web-g1")
		require.True(t, w.answers(st, "web"))
	})
}

func TestDatabase_ComesBackWithTheNextGenerationIfTheServedOneFalls(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		w.program(st.ID, 2, w.slow)
		w.deploy(st.ID, db(), using("web"))
		synctest.Wait()
		w.looping(st, "web-g1")
		w.await(st.ID, "fallen", func(st *stack.Stack) bool { return st.Status == stack.Building })
		w.release()
		w.serves(st.ID, 2)
		w.settle()
		w.runs(st, "db-g0", "web-g2")
		require.NotContains(t, w.runLog(st), "was cut off")
	})
}

func TestDatabase_IsRenewedByARestartAndShutDownByAnExpiry(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(db(), using("web"))
		id := w.served(st).process("db").id
		_, err := w.sup.Restart(w.t.Context(), st.ID, "")
		require.NoError(t, err)
		w.awaitEvent(st.ID, "service.restarted", 2)
		w.settle()
		w.runs(st, "db-g0", "web-g1-r1")
		require.NotEqual(t, id, w.served(st).process("db").id)
		require.Zero(t, count(w.events(st.ID), "service.crashed"))

		w.awaitEvent(st.ID, "stack.expired", 1)
		require.NoError(t, w.claim(st.ID))
		w.becomes(st.ID, stack.Live)
		require.NotContains(t, w.runLog(st), "was cut off")
		w.away(time.Minute)
		w.awaitEvent(st.ID, "stack.restored", 2)
		require.Contains(t, w.runLog(st), "was cut off")
	})
}

func TestDatabase_IsOutdatedUntilItsNextRestart(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.live(db(), using("web"))
		outdated := func() []string { return w.sup.Outdated(w.t.Context(), st.ID) }
		require.Empty(t, outdated())
		w.served(st).process("db").image = "the image of an earlier server"
		require.Equal(t, []string{"db"}, outdated())
		w.deploy(st.ID, db(), using("web"))
		w.serves(st.ID, 2)
		require.Equal(t, []string{"db"}, outdated(), "it goes on as it is")
		w.reboot()
		require.Empty(t, outdated(), "the engine says which image it has")

		w.served(st).process("db").image = "the image of an earlier server"
		w.restart(st)
		w.awaitEvent(st.ID, "service.restarted", 1)
		require.Equal(t, []string{"db"}, outdated())
		_, err := w.sup.Restart(w.t.Context(), st.ID, "db")
		require.NoError(t, err)
		w.awaitEvent(st.ID, "service.restarted", 2)
		require.Empty(t, outdated())
		require.Empty(t, w.sup.Outdated(w.t.Context(), "stk_unknown"))
	})
}

func TestDatabase_DoesNotGoOnWithOtherData(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		require.ErrorContains(t, w.refused(st, service("db"), using("web")), "made by postgres@17, which node@22 cannot use")
		w.runs(st, "db-g0", "web-g1")
	})
}

// There is one version of each database so far: what an earlier server knew of is as good as
// another.
func TestDatabase_DoesNotGoOnWithTheDataOfAnotherVersion(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createFor(time.Hour, db(), using("web"))
		w.becomes(st.ID, stack.Live)
		require.NoError(t, w.change(st, func(st *stack.Stack) ([]stack.Event, error) {
			st.Secrets["db/postgres@16"] = st.Secrets["db/postgres@17"]
			delete(st.Secrets, "db/postgres@17")
			return nil, nil
		}))
		require.EqualError(t, w.refused(st, db(), using("web")), "service db: its data was made by postgres@16, which postgres@17 cannot use: "+
			"dump the data from the old service, add the new one under another name beside it, and load the dump there; leave the old one out once all is well")
		w.runs(st, "db-g0", "web-g1")
	})
}

// dataOfDB returns the data of db in the volume with a number; nil for no volume.
func (w *world) dataOfDB(st *stack.Stack, number int) map[string]string {
	return w.engine.Volume(engine.Key{Stack: st.ID, Service: "db", Volume: number}.Data())
}

// refused returns why a deploy is refused before anything stops.
func (w *world) refused(st *stack.Stack, specs ...stack.Spec) error {
	w.t.Helper()
	_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: specs}, Source: w.upload()}, nil)
	require.Equal(w.t, stack.Unprocessable, stack.KindOf(err), "%v", err)
	require.Zero(w.t, w.get(st.ID).Deploying)
	return err
}

func TestDatabase_InPlaceOfAProgramBeginsOnItsOwnVolume(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.becomes(w.createFor(time.Hour, service("db"), using("web")).ID, stack.Live)
		w.deploy(st.ID, db(), using("web"))
		w.serves(st.ID, 2)
		w.runs(st, "db-g0", "web-g2")
		require.Equal(t, map[string]int{"db": 1}, w.get(st.ID).DataVolumes)
		require.NotEmpty(t, w.dataOfDB(st, 1))
		time.Sleep(leftoverGrace)
		w.settle()
		require.Nil(t, w.dataOfDB(st, 0))
		w.deploy(st.ID, db(), using("web"))
		w.serves(st.ID, 3)
		w.reboot()
		w.runs(st, "db-g0", "web-g3")
		require.NotContains(t, w.runLog(st), "was cut off")
		require.ErrorContains(t, w.refused(st, service("db"), using("web")), "its data was made by postgres@17")
	})
}

// Services of the old generation are on the network of the databases if they use another one,
// and would find two by one name.
func TestDatabase_InPlaceOfAProgramIsAloneWithItsName(t *testing.T) {
	t.Parallel()
	cache, web := db(), service("web")
	cache.Name, web.DependsOn = "cache", []string{"cache"}
	inWorld(t, func(w *world) {
		var reaches noted[string]
		looking := func(p *enginetest.Process) int {
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for p.Listen(8080); ; {
				program, database := p.Dial("db:8080") != nil, p.Dial("db:5432") != nil
				assert.False(t, program && database, "both have the name")
				if program {
					reaches.set("the program")
				} else if database {
					reaches.set("the database")
				}
				select {
				case <-tick.C:
				case <-p.Terminated:
					return 0
				case <-p.Killed:
					return 0
				}
			}
		}
		st := w.createRunning(time.Hour, only("web", looking), cache, service("db"), web)
		w.becomes(st.ID, stack.Live)
		w.settle()
		require.Equal(t, "the program", reaches.get())

		w.program(st.ID, 2, w.slow)
		w.deploy(st.ID, cache, db(), using("web"))
		w.runs(st, "cache-g0", "db-g0", "web-g1", "web-g2")
		time.Sleep(2 * time.Second)
		require.Equal(t, "the database", reaches.get())

		w.crash(st, "web-g2", 1)
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.runs(st, "cache-g0", "db-g1", "web-g1")
		time.Sleep(2 * time.Second)
		require.Equal(t, "the program", reaches.get())
	})
}

func TestDatabase_InPlaceOfAProgramLeavesNothingIfItsDeployFails(t *testing.T) {
	t.Parallel()
	failing := map[string]func(w *world, st *stack.Stack){
		"it fails": func(w *world, st *stack.Stack) {
			w.program(st.ID, 2, exits(3))
			w.deploy(st.ID, db(), using("web"))
			w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		},
		"it is superseded": func(w *world, st *stack.Stack) {
			w.program(st.ID, 2, w.slow)
			w.deploy(st.ID, db(), using("web"))
			synctest.Wait()
			require.NotEmpty(w.t, w.dataOfDB(st, 1))
			w.program(st.ID, 2, nil)
			require.NoError(w.t, w.supersede(st.ID, service("web")))
			w.serves(st.ID, 2)
		},
		"the server dies": func(w *world, st *stack.Stack) {
			w.program(st.ID, 2, w.slow)
			w.deploy(st.ID, db(), using("web"))
			synctest.Wait()
			w.engine.Leave()
			w.stopServer()
			w.engine.Return()
			require.NotEmpty(w.t, w.dataOfDB(st, 1))
			w.startServer()
			w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		},
	}
	for name, fail := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				st := w.becomes(w.createFor(time.Hour, service("db"), using("web")).ID, stack.Live)
				fail(w, st)
				w.settle()
				require.Empty(t, w.get(st.ID).DataVolumes)
				require.NotNil(t, w.dataOfDB(st, 0))
				require.Empty(t, w.dataOfDB(st, 0))
				require.Nil(t, w.dataOfDB(st, 1))

				// The name is the program's, whatever it keeps from now on.
				next := w.get(st.ID).Generation.Number + 1
				w.program(st.ID, next, keeping)
				for _, specs := range [][]stack.Spec{{service("db"), service("web")}, {service("db")}, {service("web")}, {service("db")}} {
					w.deploy(st.ID, specs...)
					w.serves(st.ID, next)
					require.ErrorContains(t, w.refused(st, db(), using("web")), "its data was not made by postgres@17")
					next++
				}
			})
		})
	}
}

func TestDatabase_OfAFailedDeployLeavesItsNameToAProgram(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.becomes(w.createFor(time.Hour, service("web")).ID, stack.Live)
		w.program(st.ID, 2, exits(3))
		w.deploy(st.ID, db(), using("web"))
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		w.settle()
		require.Nil(t, w.dataOfDB(st, 0))
		w.program(st.ID, 2, keeping)
		for number := 2; number < 5; number++ {
			w.deploy(st.ID, service("db"), service("web"))
			w.serves(st.ID, number)
			require.NotEmpty(t, w.dataOfDB(st, 0))
		}
	})
}

func TestDatabase_DoesNotReplaceAProgramThatKeepsSomethingMeanwhile(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		st := w.createRunning(time.Hour, func(p *enginetest.Process) int {
			go func() { <-w.released; p.Write(stack.DataDir, "kept", "it") }()
			return listen(p)
		}, service("db"), using("web"))
		w.becomes(st.ID, stack.Live)
		w.command(func(*enginetest.Process) int { w.release(); return 0 })
		built := using("web")
		built.Build = "make"
		w.deploy(st.ID, db(), built)
		w.awaitEvent(st.ID, "stack.deploy_failed", 1)
		require.Contains(t, w.get(st.ID).DeployError, "its data was not made by postgres@17")
		w.settle()
		w.runs(st, "db-g1", "web-g1")
		require.NotEmpty(t, w.dataOfDB(st, 0))
		require.Nil(t, w.dataOfDB(st, 1))
	})
}

func TestDatabase_MovesToAnotherNode(t *testing.T) {
	t.Parallel()
	inCluster(t, func(a, b *world, _ *links) {
		st := a.live(db(), using("web"))
		require.NoError(t, a.claim(st.ID))
		a.settle()
		require.NoError(t, a.sup.Move(a.t.Context(), st.ID, "b"))
		require.True(t, b.answers(st, "web"))
		b.runs(st, "db-g0", "web-g1")
		require.Contains(t, b.runLog(st), "was shut down")
		a.settle()
		a.nowhere(st)
		b.deploy(st.ID, db(), using("web"))
		b.serves(st.ID, 2)
		b.settle()
		b.runs(st, "db-g0", "web-g2")
	})
}

func TestLooksForDatabase_KnowsABuildThatDidFromAnyOther(t *testing.T) {
	services := stack.Services([]stack.Spec{service("web"), db()})
	for text, want := range map[string]bool{
		"getaddrinfo EAI_AGAIN db":                           true,
		"connect ECONNREFUSED 127.0.0.1:5432":                true,
		"KeyError: 'DATABASE_URL'":                           true,
		`could not translate host name "db" to address`:      true,
		"getaddrinfo EAI_AGAIN packages.example.com":         false,
		"the file db.js is missing":                          false,
		"connect ECONNREFUSED 127.0.0.1:6379, said dbclient": false,
	} {
		require.Equal(t, want, looksForDatabase(text, services), text)
	}
}

func TestEndInTurn_EndsDatabasesLast(t *testing.T) {
	var ended []string
	require.NoError(t, endInTurn([]string{"db", "web"}, func(s string) bool { return s == "db" }, func(s string) error {
		ended = append(ended, s)
		return nil
	}))
	require.True(t, slices.Equal([]string{"web", "db"}, ended))
}
