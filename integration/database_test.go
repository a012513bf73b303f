package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/images"
)

// entries is a program with a PostgreSQL and a Redis database. It reports whether it has
// lost a connection to either since it began.
var entries = Tree{
	"package.json": `{"dependencies": {"pg": "^8", "redis": "^5"}}`,
	"migrate.js": `const { Client } = require('pg');
const db = new Client();
db.connect().then(() => db.query('CREATE TABLE IF NOT EXISTS entries (name text PRIMARY KEY)')).then(() => db.end());`,
	"server.js": `const http = require('http'), { Pool } = require('pg'), redis = require('redis');
let lost = 0;
const pool = new Pool({ connectionString: process.env.DATABASE_URL, max: 4, idleTimeoutMillis: 0 });
pool.on('error', () => lost++);
const cache = redis.createClient({ url: process.env.REDIS_URL });
cache.on('error', () => lost++);
const routes = {
  '/pg': async (name) => { await pool.query('INSERT INTO entries VALUES ($1) ON CONFLICT DO NOTHING', [name]); },
  '/redis': async (name) => { await cache.sAdd('entries', name); },
  '/pg-all': async () => (await pool.query('SELECT name FROM entries')).rows.map((row) => row.name),
  '/redis-all': () => cache.sMembers('entries'),
  '/began': async () => (await pool.query('SELECT pg_postmaster_start_time() AS at')).rows[0].at,
  '/role': async () => (await pool.query('SELECT rolsuper, (SELECT pg_get_userbyid(datdba) = current_user FROM pg_database WHERE datname = current_database()) AS owns FROM pg_roles WHERE rolname = current_user')).rows[0],
  '/parallel': async () => {
    const db = await pool.connect();
    for (const line of ['SET max_parallel_workers_per_gather = 4', 'SET parallel_setup_cost = 0', 'SET min_parallel_table_scan_size = 0']) await db.query(line);
    await db.query('CREATE TABLE IF NOT EXISTS numbers AS SELECT generate_series(1, 1000000) AS n');
    const found = (await db.query('SELECT count(*)::int AS n FROM numbers AS a JOIN numbers AS b USING (n)')).rows[0];
    db.release(true);
    return found;
  },
  '/env': async () => process.env,
  '/lost': async () => lost,
};
cache.connect().then(() => http.createServer(async (req, res) => {
  const [, path, name] = req.url.match(/^(\/[\w-]*)\/?(.*)$/);
  if (!routes[path]) return res.end('ok');
  try {
    res.end(JSON.stringify(await routes[path](name) ?? 'ok'));
  } catch (e) {
    res.statusCode = 503;
    res.end(String(e));
  }
}).listen(process.env.PORT));`,
}

const entriesManifest = `services:
  - {name: web, runtime: node, build: 'env | sort > built.txt', release: node migrate.js, start: node server.js}
  - {name: db, runtime: postgres}
  - {name: cache, runtime: redis}`

// packedManifest is entriesManifest for what packed returns.
var packedManifest = strings.Replace(entriesManifest, "build: ", `install: "", build: `, 1)

// packed returns entries with its drivers: a test's own engine reaches no registry.
func packed(t *testing.T) Tree {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(entries["package.json"]), 0o600))
	npm := exec.CommandContext(t.Context(), "npm", "install", "--no-audit", "--no-fund", "--no-bin-links", "--prefix", dir)
	out, err := npm.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return folder(t, dir).plus(entries)
}

// of asks a service for JSON.
func of[T any](t *testing.T, h *Host, st *Stack, path string) (value T) {
	t.Helper()
	r := h.get(t, st.url("web", path))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &value))
	return value
}

