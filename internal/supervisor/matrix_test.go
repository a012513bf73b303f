package supervisor

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/engine/enginetest"
	"github.com/berth-host/berth/internal/stack"
)

// underWay are the jobs during which something happens to a stack, and the states in
// which none is under way. Each returns a stack, of which nothing ends before
// the world is released.
var underWay = []struct {
	job   string
	begin func(w *world) *stack.Stack
}{
	{"come back", func(w *world) *stack.Stack { // the first, since it needs the server alone
		st := w.long(service("web"))
		w.stopServer()
		w.crash(st, "web-g1", 1)
		w.program(st.ID, 1, w.slow)
		w.startServer()
		w.runs(st, "web-g1")
		return st
	}},
	{"live", func(w *world) *stack.Stack { return w.long(service("web")) }},
	{"failed", func(w *world) *stack.Stack {
		st := w.createRunning(time.Hour, exits(1), service("web"))
		return w.becomes(st.ID, stack.Failed)
	}},
	{"expired", func(w *world) *stack.Stack {
		st := w.expired(service("web"))
		synctest.Wait()
		return st
	}},
	{"build", func(w *world) *stack.Stack {
		spec := service("web")
		spec.Build = "make"
		return w.commanding(spec)
	}},
	{"release", func(w *world) *stack.Stack {
		spec := service("web")
		spec.Release = "make"
		return w.commanding(spec)
	}},
	{"deploy", func(w *world) *stack.Stack {
		st := w.createRunning(time.Hour, w.slow, service("web"))
		w.runs(st, "web-g1")
		return st
	}},
	{"redeploy", func(w *world) *stack.Stack { return w.redeploying(service("web")) }},
	{"recreate", func(w *world) *stack.Stack { return w.redeploying(recreate("web")) }},
	{"crash", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.program(st.ID, 1, w.slow)
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		w.runs(st, "web-g1")
		return st
	}},
	{"backoff", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 1)
		return st
	}},
	{"restart", func(w *world) *stack.Stack { return w.restarting(service("web")) }},
	{"in place", func(w *world) *stack.Stack { return w.restarting(recreate("web")) }},
	{"expiry", func(w *world) *stack.Stack {
		spec := service("web")
		spec.StopTimeout = 10 * time.Minute
		st := w.createRunning(5*time.Second, w.stubborn, spec)
		time.Sleep(6 * time.Second)
		return st
	}},
	{"snapshot", func(w *world) *stack.Stack {
		st := w.createFor(5*time.Second, service("web"))
		w.hold("Snapshot", engine.Key{Stack: st.ID, Service: "web"}.Data())
		w.awaitEvent(st.ID, "stack.expired", 1)
		return st
	}},
	{"restore", func(w *world) *stack.Stack {
		st := w.expired(service("web"))
		w.program(st.ID, 1, w.slow)
		require.NoError(w.t, w.claim(st.ID))
		w.runs(st, "web-g1")
		return st
	}},
	{"delete", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.hold("Remove", w.served(st).process("web").id)
		go func() { _ = w.sup.Delete(w.t.Context(), st.ID) }()
		synctest.Wait()
		return st
	}},
	{"fallen", func(w *world) *stack.Stack { return w.fallen(service("web")) }},
	{"loop", func(w *world) *stack.Stack {
		st := w.long(service("web"))
		w.program(st.ID, 1, exits(1))
		w.crash(st, "web-g1", 1)
		w.awaitEvent(st.ID, "service.crashed", 5)
		return st
	}},
}

// long is a live stack whose time does not run out meanwhile.
func (w *world) long(specs ...stack.Spec) *stack.Stack {
	w.t.Helper()
	return w.becomes(w.createFor(time.Hour, specs...).ID, stack.Live)
}

// expired is a stack whose time has run out.
func (w *world) expired(spec stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.createFor(5*time.Second, spec)
	w.awaitEvent(st.ID, "stack.expired", 1)
	return st
}

