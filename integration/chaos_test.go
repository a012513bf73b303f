package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/integration/invariants"
)

// chaosRound is how long the chaos goes on before everything is checked.
const chaosRound = 15 * time.Second

// TestChaos_TheInvariantsHold has agents create, change and delete stacks while
// the server is killed at random moments and points, its database gives errors,
// and its engine loses answers or is slow. BERTH_CHAOS_FOR says for how long, as in 1h (make chaos).
// BERTH_CHAOS_SEED repeats the choices of an earlier run.
func TestChaos_TheInvariantsHold(t *testing.T) {
	t.Parallel()
	length := 2 * chaosRound
	if text := os.Getenv("BERTH_CHAOS_FOR"); text != "" {
		var err error
		length, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	seed := uint64(wanted(t, "BERTH_CHAOS_SEED", int(time.Now().UnixNano()&0xffffff)))
	t.Logf("BERTH_CHAOS_SEED=%d", seed)
	p := startProxy(t)
	h := start(t, brief, with("BERTH_CRASH_LIMIT", "5"), with("BERTH_RETENTION", "20s"), through(p))
	c := &chaos{h: h, engine: p, key: h.accountCreate(t, "ana@example.com")}
	for i := range 3 {
		c.agents = append(c.agents, &agent{chaos: c, rand: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	dice := rand.New(rand.NewPCG(seed, 1000))
	before := []invariants.Occurrence{}
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.round(t, dice)
		h.inOrder(t, before)
		before = h.history(t)
		for _, a := range c.agents {
			a.compare(t)
		}
	}
	t.Logf("%d requests, %d of them answered; %d events; the server died %d times", c.sent(), c.answered(), len(before), c.deaths)
	c.forgetUnknown(t)
}

// chaos is one server and those who use it.
type chaos struct {
	h      *Host
	engine *engineProxy // between the server and its engine
	key    string
	agents []*agent
	deaths int
}

func (c *chaos) sent() (n int) {
	for _, a := range c.agents {
		n += a.sent
	}
	return n
}

func (c *chaos) answered() (n int) {
	for _, a := range c.agents {
		n += a.answered
	}
	return n
}

// round lets the agents work for a while under a server that dies, and leaves a
// server that runs well.
func (c *chaos) round(t *testing.T, dice *rand.Rand) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), chaosRound)
	defer cancel()
	var agents sync.WaitGroup
	for _, a := range c.agents {
		agents.Go(func() {
			for ctx.Err() == nil {
				a.act(t)
				nap(ctx, time.Duration(a.rand.IntN(200))*time.Millisecond)
			}
		})
	}
	for ctx.Err() == nil {
		nap(ctx, time.Duration(500+dice.IntN(4000))*time.Millisecond)
		c.die(t, dice)
		c.h.failAt(misfortune(dice))
		c.disturb(dice)
		c.h.spawn(t)
	}
	agents.Wait()
	c.die(t, dice)
	c.engine.clear()
	c.h.failAt("")
	c.h.run(t)
}

// die ends the server, unless a failpoint has done so.
func (c *chaos) die(t *testing.T, dice *rand.Rand) {
	t.Helper()
	c.deaths++
	sig := syscall.SIGKILL
	if dice.IntN(4) == 0 {
		sig = syscall.SIGTERM
	}
	p := c.h.running()
	_ = p.proc.Signal(sig) // it may be dead already
	_ = p.wait(t)
}

// disturb has the engine lose some answers to the next server, keep it waiting
// for others, or work well.
func (c *chaos) disturb(dice *rand.Rand) {
	c.engine.clear()
	requests := [][2]string{
		containerCreate, containerStart, containerStop, containerRemove, containerLook, containerCopy, commit, execCreate, execStart,
		execLook, networkCreate, networkRemove, volumeCreate, volumeRemove, imageLook, imageRemove,
	}
	request := requests[dice.IntN(len(requests))]
	switch dice.IntN(3) {
	case 0:
		c.engine.add(request[0], request[1], 1+dice.IntN(3), dropReply)
	case 1:
		c.engine.add(request[0], request[1], 3, func(p *engineProxy, w http.ResponseWriter, req *http.Request) {
			nap(req.Context(), 2*time.Second)
			p.forward.ServeHTTP(w, req)
		})
	}
}