func TestDatabase_ServesItsStackAlone(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, entries, manifest(entriesManifest))
	h.keeps(t, st, "container web-g1", "container db-g0", "container cache-g0", "image web", "image web:i1",
		"volume web-data", "volume db-data", "volume cache-data", "network g1", "network g0")

	env := of[map[string]string](t, h, st, "/env")
	password := env["PGPASSWORD"]
	require.Len(t, password, 32)
	require.Equal(t, "postgresql://app:"+password+"@db:5432/app", env["DATABASE_URL"])
	for name, want := range map[string]string{
		"PGHOST": "db", "PGPORT": "5432", "PGUSER": "app", "PGDATABASE": "app",
		"DB_DATABASE_URL": env["DATABASE_URL"], "DB_URL": env["DATABASE_URL"], "DB_INTERNAL_URL": env["DATABASE_URL"],
		"CACHE_REDIS_URL": env["REDIS_URL"], "CACHE_URL": env["REDIS_URL"], "CACHE_INTERNAL_URL": env["REDIS_URL"],
	} {
		require.Equal(t, want, env[name], name)
	}
	require.Regexp(t, `^redis://default:[A-Z2-7]{32}@cache:6379$`, env["REDIS_URL"])
	built := h.prints(t, st, "cat built.txt")
	require.Contains(t, built, "STACK_ID=")
	for _, secret := range []string{"DATABASE_URL", "PGHOST", "REDIS_URL", "DB_URL", password} {
		require.NotContains(t, built, secret)
	}
	require.Equal(t, map[string]bool{"rolsuper": false, "owns": true}, of[map[string]bool](t, h, st, "/role"))
	require.Equal(t, map[string]int{"n": 1000000}, of[map[string]int](t, h, st, "/parallel"))

	for service, says := range map[string]string{
		"db": "the service db is a database that speaks the protocol of PostgreSQL; the services of its stack reach it at db:5432", "cache": "the protocol of Redis; the services of its stack reach it at cache:6379",
	} {
		r := h.get(t, st.url(service, "/"), "Accept", "application/json")
		require.Contains(t, r.refused(t, http.StatusNotFound), says)
	}
	for _, path := range []string{"", "/env", "/events"} {
		require.NotContains(t, h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+path).body, password)
	}
	require.NotContains(t, h.logs(t, st, "kind=run")+h.logs(t, st, "kind=build"), password)

	other := h.live(t, perl, manifest(perlManifest))
	ip := h.inspect(t, st, "db").NetworkSettings.Networks
	for _, on := range ip {
		end := h.ran(t, other, "timeout 3 bash -c 'exec 3<>/dev/tcp/"+on.IPAddress+"/5432'", "10s")
		require.NotEqual(t, 0, *end.ExitCode, "another stack reaches the database")
	}
}

func TestDatabase_GoesOnOverRedeploys(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, entries, manifest(entriesManifest))
	pid, began := h.inspect(t, st, "db").State.Pid, of[string](t, h, st, "/began")
	before := len(h.events(t, st))
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for i := range 4 {
		load.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for _, path := range []string{"/pg", "/redis"} {
					r := h.get(t, st.url("web", fmt.Sprintf("%s/%d-%d", path, i, n)))
					assert.Equal(t, http.StatusOK, r.status, r.body)
				}
				r := h.get(t, st.url("web", "/lost"))
				assert.Equal(t, "200 0", r.String())
			}
		})
	}
	for i := range 20 {
		require.Equal(t, i+2, h.redeploy(t, st, entries.plus(Tree{"more": fmt.Sprint(i)}), manifest(entriesManifest)).Generation)
	}
	stop()
	load.Wait()
	require.Equal(t, pid, h.inspect(t, st, "db").State.Pid)
	require.Equal(t, began, of[string](t, h, st, "/began"))
	for _, event := range h.events(t, st)[before:] {
		require.NotContains(t, []any{"db", "cache"}, event.Data["service"], event.Type)
	}
	require.NotEmpty(t, of[[]string](t, h, st, "/pg-all"))

	// A deploy that fails leaves it alone as well; its own settings restart it.
	failed := strings.Replace(entriesManifest, "node server.js", "exit 3", 1)
	h.redeploy(t, st, entries, manifest(failed))
	require.Equal(t, pid, h.inspect(t, st, "db").State.Pid)
	changed := strings.Replace(entriesManifest, "runtime: postgres", "runtime: postgres, stop_timeout: 40s", 1)
	require.Equal(t, 22, h.redeploy(t, st, entries, manifest(changed)).Generation)
	require.NotEqual(t, began, of[string](t, h, st, "/began"))
	h.keeps(t, st, "container web-g22", "container db-g0-r1", "container cache-g0", "image web", "image web:i1",
		"volume web-data", "volume db-data", "volume cache-data", "network g22", "network g0")
}