// commanding is a stack of which the build or the release command runs.
func (w *world) commanding(spec stack.Spec) *stack.Stack {
	w.t.Helper()
	w.command(func(p *enginetest.Process) int {
		select {
		case <-w.released:
			return 0
		case <-p.Killed:
			return 1
		}
	})
	st := w.createFor(time.Hour, spec)
	synctest.Wait()
	return st
}

// redeploying is a stack whose second generation is on its way.
func (w *world) redeploying(spec stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.long(spec)
	w.program(st.ID, 2, w.slow)
	w.deploy(st.ID, spec)
	if spec.Strategy == stack.Recreate {
		w.runs(st, "web-g2")
	} else {
		w.runs(st, "web-g1", "web-g2")
	}
	return st
}

// restarting is a claimed stack of which a restart is on its way.
func (w *world) restarting(spec stack.Spec) *stack.Stack {
	w.t.Helper()
	st := w.long(spec)
	require.NoError(w.t, w.claim(st.ID))
	w.program(st.ID, 1, w.slow)
	w.restart(st)
	time.Sleep(4 * time.Second)
	return st
}

// slow is a program that listens once the world is released.
func (w *world) slow(p *enginetest.Process) int {
	select {
	case <-w.released:
		return listen(p)
	case <-p.Terminated:
	case <-p.Killed:
	}
	return 0
}

// stubborn is a program that listens, and ends as it is asked to once the world is
// released.
func (w *world) stubborn(p *enginetest.Process) int {
	code := listen(p)
	select {
	case <-w.released:
	case <-p.Killed:
	}
	return code
}

// hold has the engine answer no call of a method about an object, "" for all, before the
// world is released.
func (w *world) hold(method, object string) {
	sup := w.sup
	w.engine.Before(method, func(about string) error {
		if object != "" && about != object {
			return nil
		}
		select {
		case <-w.released:
		case <-sup.ctx.Done(): // whoever asked is gone
		}
		return nil
	})
}

// happens are what may happen to a stack meanwhile.
var happens = []struct {
	what string
	do   func(w *world, st *stack.Stack) error
}{
	{"nothing", func(*world, *stack.Stack) error { return nil }},
	{"crash", func(w *world, st *stack.Stack) error {
		w.crashAll(st)
		return nil
	}},
	{"next fails", func(w *world, st *stack.Stack) error { // what runs now goes on
		w.program(st.ID, 2, exits(1))
		w.command(exits(1))
		w.crash(st, "web-g2", 1)
		return nil
	}},
	{"old loops", func(w *world, st *stack.Stack) error { // what is on its way goes on
		w.program(st.ID, 1, exits(1))
		w.crash(st, "web-g1", 1)
		return nil
	}},
	{"all loop", func(w *world, st *stack.Stack) error { // nothing is rolled back either
		for generation := range 4 {
			w.program(st.ID, generation, exits(1))
		}
		w.command(exits(1))
		w.crashAll(st)
		return nil
	}},
	{"deploy", func(w *world, st *stack.Stack) error {
		_, err := w.sup.Deploy(w.t.Context(), st.ID, &stack.Manifest{Services: []stack.Spec{service("web")}}, "", w.upload(), nil)
		return err
	}},
	{"restart", func(w *world, st *stack.Stack) error {
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		return err
	}},
	{"claim", func(w *world, st *stack.Stack) error { return w.claim(st.ID) }},
	{"extend", func(w *world, st *stack.Stack) error { return w.extend(st, limits.TTLMax/2) }},
	{"notice", func(w *world, st *stack.Stack) error { return w.extend(st, limits.ExpiryNotice+time.Second) }},
	{"expiry", func(w *world, st *stack.Stack) error { return w.extend(st, time.Second) }},
	{"retention", func(w *world, st *stack.Stack) error {
		return w.change(st, func(st *stack.Stack) ([]stack.Event, error) {
			if st.Status != stack.Expired {
				return nil, stack.NewError(stack.Conflict, "it is not retained")
			}
			st.RetainedUntil = stack.Now()
			return nil, nil
		})
	}},
	{"revoke", func(w *world, st *stack.Stack) error {
		if st.Status != stack.Expired {
			_ = w.claim(st.ID) // unless it was claimed: only an owner revokes
		}
		return w.change(st, (*stack.Stack).RevokeAgent)
	}},
	{"delete", func(w *world, st *stack.Stack) error { return w.sup.Delete(w.t.Context(), st.ID) }},
}

