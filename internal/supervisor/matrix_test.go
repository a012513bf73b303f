package supervisor

import (
	"flag"
	"fmt"
	"maps"
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
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
)

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
		_, err := w.sup.Deploy(w.t.Context(), st.ID, source.Upload{Manifest: &stack.Manifest{Services: []stack.Spec{service("web")}}, Source: w.upload()}, nil)
		return err
	}},
	{"supersede", func(w *world, st *stack.Stack) error { return w.supersede(st.ID, service("web")) }},
	{"restart", func(w *world, st *stack.Stack) error {
		_, err := w.sup.Restart(w.t.Context(), st.ID, "web")
		return err
	}},
	{"claim", func(w *world, st *stack.Stack) error { return w.claim(st.ID) }},
	{"late claim", func(w *world, st *stack.Stack) error {
		err := w.change(st, func(st *stack.Stack) ([]stack.Event, error) {
			if st.Claimed() || st.Status == stack.Expired {
				return nil, stack.NewError(stack.Conflict, "its time cannot run out")
			}
			st.ExpiresAt = stack.Now()
			return nil, nil
		})
		if err != nil {
			return err
		}
		return w.claim(st.ID)
	}},
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
	{"stop", func(w *world, st *stack.Stack) error { return w.sup.Stop(w.t.Context(), st.ID, "it mines") }},
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

// holds is what else is true in the end of a stack that was not refused what happened.
var holds = map[string]func(*stack.Stack) bool{
	"claim": (*stack.Stack).Claimed,
	"server": func(st *stack.Stack) bool { // each process is the one from before
		return !slices.ContainsFunc(st.Generation.Services, func(s stack.Service) bool { return s.Replaced != 0 })
	},
}