func TestDatabase_IsRefusedOverOtherData(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, perl, manifest(`{services: [{name: web, runtime: node, start: exec perl server.pl}, {name: db, runtime: postgres}]}`))
	for runtime, says := range map[string]string{
		"valkey":                               "service db: its data was made by postgres@17, which valkey@8 cannot use: dump the data from the old service, add the new one under another name",
		"node, start: exec perl server.pl":     "service db: its data was made by postgres@17, which node@22 cannot use; give the new service another name",
		"postgres, start: x":                   "service db: it is a database, PostgreSQL, and must not have start: the host starts it",
		"postgres, env: {A: b}, health: /":     "must not have env",
		"postgres, stop_timeout: 10s":          "stop_timeout is too short for a database",
		"postgres@16":                          `postgres has no version "16" here; it has 17`,
		"mysql":                                "there are bun, deno, go, java, node, php, postgres",
		"static, publish: .":                   "",
		"postgres}, {name: pg, runtime: redis": "",
	} {
		r := h.postDeploy(t, st, perl, manifest(`{services: [{name: web, runtime: node, start: exec perl server.pl}, {name: db, runtime: `+runtime+`}]}`))
		if says == "" {
			require.Equal(t, http.StatusOK, r.status, r.body)
			require.Empty(t, h.deployed(t, st).deployError(), runtime)
			continue
		}
		require.Contains(t, r.refused(t, http.StatusUnprocessableEntity), says)
	}
}

// The data of a database that only a failed deploy has used does not bind its name.
func TestDatabase_OfAFailedDeployLeavesNoData(t *testing.T) {
	t.Parallel()
	h := start(t)
	web := "{services: [{name: web, runtime: node, start: exec perl server.pl}"
	st := h.live(t, perl, manifest(web+"]}"))
	fails := manifest(web + ", {name: db, runtime: postgres}, {name: late, runtime: node, depends_on: [db], start: exit 3}]}")
	now := h.redeploy(t, st, perl, fails)
	require.Contains(t, now.deployError(), "late")
	h.keeps(t, st, "container web-g1", "image web", "image late:i2", "volume web-data", "volume late-data", "network g1")
	now = h.redeploy(t, st, perl, manifest(web+", {name: db, runtime: valkey}]}"))
	require.Empty(t, now.deployError())

	first := h.create(t, perl, fails)
	require.Equal(t, "failed", h.settled(t, first).Status)
	require.Empty(t, h.redeploy(t, first, perl, manifest(web+", {name: db, runtime: node, start: exec perl server.pl}]}")).deployError())
}

// A program without data makes way for a database, and has its folder as it was if that fails.
func TestDatabase_InPlaceOfAProgram(t *testing.T) {
	t.Parallel()
	h := start(t)
	program := manifest("{services: [{name: db, runtime: node, start: exec perl server.pl}]}")
	database := manifest("{services: [{name: db, runtime: postgres}]}")
	fails := manifest("{services: [{name: db, runtime: postgres}, {name: late, runtime: node, depends_on: [db], start: exit 3}]}")
	st, other := h.live(t, perl, program), h.live(t, perl, program)
	require.Contains(t, h.redeploy(t, st, perl, fails).deployError(), "late")
	h.keeps(t, st, "container db-g1", "image db", "image late:i2", "volume db-data", "volume late-data", "network g1")
	require.Equal(t, http.StatusOK, h.get(t, st.url("db", "/keep/it")).status)
	require.Empty(t, h.redeploy(t, st, perl, program).deployError())
	require.Equal(t, "it", h.get(t, st.url("db", "/kept")).body)
	refused := h.postDeploy(t, st, perl, database).refused(t, http.StatusUnprocessableEntity)
	require.Contains(t, refused, "service db: its data was not made by postgres@17; give the database another name")

	require.Empty(t, h.redeploy(t, other, perl, database).deployError())
	h.keeps(t, other, "container db-g0", "volume db-data-1", "network g0", "network g2")
	refused = h.postDeploy(t, other, perl, program).refused(t, http.StatusUnprocessableEntity)
	require.Contains(t, refused, "service db: its data was made by postgres@17, which node@22 cannot use")
}