// goesAway are the same for all stacks at once.
var goesAway = []struct {
	what string
	do   func(w *world)
}{
	{"engine", func(w *world) { w.away(5 * time.Second) }},
	{"server", func(w *world) {
		w.stopServer()
		w.startServer()
	}},
	{"both", func(w *world) {
		w.stopServer()
		w.away(time.Second)
		w.startServer()
	}},
}

// crashAll ends every process of a stack.
func (w *world) crashAll(st *stack.Stack) {
	for _, name := range []string{"web-g1", "web-g1-r1", "web-g2"} {
		w.crash(st, name, 1)
	}
}

// change changes the row of a stack.
func (w *world) change(st *stack.Stack, fn func(*stack.Stack) ([]stack.Event, error)) error {
	_, err := w.db.Update(w.t.Context(), st.ID, fn)
	return err
}

// extend gives a stack so much time from now on.
func (w *world) extend(st *stack.Stack, ttl time.Duration) error {
	return w.change(st, func(st *stack.Stack) ([]stack.Event, error) { return st.Extend(ttl, limits, stack.Now()) })
}

var update = flag.Bool("update", false, "write what becomes of stacks into testdata")

// outcomes says what becomes of a stack when something happens during a job. Read it
// before you commit a change of it.
const outcomes = "testdata/outcomes.txt"

// Whatever happens to a stack while something is being done with it, in the end it serves
// what its row says, or nothing, and nothing else is left; the row changes as docs/api.md,
// "States and transitions", has it, and each row of that table is met.
func TestStack_IsWhatItsRowSaysWhateverHappensMeanwhile(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got, rows, met := map[string]map[string]string{}, documented(t), map[transition]bool{}
	note := func(what string, w *world, ends map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		got[what] = ends
		w.lawful(what, rows, met)
	}
	var columns []string
	for _, column := range happens {
		columns = append(columns, column.what)
		t.Run(column.what, func(t *testing.T) {
			t.Parallel()
			inLongWorld(t, func(w *world, stacks map[string]*stack.Stack, ended func() map[string]string) {
				refused := map[string]string{}
				for job, st := range stacks {
					go func() {
						err := column.do(w, st)
						if err == nil {
							return
						}
						var own *stack.Error
						require.ErrorAs(w.t, err, &own, "%s during %s", column.what, job)
						mu.Lock()
						defer mu.Unlock()
						refused[job] = "!"
					}()
				}
				ends := ended()
				for job := range ends {
					ends[job] += refused[job]
				}
				note(column.what, w, ends)
			})
		})
	}
	for _, column := range goesAway {
		columns = append(columns, column.what)
		t.Run(column.what, func(t *testing.T) {
			t.Parallel()
			inLongWorld(t, func(w *world, _ map[string]*stack.Stack, ended func() map[string]string) {
				column.do(w)
				note(column.what, w, ended())
			})
		})
	}
	t.Cleanup(func() {
		if !t.Failed() {
			require.NoError(t, compare(table(columns, got)))
			for row := range rows {
				assert.True(t, met[row], "nothing has met the row %v", row)
			}
		}
	})
}

// untilLoop is how long a service crashes until that is too often.
const untilLoop = (1 + 2 + 4 + 8 + 16 + 1) * time.Second