// crashAll ends every process of a stack.
func (w *world) crashAll(st *stack.Stack) {
	for _, service := range []string{"web", "api"} {
		for _, process := range []string{"-g1", "-g1-r1", "-g2"} {
			w.crash(st, service+process, 1)
		}
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
	note := func(what string, w *world, stacks map[string]*stack.Stack, ends map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		if got[what] == nil {
			got[what] = map[string]string{}
		}
		maps.Copy(got[what], ends)
		w.lawful(what, rows, met)
		for job, end := range ends {
			if holds[what] != nil && end != "-" && !strings.HasSuffix(end, "!") {
				assert.True(w.t, holds[what](w.get(stacks[job].ID)), "%s during %s", what, job)
			}
		}
	}
	var columns []string
	column := func(what string, test meanwhile) {
		columns = append(columns, what)
		for _, jobs := range together() {
			t.Run(what+", from "+jobs[0].job, func(t *testing.T) {
				t.Parallel()
				inLongWorld(t, jobs, test)
			})
		}
	}
	for _, c := range happens {
		column(c.what, func(w *world, stacks map[string]*stack.Stack, ended func() map[string]string) {
			refused := map[string]string{}
			for job, st := range stacks {
				go func() {
					err := c.do(w, st)
					if err == nil {
						return
					}
					var own *stack.Error
					require.ErrorAs(w.t, err, &own, "%s during %s", c.what, job)
					mu.Lock()
					defer mu.Unlock()
					refused[job] = "!"
				}()
			}
			ends := ended()
			for job := range ends {
				ends[job] += refused[job]
			}
			note(c.what, w, stacks, ends)
		})
	}
	for _, c := range goesAway {
		column(c.what, func(w *world, stacks map[string]*stack.Stack, ended func() map[string]string) {
			c.do(w)
			note(c.what, w, stacks, ended())
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

// meanwhile does something to stacks, one for each job that is under way. Ended releases
// the world, waits until all is at rest, and returns what became of the stacks.
type meanwhile func(w *world, stacks map[string]*stack.Stack, ended func() map[string]string)

// inLongWorld runs a test in a world whose stacks live longer than the test.
func inLongWorld(t *testing.T, jobs []situation, test meanwhile) {
	t.Helper()
	inWorld(t, func(w *world) {
		stacks := map[string]*stack.Stack{}
		for _, job := range jobs {
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
		c.CheckEvery = seldom
	})
}

// table writes what became of the stacks, a line for each job.
func table(columns []string, got map[string]map[string]string) string {
	var b strings.Builder
	line := func(first string, cell func(column string) string) {
		fmt.Fprintf(&b, "%-11s", first)
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

// withoutReady leaves out what may be there for the builds of the next deploy.
func withoutReady(st *stack.Stack, there engine.Objects) engine.Objects {
	if st.Status != stack.Live {
		return there
	}
	there.Containers = slices.DeleteFunc(there.Containers, func(c engine.Container) bool {
		key := engine.Key{Stack: st.ID, Service: c.Key.Service}
		return c.Running && c.Name == key.Build()
	})
	ahead := engine.Key{Stack: st.ID, Generation: st.Generation.Number + 1}
	there.Networks = slices.DeleteFunc(there.Networks, func(n engine.Network) bool {
		return n.Name == ahead.Network() || n.Name == ahead.Builds().Network()
	})
	return there
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
	have, want := withoutReady(now, there[st.ID]), wanted(now)
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
	w.endedOnce(now, what)
	assert.Empty(w.t, w.dir.Sources(st.ID, now.Generation.Source.Folder), what)
	for _, image := range have.Images {
		for _, tag := range image.Tags {
			if _, ok := engine.AttemptOf(tag); ok {
				assert.True(w.t, now.KeepsImage(tag), "%s; image %s is left", what, tag)
			}
		}
	}
	for _, v := range have.Volumes {
		assert.False(w.t, now.Status == stack.Expired && now.Service(v.Key.Service) != nil, "%s; volume %s is left", what, v.Name)
	}
	for i := range st.Generation.Services {
		if dropped := &st.Generation.Services[i].Spec; now.Service(dropped.Name) == nil {
			w.keepsOnlyData(now, dropped, what)
		}
	}
	for i := range now.Generation.Services {
		assert.Equal(w.t, want.service, now.Generation.Services[i].Status, what)
		assert.Equal(w.t, want.answer, w.ask(now, now.Generation.Services[i].Spec.Name), what)
		assert.Equal(w.t, now.Status == stack.Live, w.answers(now, now.Generation.Services[i].Spec.Name), what)
	}
	return fmt.Sprintf("%s%d", strings.ToUpper(string(now.Status)[:1]), now.Generation.Number)
}

// endedOnce requires that the row says how the latest attempt ended, and nothing else than
// what it says of the stack.
func (w *world) endedOnce(now *stack.Stack, what string) {
	w.t.Helper()
	d := now.LastDeploy
	assert.Equal(w.t, now.Attempt, d.Attempt, what)
	assert.Contains(w.t, []stack.Outcome{stack.WentLive, stack.RolledBack, stack.Unsuccessful}, d.Outcome, what)
	assert.False(w.t, d.EndedAt.Before(d.StartedAt), what)
	assert.Empty(w.t, d.Progress.Problem, what)
	assert.Equal(w.t, d.Outcome == stack.WentLive, d.Error == "", what)
	assert.Equal(w.t, d.Outcome == stack.WentLive, now.Generation.Attempt == d.Attempt && !now.DeployedAt.IsZero(), what)
	if d.Outcome == stack.RolledBack {
		assert.Equal(w.t, now.DeployError, d.Error, what)
	}
}

// keepsOnlyData requires that nothing but the data is left of a service that a redeploy
// dropped.
func (w *world) keepsOnlyData(now *stack.Stack, dropped *stack.Spec, what string) {
	w.t.Helper()
	if now.Status == stack.Live {
		assert.Equal(w.t, 404, w.ask(now, dropped.Name), what)
	}
	if !dropped.IsStatic() {
		assert.NotNil(w.t, w.engine.Volume(engine.Key{Stack: now.ID, Service: dropped.Name}.Data()), what)
	}
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
		key := engine.Key{Stack: st.ID, Generation: st.Generation.Number}
		want := shape{networks: []string{key.Network()}, service: stack.Running, answer: toProcess}
		for i := range st.Generation.Services {
			key.Service = st.Generation.Services[i].Spec.Name
			want.containers = append(want.containers, key.Process(st.Generation.Services[i].Replaced))
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