// A restore and a deploy that fail, while the data may still be in the snapshot, keep it.
func TestDatabase_KeepsItsDataWhateverFails(t *testing.T) {
	t.Parallel()
	h := start(t, short)
	key := h.accountCreate(t, "ana@example.com")
	with := func(start string) Fields {
		return manifest(`{services: [{name: web, runtime: node, start: '` + start + `'}, {name: api, runtime: node, depends_on: [cache], start: node server.js}, {name: cache, runtime: valkey}]}`)
	}
	st := h.live(t, program(t), with("test ! -e $DATA_DIR/broken && exec node server.js"))
	inCache := func(token, command string) string {
		r := h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/services/cache/exec", strings.NewReader(`{"command": "valkey-cli -p $PORT `+command+`"}`),
			"Content-Type", "application/json", "Authorization", "Bearer "+token))
		require.Equal(t, http.StatusOK, r.status, r.body)
		return strings.TrimSpace(r.json(t)["output"].(string))
	}
	require.Equal(t, "OK", inCache(st.ManageToken, "SET kept it"))
	h.put(t, st, "web", "broken", "")
	h.expire(t, st)
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status)
	require.Equal(t, "failed", h.settled(t, st).Status)
	require.Equal(t, "failed", h.redeploy(t, st, program(t), with("exit 3")).Status)
	refused := h.postDeploy(t, st, program(t), manifest(`{services: [{name: cache, runtime: node, start: node server.js}]}`))
	require.Contains(t, refused.refused(t, http.StatusUnprocessableEntity), "its data was made by valkey@8")
	require.Equal(t, "live", h.redeploy(t, st, program(t), with("exec node server.js")).Status)
	require.Equal(t, "it", inCache(key, "GET kept"))
}

func TestDatabase_LosesNothingThatWasAcknowledged(t *testing.T) {
	byEnd(t, func(t *testing.T, sig syscall.Signal) {
		e := startEngine(t, "")
		e.take(t, "node", "postgres", "valkey")
		h := start(t, on(e))
		st := h.live(t, packed(t), manifest(packedManifest))
		written := h.write(t, st, func() {
			h.kill(t)
			h.run(t)
			h.onceRestored(t, st, 1)
			time.Sleep(time.Second)
			e.stop(t, sig)
			e.run(t)
			h.onceRestored(t, st, 2)
		})
		require.Zero(t, count(h.events(t, st), "service.crashed"))
		h.has50(t, st, written)
	})
}

