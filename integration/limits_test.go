package integration

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const slowDown = "too many requests; slow down and retry in a minute"

func TestLimits_AnonymousCreatesPerHour(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "3"), with("BERTH_TRUSTED_PROXIES", "127.0.0.1"))
	source := archive(t, page("x"))
	for range 3 {
		require.Equal(t, http.StatusCreated, h.post(t, source, nil, "").status)
	}
	for range 2 {
		r := h.post(t, source, nil, "")
		require.Equal(t, slowDown, r.refused(t, http.StatusTooManyRequests))
		require.Equal(t, "3600", r.header.Get("Retry-After"))
	}
	other := h.post(t, source, nil, "", "X-Forwarded-For", "203.0.113.7")
	require.Equal(t, http.StatusCreated, other.status, "another client has a limit of its own")
	// The addresses of one IPv6 /64 are one client.
	for i := range 3 {
		address := fmt.Sprintf("2001:db8:1:2::%x", i+1)
		require.Equal(t, http.StatusCreated, h.post(t, source, nil, "", "X-Forwarded-For", address).status)
	}
	h.post(t, source, nil, "", "X-Forwarded-For", "2001:db8:1:2:ffff::9").refused(t, http.StatusTooManyRequests)
	require.Equal(t, http.StatusCreated, h.post(t, source, nil, "", "X-Forwarded-For", "2001:db8:1:3::1").status)
}

func TestLimits_RefusedCreatesPerHour(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_REFUSED_PER_HOUR", "2"), with("BERTH_CREATES_PER_HOUR", "1"), with("BERTH_TRUSTED_PROXIES", "127.0.0.1"))
	h.stop(t)
	key := "Bearer " + h.account(t, "ana@example.com")
	h.run(t)
	source := archive(t, page("x"))
	h.post(t, source, Fields{"ttl": "1s"}, "").refused(t, http.StatusUnprocessableEntity)
	require.Equal(t, http.StatusCreated, h.post(t, source, nil, "").status, "a refused create counts as one")
	require.Equal(t, slowDown, h.post(t, source, nil, "").refused(t, http.StatusTooManyRequests))
	for range 2 {
		h.post(t, []byte("no archive at all"), nil, "", "X-Forwarded-For", "203.0.113.7").refused(t, http.StatusUnprocessableEntity)
	}
	r := h.post(t, source, nil, "", "X-Forwarded-For", "203.0.113.7")
	require.Contains(t, r.refused(t, http.StatusTooManyRequests), slowDown+"; too many creates from your network were refused")
	require.Equal(t, "3600", r.header.Get("Retry-After"))
	require.Equal(t, http.StatusCreated, h.post(t, source, nil, "", "X-Forwarded-For", "203.0.113.7", "Authorization", key).status)
	valid := h.validate(t, page("x"), nil)
	require.Equal(t, http.StatusOK, valid.status, valid.body)
}

func TestLimits_ExtensionsOfAStack(t *testing.T) {
	t.Parallel()
	h := start(t)
	st, other := h.live(t, page("x"), nil), h.live(t, page("y"), nil)
	r := h.patch(t, st, `{"ttl": "1h"}`)
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.Equal(t, "1000", r.header.Get("RateLimit-Limit"))
	require.Equal(t, "999", r.header.Get("RateLimit-Remaining"))

	// The other 999 of this minute, without the time that they take.
	db := h.redis(t)
	var hits []goredis.Z
	for i := range 999 {
		hits = append(hits, goredis.Z{Score: float64(time.Now().Add(time.Minute).UnixMicro()), Member: i})
	}
	key := "berth:window:extensions:" + st.ID
	require.NoError(t, db.ZAdd(t.Context(), key, hits...).Err())
	require.NoError(t, db.Persist(t.Context(), key).Err())
	extended := 1
	eventually(t, "Redis is asked in time", func() error {
		if r = h.patch(t, st, `{"ttl": "1h"}`); r.status == http.StatusOK && h.missedRedis() {
			extended++
			return errors.New("it was not")
		}
		return nil
	})
	require.Equal(t, slowDown, r.refused(t, http.StatusTooManyRequests))
	require.Equal(t, "60", r.header.Get("Retry-After"))
	require.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
	require.Equal(t, extended, count(h.events(t, st), "stack.extended"))
	require.Equal(t, http.StatusOK, h.patch(t, other, `{"ttl": "1h"}`).status, "another stack has a limit of its own")
}

func TestLimits_CreatesAreCountedInRedisAndOutliveTheServer(t *testing.T) {
	t.Parallel()
	source := archive(t, page("x"))
	withRedis(t, []int{201, 201, 429, 201}, func() (statuses []int, servers []*Host) {
		h := start(t, with("BERTH_CREATES_PER_HOUR", "2"))
		create := func() { statuses = append(statuses, h.post(t, source, nil, "").status) }
		create()
		create()
		h.restart(t)
		create()
		require.NoError(t, h.redis(t).FlushDB(t.Context()).Err())
		create() // as the count is in Redis
		return statuses, []*Host{h}
	})
}