// misfortune says what happens to the next server besides being killed: nothing, errors
// of the database, or its death at some point.
func misfortune(dice *rand.Rand) string {
	switch dice.IntN(5) {
	case 0:
		return "store-begin%5,store-commit%10,store-read%3"
	case 1:
		return "store-commit@" + strconv.Itoa(1+dice.IntN(30))
	case 2:
		return ""
	}
	f := faults[dice.IntN(len(faults))]
	point, _, _ := strings.Cut(f.points[dice.IntN(len(f.points))], "@")
	return point + "@" + strconv.Itoa(1+dice.IntN(3))
}

func nap(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// forgetUnknown deletes the stacks whose creation was not answered.
func (c *chaos) forgetUnknown(t *testing.T) {
	t.Helper()
	rows, err := c.h.rows(t.Context())
	require.NoError(t, err)
	known := map[string]bool{}
	for _, st := range c.h.undeleted() {
		known[st.ID] = true
	}
	for _, r := range rows {
		if r.Status != "deleted" && !known[r.ID] {
			c.h.forget(t, r.ID)
		}
	}
}

// agent uses the server and remembers the answers.
type agent struct {
	chaos          *chaos
	rand           *rand.Rand
	sent, answered int
	mine           []*belief
}

// belief is what an agent knows of one stack, from answers alone.
type belief struct {
	st      *Stack
	claimed bool
	deleted bool
	mortal  bool              // a short TTL was asked for, before any claim
	doomed  bool              // its deletion was asked for
	files   map[string]string // that web said it wrote
}

// stacksEach is how many stacks an agent has at once.
const stacksEach = 2

// act does one thing.
func (a *agent) act(t *testing.T) {
	t.Helper()
	var alive []*belief
	for _, b := range a.mine {
		if !b.deleted {
			alive = append(alive, b)
		}
	}
	if len(alive) < stacksEach {
		a.create(t)
		return
	}
	b := alive[a.rand.IntN(len(alive))]
	switch a.rand.IntN(12) {
	case 0:
		a.delete(t, b)
	case 1, 2:
		a.redeploy(t, b)
	case 3:
		a.claim(t, b)
	case 4:
		a.extend(t, b, "1h")
	case 5:
		b.mortal = !b.claimed
		a.extend(t, b, "2s")
	case 6:
		a.crash(b)
	default:
		a.write(t, b)
	}
}

func (a *agent) attempt(t *testing.T, method, url, body string, headers ...string) Reply {
	t.Helper()
	r := a.chaos.h.attempt(t, method, url, body, headers...)
	a.sent++
	if r.status != 0 {
		a.answered++
	}
	return r
}

// source is what an agent uploads: mostly something that works.
func (a *agent) source(t *testing.T) (Tree, Fields) {
	t.Helper()
	tree := pairTree(t).plus(Tree{"version": strconv.Itoa(a.rand.IntN(3))})
	switch a.rand.IntN(8) {
	case 0:
		return tree, manifest(strings.ReplaceAll(pair, "echo installed", "exit 3"))
	case 1:
		return tree, manifest(strings.ReplaceAll(pair, "start: node server.js, depends_on", "start: exit 4, depends_on"))
	case 2:
		return tree, manifest(strings.ReplaceAll(pair, "start: node server.js, ", "start: node server.js, strategy: recreate, "))
	}
	return tree, manifest(pair)
}

func (a *agent) create(t *testing.T) {
	t.Helper()
	body, contentType := form(t, archive(t, pairTree(t)), manifest(pair))
	r := a.attempt(t, http.MethodPost, "/v0/stacks", string(body), "Content-Type", contentType)
	if r.status == http.StatusCreated {
		b := &belief{st: r.stack(t), files: map[string]string{}}
		a.mine = append(a.mine, b)
		a.chaos.h.adoptStack(b.st)
	}
}

func (a *agent) redeploy(t *testing.T, b *belief) {
	t.Helper()
	tree, fields := a.source(t)
	body, contentType := form(t, archive(t, tree), fields)
	a.attempt(t, http.MethodPost, "/v0/stacks/"+b.st.ID+"/deploy", string(body),
		"Content-Type", contentType, "Authorization", "Bearer "+b.st.ManageToken)
}

func (a *agent) claim(t *testing.T, b *belief) {
	t.Helper()
	r := a.attempt(t, http.MethodPost, "/v0/claim", `{"claim_code": "`+b.st.ClaimCode+`"}`,
		"Content-Type", "application/json", "Authorization", "Bearer "+a.chaos.key)
	if r.status == http.StatusOK {
		if b.claimed {
			t.Errorf("stack %s was claimed twice", b.st.ID)
		}
		b.claimed = true
	}
}

func (a *agent) extend(t *testing.T, b *belief, ttl string) {
	t.Helper()
	a.attempt(t, http.MethodPatch, "/v0/stacks/"+b.st.ID, `{"ttl": "`+ttl+`"}`,
		"Content-Type", "application/json", "Authorization", "Bearer "+b.st.ManageToken)
}

func (a *agent) delete(t *testing.T, b *belief) {
	t.Helper()
	b.doomed = true
	r := a.attempt(t, http.MethodDelete, "/v0/stacks/"+b.st.ID, "", "Authorization", "Bearer "+b.st.ManageToken)
	if r.status == http.StatusOK || r.status == http.StatusNotFound {
		b.deleted = true
		a.chaos.h.forgetStack(b.st.ID)
	}
}

// crash kills a service's process behind the server's back.
func (a *agent) crash(b *belief) {
	docker, err := engine()
	if err != nil {
		return
	}
	defer docker.Close()
	for generation := range 9 {
		_ = docker.ContainerKill(context.Background(), "berth-"+b.st.hex()+"-api-g"+strconv.Itoa(generation), "KILL")
	}
}

// write has the service web write a file of its own.
func (a *agent) write(t *testing.T, b *belief) {
	t.Helper()
	name := fmt.Sprintf("file%d", len(b.files))
	content := strconv.Itoa(a.rand.Int())
	if r := a.attempt(t, http.MethodPost, b.st.url("web", "/write?name="+name), content); r.status == http.StatusOK {
		b.files[name] = content
	}
}

// compare asserts that the server has kept everything that it acknowledged.
func (a *agent) compare(t *testing.T) {
	t.Helper()
	for _, b := range a.mine {
		path := "/v0/stacks/" + b.st.ID
		r := a.chaos.h.getAs(t, b.st.ManageToken, path)
		if b.deleted || (r.status == http.StatusNotFound && (b.doomed || b.mortal && !b.claimed)) {
			require.Equal(t, http.StatusNotFound, r.status, "a delete is undone")
			b.deleted = true
			a.chaos.h.forgetStack(b.st.ID)
			continue
		}
		require.Equal(t, http.StatusOK, r.status, "stack %s: %s", b.st.ID, r)
		a.chaos.h.showsNoSecret(t, b.st)
		a.chaos.h.answers(t, b.st)
		now := r.stack(t)
		require.False(t, b.claimed && !now.Claimed, "the claim of stack %s is undone", b.st.ID)
		if now.Status == "live" {
			for name, content := range b.files {
				got := a.chaos.h.file(t, b.st, "web", name)
				if got != content && b.mortal && !b.claimed { // it may have expired since
					if r := a.chaos.h.getAs(t, b.st.ManageToken, path); r.status != http.StatusOK || r.stack(t).Status != "live" {
						break
					}
				}
				require.Equal(t, content, got, "%s of stack %s", name, b.st.ID)
			}
		}
	}
}