func TestDatabase_ComesBackFromCrashExpiryAndRestart(t *testing.T) {
	t.Parallel()
	h := start(t, short)
	bob := h.person(t, "bob@example.com")
	st := h.live(t, entries, manifest(entriesManifest))
	for _, path := range []string{"/pg/one", "/redis/one"} {
		require.Equal(t, http.StatusOK, h.get(t, st.url("web", path)).status)
	}
	for _, service := range []string{"db", "cache"} {
		require.NoError(t, syscall.Kill(h.inspect(t, st, service).State.Pid, syscall.SIGKILL))
	}
	eventually(t, "the databases are back", func() error {
		if n := count(h.events(t, st), "service.restarted"); n < 2 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	h.wrote(t, st, "one")

	began := of[string](t, h, st, "/began")
	r := h.do(t, h.request(t, http.MethodPost, "/v0/stacks/"+st.ID+"/restart", nil, "Authorization", "Bearer "+st.ManageToken))
	require.Less(t, r.status, 300, r.body)
	eventually(t, "all services are restarted", func() error {
		if n := count(h.events(t, st), "service.restarted"); n < 5 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	require.NotEqual(t, began, of[string](t, h, st, "/began"))
	h.wrote(t, st, "one")

	h.expire(t, st)
	require.Contains(t, h.logs(t, st, "kind=run&service=db"), "database system is shut down")
	require.Equal(t, http.StatusOK, h.claim(t, bob.key, st.ClaimCode, "?wait=true").status)
	st.ManageToken = bob.key
	h.mustLive(t, st)
	h.wrote(t, st, "one")
	log := h.logs(t, st, "kind=run&service=db&tail=30")
	require.Contains(t, log[strings.LastIndex(log, "starting PostgreSQL"):], "database system was shut down at")
}

// wrote waits until both databases have the entry.
func (h *Host) wrote(t *testing.T, st *Stack, name string) {
	t.Helper()
	for _, path := range []string{"/pg-all", "/redis-all"} {
		eventually(t, path+" has "+name, func() error {
			if r := h.get(t, st.url("web", path)); !strings.Contains(r.body, `"`+name+`"`) {
				return fmt.Errorf("it answers %s", r)
			}
			return nil
		})
	}
}

// write writes 50 entries a second to each database while something happens, and for a moment
// longer. It returns those that each has acknowledged.
func (h *Host) write(t *testing.T, st *Stack, during func()) (acknowledged map[string]map[string]bool) {
	t.Helper()
	acknowledged = map[string]map[string]bool{"/pg": {}, "/redis": {}}
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var writers sync.WaitGroup
	writers.Go(func() {
		tick := time.NewTicker(time.Second / 50)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			<-tick.C
			name := fmt.Sprint(n)
			for path, those := range acknowledged {
				writers.Go(func() {
					if r := h.attempt(t, http.MethodPost, st.url("web", path+"/"+name), ""); r.status == http.StatusOK {
						mu.Lock()
						defer mu.Unlock()
						those[name] = true
					}
				})
			}
		}
	})
	time.Sleep(time.Second)
	during()
	time.Sleep(time.Second)
	stop()
	writers.Wait()
	return acknowledged
}

// has50 asserts that each database has all of at least 50 entries.
func (h *Host) has50(t *testing.T, st *Stack, written map[string]map[string]bool) {
	t.Helper()
	for path, those := range written {
		require.Greater(t, len(those), 50, path)
		found := set(of[[]string](t, h, st, path+"-all"))
		for name := range those {
			require.True(t, found[name], "entry %s was acknowledged and is lost in %s", name, path)
		}
		t.Logf("%s: %d of %d entries acknowledged", path, len(those), len(found))
	}
}

// take gives the engine the base images of runtimes in place of none.
func (e *dockerd) take(t *testing.T, runtimes ...string) {
	t.Helper()
	var refs []string
	for _, image := range images.All() {
		for _, name := range runtimes {
			if image.Name == name {
				refs = append(refs, image.Ref())
			}
		}
	}
	from, err := engine()
	require.NoError(t, err)
	defer from.Close()
	docker, err := e.open()
	require.NoError(t, err)
	defer docker.Close()
	saved, err := from.ImageSave(t.Context(), refs)
	require.NoError(t, err)
	defer saved.Close()
	loaded, err := docker.ImageLoad(t.Context(), saved)
	require.NoError(t, err)
	defer loaded.Body.Close()
	for decoder := json.NewDecoder(loaded.Body); ; {
		var line map[string]any
		if decoder.Decode(&line) != nil {
			return
		}
	}
}

func TestDatabase_UnderGVisor(t *testing.T) {
	t.Parallel()
	e := startGVisor(t)
	e.take(t, "node", "postgres", "valkey")
	h := start(t, on(e), with("BERTH_CONTAINER_RUNTIME", "runsc"))
	tree := packed(t)
	st := h.live(t, tree, manifest(packedManifest))
	pid := h.inspect(t, st, "db").State.Pid
	for _, path := range []string{"/pg/one", "/redis/one"} {
		r := h.get(t, st.url("web", path))
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	require.Equal(t, map[string]int{"n": 1000000}, of[map[string]int](t, h, st, "/parallel"))
	require.Equal(t, 2, h.redeploy(t, st, tree.plus(Tree{"more": ""}), manifest(packedManifest)).Generation)
	require.Equal(t, pid, h.inspect(t, st, "db").State.Pid)
	h.wrote(t, st, "one")

	for _, service := range []string{"db", "cache"} {
		dump := h.getAs(t, st.ManageToken, dataPath(st, service))
		require.Equal(t, http.StatusOK, dump.status, dump.body)
		r := h.pushData(t, st, service, st.ManageToken, []byte(dump.body))
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.NoError(t, h.killProcess(t, st, service, "KILL"))
	}
	eventually(t, "the databases have crashed", func() error {
		if n := count(h.events(t, st), "service.crashed"); n < 2 {
			return fmt.Errorf("%d crashes", n)
		}
		return nil
	})
	h.wrote(t, st, "one")
}

func TestDatabase_OfTheGuestbookIsMigrated(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, folder(t, "../examples/guestbook-postgres"), nil)
	require.Contains(t, h.logs(t, st, "kind=build&service=web"), "migrated: 001-entries.sql\nmigrated: 002-time.sql\n")
	r := h.attempt(t, http.MethodPost, st.url("web", "/entries"), `{"name": "Ana", "text": "hello"}`)
	require.Equal(t, http.StatusCreated, r.status, r.body)
	more := folder(t, "../examples/guestbook-postgres").plus(Tree{"migrations/003-more.sql": "ALTER TABLE entries ADD COLUMN more text"})
	require.Equal(t, 2, h.redeploy(t, st, more, nil).Generation)
	log := h.logs(t, st, "kind=build&service=web")
	require.Contains(t, log[strings.LastIndex(log, "== release"):], "\nmigrated: 003-more.sql\n")
	require.Contains(t, h.get(t, st.url("web", "/entries")).body, `"text":"hello"`)

	broken := more.plus(Tree{"migrations/004-broken.sql": "ALTER TABLE nothing ADD COLUMN more text"})
	require.Contains(t, h.redeploy(t, st, broken, nil).deployError(), `relation "nothing" does not exist`)
	require.Contains(t, h.get(t, st.url("web", "/entries")).body, `"text":"hello"`)
}

// clients are programs in other languages that count their visits in PostgreSQL and Redis.
// Their drivers come from the Go module proxy and from Debian's packages.
var clients = map[string]struct {
	tree    Tree
	service string
}{
	"go": {Tree{
		"go.mod": "module visits\n\ngo 1.24\n\nrequire (\n\tgithub.com/lib/pq v1.10.9\n\tgithub.com/redis/go-redis/v9 v9.7.0\n)\n",
		"main.go": `package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"

	_ "github.com/lib/pq"
	"github.com/redis/go-redis/v9"
)

func main() {
	db, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		panic(err)
	}
	cache := redis.NewClient(options)
	http.HandleFunc("/visits", func(w http.ResponseWriter, r *http.Request) {
		var n int
		err := db.QueryRow("INSERT INTO visits DEFAULT VALUES RETURNING (SELECT count(*) + 1 FROM visits)").Scan(&n)
		if err != nil {
			panic(err)
		}
		m, err := cache.Incr(r.Context(), "visits").Result()
		fmt.Fprint(w, n, " ", m, " ", err)
	})
	if _, err := db.Exec("CREATE TABLE IF NOT EXISTS visits (id serial)"); err != nil {
		panic(err)
	}
	panic(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
`,
	}, "{name: web, runtime: go, install: go get .}"},
	"python": {Tree{
		"main.py": `import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import psycopg2
import redis

cache = redis.from_url(os.environ["REDIS_URL"])
db = psycopg2.connect(os.environ["DATABASE_URL"])
db.autocommit = True
db.cursor().execute("CREATE TABLE IF NOT EXISTS visits (id serial)")

class Visits(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/visits":
            return self.send_error(404)
        c = db.cursor()
        c.execute("INSERT INTO visits DEFAULT VALUES RETURNING (SELECT count(*) + 1 FROM visits)")
        body = f"{c.fetchone()[0]} {cache.incr('visits')} <nil>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

ThreadingHTTPServer(("0.0.0.0", int(os.environ["PORT"])), Visits).serve_forever()
`,
		"driver.sh": `set -e
mkdir -p apt/lists/partial apt/archives/partial driver
here=$PWD
apt() { apt-get -o Debug::NoLocking=1 -o Dir::State::lists="$here/apt/lists" -o Dir::Cache="$here/apt" -o APT::Sandbox::User= "$@"; }
apt update
(cd driver && apt download python3-psycopg2 python3-redis)
for package in driver/*.deb; do dpkg -x "$package" driver; done
`,
	}, "{name: web, runtime: python, install: sh driver.sh, start: 'PYTHONPATH=driver/usr/lib/python3/dist-packages exec python3 main.py'}"},
}

// debianMirror returns the host and port of the mirror in this machine's apt
// settings, with which the base images are made: it may be an address that is
// closed to builds.
func debianMirror(t *testing.T) string {
	t.Helper()
	uris, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(uris), "\n")
	u, err := url.Parse(first)
	require.NoError(t, err)
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme]))
}