// withRedis asserts what try returns. It tries again with other servers if one of them said
// that Redis failed: on a busy machine an answer may take longer than they wait for it, 300 ms,
// and meanwhile each counts for itself.
func withRedis[T any](t *testing.T, want T, try func() (got T, servers []*Host)) {
	t.Helper()
	for again := 3; ; again-- {
		got, servers := try()
		late := slices.ContainsFunc(servers, (*Host).missedRedis)
		if !late || again == 0 || assert.ObjectsAreEqual(want, got) {
			require.Equal(t, want, got)
			return
		}
		t.Logf("Redis was late, and so it was %v", got)
	}
}

// missedRedis reports whether the server said at some time that Redis failed.
func (h *Host) missedRedis() bool {
	return strings.Contains(h.log.String(), "limits and retries are kept in memory")
}

// redis returns a client of the server's Redis.
func (h *Host) redis(t *testing.T) *goredis.Client {
	t.Helper()
	options, err := goredis.ParseURL(h.env["BERTH_REDIS_URL"])
	require.NoError(t, err)
	db := goredis.NewClient(options)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// holdForms makes Redis count the password forms so far for longer than a minute, which a busy
// machine may take for the others of a test.
func (h *Host) holdForms(t *testing.T) {
	t.Helper()
	db := h.redis(t)
	keys, err := db.Keys(t.Context(), "berth:window:forms:*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		hits, err := db.ZRange(t.Context(), key, 0, -1).Result()
		require.NoError(t, err)
		for _, hit := range hits {
			require.NoError(t, db.ZAdd(t.Context(), key, goredis.Z{Score: float64(time.Now().Add(time.Hour).UnixMicro()), Member: hit}).Err())
		}
		require.NoError(t, db.Persist(t.Context(), key).Err())
	}
}

func TestLimits_HoldWithoutRedis(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "2"), with("BERTH_REDIS_URL", "redis://127.0.0.1:1"))
	source := archive(t, page("x"))
	for range 2 {
		require.Equal(t, http.StatusCreated, h.post(t, source, nil, "").status)
	}
	r := h.post(t, source, nil, "")
	require.Equal(t, slowDown, r.refused(t, http.StatusTooManyRequests))
}

func TestLimits_WorkWithTheEmbeddedRedis(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "2"), with("BERTH_REDIS_URL", "embedded"))
	source := archive(t, page("x"))
	for range 2 {
		require.Equal(t, http.StatusCreated, h.post(t, source, nil, "").status)
	}
	h.post(t, source, nil, "").refused(t, http.StatusTooManyRequests)
}

func TestLimits_AnAPIKeyHasNone(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "1"), with("BERTH_UNCLAIMED_PER_IP", "1"))
	h.stop(t)
	key := "Bearer " + h.account(t, "ana@example.com")
	h.run(t)
	source := archive(t, page("x"))
	for range 3 {
		r := h.post(t, source, nil, "?wait=true", "Authorization", key)
		require.Equal(t, http.StatusCreated, r.status, r.body)
		v := r.json(t)
		require.Equal(t, true, v["claimed"])
		require.Nil(t, v["expires_at"])
		require.NotEmpty(t, v["manage_token"])
		for _, anonymous := range []string{"claim_code", "claim_url", "note"} {
			require.NotContains(t, v, anonymous)
		}
		st := r.stack(t)
		shown := h.get(t, "/v0/stacks/"+st.ID, "Authorization", key)
		require.Equal(t, "owner", shown.json(t)["role"])
		require.Equal(t, "agent", h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).json(t)["role"])
		require.Equal(t, false, h.events(t, st)[0].Data["anonymous"])
		require.Empty(t, h.get(t, st.url("web", "/")).header.Get("X-Robots-Tag"), "a claimed stack may be listed")
	}
	anonymous := h.live(t, page("x"), nil)
	h.get(t, "/v0/stacks/"+anonymous.ID, "Authorization", key).refused(t, http.StatusForbidden)
	h.post(t, source, nil, "").refused(t, http.StatusTooManyRequests)
}

func TestLimits_ARefusedCreateDoesNotCountTowardTheCap(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "1"))
	for range 3 {
		h.post(t, []byte("no archive at all"), nil, "")
	}
	h.live(t, page("x"), nil)
	h.post(t, archive(t, page("x")), nil, "").refused(t, http.StatusTooManyRequests)
}