// inLongWorld runs a test in a world with a stack for each job, which lives longer than
// the test. Ended releases the world, waits until all is at rest, and returns what became
// of the stacks.
func inLongWorld(t *testing.T, test func(w *world, stacks map[string]*stack.Stack, ended func() map[string]string)) {
	t.Helper()
	inWorld(t, func(w *world) {
		stacks := map[string]*stack.Stack{}
		for _, job := range underWay {
			stacks[job.job] = job.begin(w)
		}
		test(w, stacks, func() map[string]string {
			time.Sleep(untilLoop)
			w.release()
			w.settle()
			ends := map[string]string{}
			for job, st := range stacks {
				ends[job] = w.consistent(st, "during "+job)
			}
			return ends
		})
	}, func(c *Config) {
		c.HealthTimeout, c.Limits.TTL, c.Limits.Retention = 5*time.Minute, time.Hour, time.Hour
	})
}

// table writes what became of the stacks, a line for each job.
func table(columns []string, got map[string]map[string]string) string {
	var b strings.Builder
	line := func(first string, cell func(column string) string) {
		fmt.Fprintf(&b, "%-10s", first)
		for _, column := range columns {
			fmt.Fprintf(&b, " %-*s", max(len(column), 3), cell(column))
		}
		b.WriteString("\n")
	}
	line("", func(column string) string { return column })
	for _, job := range underWay {
		line(job.job, func(column string) string { return got[column][job.job] })
	}
	return regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n")
}

// compare compares a table with the one in testdata.
func compare(got string) error {
	if *update {
		return os.WriteFile(outcomes, []byte(got), 0o600)
	}
	want, err := os.ReadFile(outcomes)
	if err == nil && got != string(want) {
		err = fmt.Errorf("not what %s says:\n%s\nwant\n%s", outcomes, got, want)
	}
	return err
}

// consistent requires that what there is of a stack is what its row says, and returns
// what that is: L, F or E for the status, with the generation, or - for a deleted one.
func (w *world) consistent(st *stack.Stack, when string) string {
	w.t.Helper()
	synctest.Wait()
	there, err := w.driver.Inventory(w.t.Context(), st.ID)
	require.NoError(w.t, err)
	now, err := w.db.Get(w.t.Context(), st.ID)
	if stack.KindOf(err) == stack.NotFound {
		assert.Empty(w.t, there, "%s: it is deleted", when)
		assert.False(w.t, w.dir.Has(st.ID), "%s: it is deleted", when)
		assert.Equal(w.t, 404, w.ask(st, "web"), "%s: it is deleted", when)
		return "-"
	}
	require.NoError(w.t, err)
	have, want := there[st.ID], wanted(now)
	var running, networks []string
	for _, c := range have.Containers {
		assert.True(w.t, c.Running, "%s: %s is left", when, c.Name)
		running = append(running, c.Name)
	}
	for _, n := range have.Networks {
		networks = append(networks, n.Name)
	}
	what := fmt.Sprintf("%s: the stack is %s: %s; events: %v", when, now.Status, now.Error, w.events(st.ID))
	assert.Equal(w.t, want.containers, running, what)
	assert.Equal(w.t, want.networks, networks, what)
	assert.Zero(w.t, now.Deploying, what)
	assert.Empty(w.t, w.dir.Sources(st.ID), what)
	for _, image := range have.Images {
		for _, tag := range image.Tags {
			if number, ok := engine.GenerationOf(tag); ok {
				assert.Equal(w.t, now.Generation, number, "%s; image %s is left", what, tag)
			}
		}
	}
	if now.Status == stack.Expired {
		assert.Empty(w.t, have.Volumes, what)
	}
	for i := range now.Services {
		assert.Equal(w.t, want.service, now.Services[i].Status, what)
		assert.Equal(w.t, want.answer, w.ask(now, now.Services[i].Spec.Name), what)
		assert.Equal(w.t, now.Status == stack.Live, w.answers(now, now.Services[i].Spec.Name), what)
	}
	return fmt.Sprintf("%s%d", strings.ToUpper(string(now.Status)[:1]), now.Generation)
}