func TestDatabase_HasClientsInOtherLanguages(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_NETWORK_ALLOW", debianMirror(t)))
	for language, c := range clients {
		st := h.live(t, c.tree, manifest("services: ["+c.service+", {name: db, runtime: postgres}, {name: cache, runtime: redis}]"))
		for n := range 2 {
			require.Equal(t, fmt.Sprint(n+1, " ", n+1, " <nil>"), h.get(t, st.url("web", "/visits")).body, language)
		}
	}
}

func TestDatabase_IsHintedAt(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := Tree{
		"package.json": `{"scripts": {"start": "node a.js"}, "dependencies": {"pg": "^8"}}`,
		"a.js":         `console.error('no database: ' + process.env.DATABASE_URL); process.exit(1)`,
	}
	const hint = "web looks as if it needed PostgreSQL (pg in package.json, DATABASE_URL in a.js); this adds one to stack.yaml:"
	st := h.deploy(t, tree, nil)
	require.Equal(t, "failed", st.Status)
	require.Contains(t, st.reason(), "no database: undefined")
	require.Contains(t, st.reason(), hint+"\nservices:\n  - name: web\n  - {name: db, runtime: postgres}")
	require.Contains(t, h.logs(t, st, "kind=build"), hint)
	tree["package.json"] = `{"scripts": {"start": "node a.js"}, "dependencies": {"pg": "^8", "ioredis": "^5"}}`
	tree["a.js"] += "; process.env.REDIS_URL"
	validated := h.validate(t, tree, nil)
	require.Equal(t, true, validated.json(t)["valid"], validated.body)
	hints := validated.json(t)["services"].([]any)[0].(map[string]any)["hints"].(map[string]any)
	require.Equal(t, hint+"\nservices:\n  - name: web\n  - {name: db, runtime: postgres}", hints["DATABASE_URL"])
	require.Contains(t, hints["REDIS_URL"], "web looks as if it needed Redis (ioredis in package.json, REDIS_URL in a.js)")

	tree["build.js"] = `require('net').connect(5432, 'db').on('error', (e) => { console.error(e.message); process.exit(1) })`
	st = h.deploy(t, tree, manifest(`services: [{name: web, runtime: node, build: node build.js}, {name: db, runtime: postgres}]`))
	require.Equal(t, "failed", st.Status)
	require.Contains(t, st.reason(), "the databases of a stack are not up during its first build")
	require.NotContains(t, st.reason(), hint)
}