func TestLimits_AFailedStackCountsTowardTheCapOnceItIsBuiltAgain(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "1"))
	failed := h.deploy(t, page("x"), manifest(`services: [{name: web, runtime: static, build: exit 1}]`))
	require.Equal(t, "failed", failed.Status)
	running := h.live(t, page("x"), nil)
	const full = "1 unclaimed stacks are already running from your network (limit 1); destroy or claim one first"
	require.Contains(t, h.postDeploy(t, failed, page("x"), nil).refused(t, http.StatusTooManyRequests), full)
	require.Equal(t, "failed", h.show(t, failed, "").Status)
	require.Equal(t, http.StatusOK, h.postDeploy(t, running, page("x"), nil).status, "a live one counts already")
	h.remove(t, running)
	require.Equal(t, http.StatusOK, h.postDeploy(t, failed, page("x"), nil).status)
	require.Equal(t, "live", h.show(t, failed, "?wait=true").Status)
}

func TestLimits_ARefusedCreateDoesNotCountTowardTheHour(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_CREATES_PER_HOUR", "2"), with("BERTH_UNCLAIMED_PER_IP", "1"), with("BERTH_MAX_UPLOAD", "1MiB"))
	source := archive(t, page("x"))
	refuse := func() {
		h.post(t, []byte("no archive at all"), nil, "").refused(t, 422)
		h.post(t, source, Fields{"ttl": "1s"}, "").refused(t, 422)
		h.post(t, nil, nil, "").refused(t, http.StatusBadRequest)
		h.post(t, source, nil, "?wait=perhaps").refused(t, http.StatusBadRequest)
		h.post(t, make([]byte, 2<<20), nil, "").refused(t, http.StatusRequestEntityTooLarge)
	}
	refuse()
	st := h.live(t, page("x"), nil)
	refuse()
	for range 3 {
		detail := h.post(t, source, nil, "").refused(t, http.StatusTooManyRequests)
		require.Contains(t, detail, "1 unclaimed stacks are already running from your network (limit 1)")
	}
	require.Equal(t, http.StatusOK, h.delete(t, st).status)
	h.forgetStack(st.ID)
	second := h.live(t, page("x"), nil)
	require.Equal(t, http.StatusOK, h.delete(t, second).status)
	h.forgetStack(second.ID)
	require.Equal(t, slowDown, h.post(t, source, nil, "").refused(t, http.StatusTooManyRequests), "creates that made a stack count")
}

func TestLimits_FiftyCreatesAtOnceMakeThreeStacks(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "3"))
	source := archive(t, page("x"))
	require.Equal(t, map[int]int{201: 3, 429: 47}, atOnce(50, func() int { return h.post(t, source, nil, "").status }))
}

func TestLimits_PasswordFormsShareTenAMinute(t *testing.T) {
	t.Parallel()
	var h *Host
	var st *Stack
	var refused []Reply
	withRedis(t, []int{429, 429, 429}, func() (statuses []int, servers []*Host) {
		h = start(t, with("BERTH_TRUSTED_PROXIES", "127.0.0.1"))
		st, refused = h.live(t, page("x"), nil), nil
		claim := "/claim/" + st.ClaimCode
		p := h.visitor(t)
		for i := range 10 {
			switch i % 3 {
			case 0:
				require.Less(t, p.signIn(t, "ana@example.com", "wrong password").status, 429)
			case 1:
				require.Less(t, p.submit(t, "/signup", "/signup", Fields{"email": "ana@example.com", "password": "short"}).status, 429)
			case 2:
				fields := Fields{"way": "signin", "email": "ana@example.com", "password": "wrong password"}
				require.Less(t, p.submit(t, claim, claim, fields).status, 429)
			}
			h.holdForms(t)
		}
		for _, page := range []string{"/signin", "/signup", claim} {
			r := p.submit(t, page, page, Fields{"email": "ana@example.com", "password": "long enough"})
			refused, statuses = append(refused, r), append(statuses, r.status)
		}
		return statuses, []*Host{h}
	})
	for _, r := range refused {
		require.Equal(t, "60", r.header.Get("Retry-After"))
		require.Contains(t, strings.ToLower(r.body), slowDown)
	}
	require.Less(t, h.visitor(t).signIn(t, "ana@example.com", "wrong password", "X-Forwarded-For", "203.0.113.7").status, 429)
	key := h.accountCreate(t, "bob@example.com")
	require.Equal(t, http.StatusOK, h.claim(t, key, st.ClaimCode, "").status, "claims of the API have a limit of their own")
}