// shape is what there is of a stack at rest.
type shape struct {
	containers, networks []string
	service              stack.ServiceStatus
	answer               int // to requests
}

// wanted is the shape that a row asks for.
func wanted(st *stack.Stack) shape {
	switch st.Status {
	case stack.Live:
		key := engine.Key{Stack: st.ID, Generation: st.Generation}
		want := shape{networks: []string{key.Network()}, service: stack.Running, answer: toProcess}
		for i := range st.Services {
			key.Service = st.Services[i].Spec.Name
			want.containers = append(want.containers, key.Process(st.Services[i].Replaced))
		}
		slices.Sort(want.containers)
		return want
	case stack.Expired:
		return shape{service: stack.Stopped, answer: 410}
	}
	return shape{service: stack.Stopped, answer: 503} // failed, as a stack at rest builds nothing
}

// transition is how docs/api.md has a stack change with an event.
type transition struct {
	from, to stack.Status // from is "" for a new stack
	event    stack.EventType
}

var (
	statuses   = regexp.MustCompile("`(building|live|failed|expired)`")
	eventTypes = regexp.MustCompile("`((?:stack|service)\\.[a-z_]+)`")
)

// documented reads the table of docs/api.md, "States and transitions": a row of it
// stands for each of its states, with each of its events.
func documented(t *testing.T) map[transition]bool {
	t.Helper()
	text, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(text), "\n## States and transitions\n")
	section, _, _ = strings.Cut(section, "\n### ")
	rows := map[transition]bool{}
	for line := range strings.Lines(section) {
		line, _, _ = strings.Cut(line, "; if it fails")
		cells := strings.Split(line, " | ")
		if len(cells) != 4 {
			continue
		}
		cells[0] = strings.Replace(cells[0], "any", "`building`, `live`, `failed`, `expired`", 1)
		froms, tos := statuses.FindAllStringSubmatch(cells[0], -1), statuses.FindStringSubmatch(cells[2])
		if strings.HasSuffix(cells[0], "none") {
			froms = [][]string{{"", ""}}
		}
		for _, from := range froms {
			row := transition{from: stack.Status(from[1]), to: stack.Status(from[1])} // where it is unchanged
			if tos != nil {
				row.to = stack.Status(tos[1])
			} else if cells[2] == "deleted" {
				row.to = stack.Deleted
			}
			for _, e := range eventTypes.FindAllStringSubmatch(cells[3], -1) {
				row.event = stack.EventType(e[1])
				rows[row] = true
			}
		}
	}
	require.NotEmpty(t, rows)
	return rows
}

// lawful requires that every change of a stack so far is one of the documented rows, and
// adds those to met. The last event of a change is the one that moved the stack; those of
// its services, while it builds or is restored, come before the one that ends that.
func (w *world) lawful(when string, rows, met map[transition]bool) {
	w.t.Helper()
	for _, c := range w.db.Changes() {
		for _, e := range c.events {
			met[transition{c.from, c.to, e}] = true
		}
		moved := transition{c.from, c.to, ""}
		if len(c.events) > 0 {
			moved.event = c.events[len(c.events)-1]
		}
		switch {
		case rows[moved]:
		case c.from != c.to || c.from != stack.Building && !c.builds:
			assert.Fail(w.t, "no such row", "%s: %v of %v", when, moved, c.events)
		case moved.event == stack.EventBuilding:
			met[transition{"", stack.Building, moved.event}] = true
		case moved.event == stack.EventReady:
			met[transition{stack.Building, stack.Live, moved.event}] = true
		default:
			assert.Fail(w.t, "no such row", "%s: %v of %v", when, moved, c.events)
		}
	}
}