// A dump leaves a database while it runs and comes back into another volume, beside which the
// old one serves on.
func TestDatabase_DumpsGoOutAndIn(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_DATA", "40MB"))
	st := h.live(t, packed(t), manifest(packedManifest))
	write := func(name string) {
		for _, path := range []string{"/pg/", "/redis/"} {
			require.Equal(t, http.StatusOK, h.get(t, st.url("web", path+name)).status)
		}
	}
	write("kept")
	dumps := map[string]string{}
	for service, want := range map[string]struct{ magic, file string }{"db": {"PGDMP", "db.dump"}, "cache": {"REDIS", "cache.rdb"}} {
		r := h.getAs(t, st.ManageToken, dataPath(st, service)+"?stop=true")
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
		require.Contains(t, r.header.Get("Content-Disposition"), "-"+want.file)
		require.Equal(t, want.magic, r.body[:5])
		dumps[service] = r.body
	}
	write("later")
	for service, dump := range dumps {
		howTo := map[string]string{"db": "pg_dump -Fc", "cache": "valkey-cli --rdb"}[service]
		for body, want := range map[string]string{
			"": "empty", dump[:len(dump)/2]: "the dump cannot be loaded: ", "SELECT 1;": howTo, string(dataArchive(t, file("kept", "data"))): howTo,
		} {
			detail := h.pushData(t, st, service, st.ManageToken, []byte(body)).refused(t, http.StatusUnprocessableEntity)
			require.Contains(t, detail, want)
			require.NotContains(t, detail, "\n")
		}
	}
	require.ElementsMatch(t, []string{"kept", "later"}, of[[]string](t, h, st, "/pg-all"))
	for service, dump := range dumps {
		r := h.pushData(t, st, service, st.ManageToken, []byte(dump))
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	for _, path := range []string{"/pg-all", "/redis-all"} {
		eventually(t, "it is connected again", func() error {
			if r := h.get(t, st.url("web", path)); r.body != `["kept"]` {
				return errors.New(r.body)
			}
			return nil
		})
	}
	role := of[map[string]bool](t, h, st, "/role")
	require.Equal(t, map[string]bool{"rolsuper": false, "owns": true}, role)
	require.Equal(t, map[string]int{"n": 1000000}, of[map[string]int](t, h, st, "/parallel"))
	bomb := h.getAs(t, st.ManageToken, dataPath(st, "db"))
	require.Less(t, len(bomb.body), 8<<20)
	require.Contains(t, h.pushData(t, st, "db", st.ManageToken, []byte(bomb.body)).refused(t, http.StatusRequestEntityTooLarge),
		"loading the dump takes more than 80MB")
	write("after")
	h.restart(t)
	eventually(t, "it is connected again", func() error {
		if r := h.get(t, st.url("web", "/redis-all")); r.status != http.StatusOK || len(r.body) < len(`["kept","after"]`) {
			return errors.New(r.body)
		}
		return nil
	})
	require.NotContains(t, h.eventTypes(t, st), "service.crashed")
	require.Equal(t, "", h.inContainer(t, st, "cache", "ls -A /data | grep -v valkey || true"))
}

// A stack that was stopped since its database is too large has to get a smaller one.
func TestDatabase_OfAFailedStackIsReplacedByADump(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, packed(t), manifest(packedManifest))
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/pg/kept")).status)
	dump := h.getAs(t, st.ManageToken, dataPath(st, "db"))
	require.Equal(t, http.StatusOK, dump.status, dump.body)
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/pg/later")).status)
	_, err := h.berthd(t, "", "stacks", "stop", st.ID, "--reason", "too large")
	require.NoError(t, err)

	h.getAs(t, st.ManageToken, dataPath(st, "db")).refused(t, http.StatusConflict)
	r := h.pushData(t, st, "db", st.ManageToken, []byte(dump.body))
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "failed", r.stack(t).Status)
	h.redeploy(t, st, packed(t), manifest(packedManifest))
	require.Equal(t, []string{"kept"}, of[[]string](t, h, st, "/pg-all"))
}