// Three servers share one Redis, and so one limit.
func TestLimits_HoldOverThreeServersAtOnce(t *testing.T) {
	t.Parallel()
	withRedis(t, map[int]int{404: 10, 429: 26}, func() (statuses map[int]int, servers []*Host) {
		first := start(t)
		servers = []*Host{first}
		for range 2 {
			servers = append(servers, start(t, with("BERTH_REDIS_URL", first.env["BERTH_REDIS_URL"])))
		}
		var keys []string
		for _, h := range servers {
			keys = append(keys, h.accountCreate(t, "ana@example.com"))
		}
		// One after the other at each, so that Redis is not late.
		var mu sync.Mutex
		statuses = map[int]int{}
		var next atomic.Int64
		atOnce(3, func() int {
			i := next.Add(1) - 1
			for range 12 {
				status := servers[i].claim(t, keys[i], "CLM-0000-0000-0000", "").status
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
			return 0
		})
		return statuses, servers
	})
}

func TestLimits_OfAnUpload(t *testing.T) {
	t.Parallel()
	const most = 1 << 20
	h := start(t, with("BERTH_MAX_UPLOAD", "1MiB"))
	exact := tarOf(t, most)
	require.Len(t, exact, most)
	r := h.post(t, exact, nil, "")
	require.Equal(t, http.StatusCreated, r.status, "an archive of exactly the limit: %s", r.body)
	for _, more := range []int{1, 512, 10 << 20} {
		larger := append(bytes.Clone(exact), make([]byte, more)...)
		require.NotEmpty(t, h.post(t, larger, nil, "").refused(t, http.StatusRequestEntityTooLarge))
	}
	// Only the archive counts, not the rest of the form.
	r = h.post(t, exact, Fields{"manifest": "name: app # " + strings.Repeat("x", 1000)}, "")
	require.Equal(t, http.StatusCreated, r.status, r.body)
}

// tarOf is a site's archive of exactly size bytes, a multiple of 512.
func tarOf(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	content := make([]byte, size-512-1024)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: "index.html", Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write(content)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestLimits_OfWhatAnArchiveHolds(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_MAX_UNPACKED", "1MB"), with("BERTH_MAX_ENTRIES", "50"))
	bomb := archive(t, page(strings.Repeat("x", 2_000_000)))
	require.Less(t, len(bomb), 20_000)
	require.Contains(t, h.post(t, bomb, nil, "").refused(t, 422), "1MB")
	many := Tree{}
	for i := range 60 {
		many[fmt.Sprintf("%d.html", i)] = "x"
	}
	require.Contains(t, h.post(t, archive(t, many), nil, "").refused(t, 422), "50")
	require.Empty(t, h.files(t), "refused uploads left files")
}

func TestLimits_OfABuildCommand(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_BUILD_TIMEOUT", "12s"))
	st := h.deploy(t, page("x"), manifest("services: [{name: web, runtime: node, install: echo quick, build: 'echo it builds; sleep 600', start: x}]"))
	require.Equal(t, "failed", st.Status)
	require.Contains(t, st.reason(), "service web: build ran longer than 12s")
	require.Contains(t, st.reason(), "it builds")
}

func TestLimits_OfAHealthCheck(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_HEALTH_TIMEOUT", "15s"))
	st := h.deploy(t, Tree{"server.js": "require('http').createServer(() => {}).listen(3000, '127.0.0.1')"}, manifest(programManifest))
	require.Equal(t, "failed", st.Status)
	require.Contains(t, st.reason(), "web listens on 127.0.0.1:3000; it must listen on 0.0.0.0:$PORT (8080)")
}

func TestLimits_AreNamedWhenTheyAreWrong(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"BERTH_MAX_BUILDS": "none", "BERTH_TTL": "soon", "BERTH_MAX_UPLOAD": "big", "BERTH_TRUSTED_PROXIES": "me"} {
		h := install(t, with(name, value))
		p := h.spawn(t)
		require.Error(t, p.wait(t))
		require.Contains(t, h.log.String(), name)
		require.Equal(t, 1, strings.Count(h.log.String(), "\n"), "one line: %s", h.log)
		delete(h.env, name)
	}
}

func TestLimits_OfProcesses(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_SERVICE_PIDS", "64"), with("BERTH_SERVICE_MEMORY", "256MiB"))
	st := h.live(t, program(t), manifest(programManifest))
	c := h.inspect(t, st, "web")
	require.EqualValues(t, 64, *c.HostConfig.PidsLimit)
	require.EqualValues(t, 256<<20, c.HostConfig.Memory)
	require.NotEqual(t, "", c.Config.User)
	require.NotEqual(t, "0:0", c.Config.User)
	require.Contains(t, c.HostConfig.SecurityOpt, "no-new-privileges")
	require.Equal(t, []string{"ALL"}, []string(c.HostConfig.CapDrop))
	require.False(t, c.HostConfig.Privileged)
	require.Empty(t, c.HostConfig.PortBindings)
	require.Empty(t, c.HostConfig.Binds, "nothing of the host is mounted")
}
