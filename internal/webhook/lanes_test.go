package webhook

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// gate holds jobs until they are let go.
type gate struct {
	mu      sync.Mutex
	running map[string]int // now, by stack
	most    map[string]int
	started []string // "stack event"
	release map[string]chan struct{}
}

func newGate() *gate {
	return &gate{running: map[string]int{}, most: map[string]int{}, release: map[string]chan struct{}{}}
}

// run holds up the jobs of the stacks for which hold was called.
func (g *gate) run(j job) {
	g.mu.Lock()
	g.running[j.stack]++
	g.most[j.stack] = max(g.most[j.stack], g.running[j.stack])
	g.started = append(g.started, fmt.Sprint(j.stack, " ", j.event))
	wait := g.release[j.stack]
	g.mu.Unlock()
	if wait != nil {
		<-wait
	}
	g.mu.Lock()
	g.running[j.stack]--
	g.mu.Unlock()
}

func (g *gate) hold(stack string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release[stack] = make(chan struct{})
}

func (g *gate) letGo(stack string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.release[stack])
	delete(g.release, stack)
}

func (g *gate) begun(stack string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.started {
		if s[:len(stack)] == stack && s[len(stack)] == ' ' {
			n++
		}
	}
	return n
}

func TestLanes_RunAsManyOfOneStackAsALaneTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLanes(bounds{all: 10, spare: 2, lane: 3}, g.run)
		g.hold("a")
		for n := range 20 {
			l.addJob(job{stack: "a", event: int64(n)}, false)
		}
		synctest.Wait()
		if n := g.begun("a"); n != 3 {
			t.Errorf("%d began, want 3", n)
		}
		g.letGo("a")
		synctest.Wait()
		if g.begun("a") != 20 || g.most["a"] != 3 || len(l.by) != 0 {
			t.Errorf("%d of 20 were run, %d at the same time; %d lanes are left", g.begun("a"), g.most["a"], len(l.by))
		}
		l.close()
	})
}

func TestLanes_HangingOnesLeaveRoomForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLanes(bounds{all: 200, spare: 60, lane: 8}, g.run)
		var hanging []string
		for i := range 50 {
			stack := fmt.Sprintf("hang%d", i)
			hanging = append(hanging, stack)
			g.hold(stack)
			for n := range 30 {
				l.addJob(job{stack: stack, event: int64(n)}, false)
			}
		}
		synctest.Wait()
		total := 0
		for _, stack := range hanging {
			if n := g.begun(stack); n == 0 || n > 8 {
				t.Errorf("%s has %d under way", stack, n)
			}
			total += g.begun(stack)
		}
		if total != 140+32 { // the places that are not spare go to 18 of them
			t.Errorf("%d are under way, want 172", total)
		}
		for n := range 100 {
			l.addJob(job{stack: "quick", event: int64(n)}, false)
		}
		synctest.Wait()
		if n := g.begun("quick"); n != 100 {
			t.Errorf("%d of 100 of the stack that does not hang were run", n)
		}
		for _, stack := range hanging {
			g.letGo(stack)
		}
		l.close()
	})
}

func TestLanes_TakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLanes(bounds{all: 1, spare: 0, lane: 5}, g.run)
		g.hold("first")
		l.addJob(job{stack: "first"}, false)
		synctest.Wait()
		for n := range 2 {
			for _, stack := range []string{"a", "b"} {
				l.addJob(job{stack: stack, event: int64(n)}, false)
			}
		}
		l.addJob(job{stack: "b", event: 9}, true)
		g.letGo("first")
		synctest.Wait()
		want := []string{"first 0", "a 0", "b 9", "a 1", "b 0", "b 1"}
		if !slices.Equal(g.started, want) {
			t.Errorf("order %v, want %v", g.started, want)
		}
		l.close()
	})
}

func TestLanes_CloseWaitsForWhatIsUnderWayAndDropsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		l := newLanes(bounds{all: 2, spare: 0, lane: 2}, g.run)
		g.hold("a")
		for n := range 5 {
			l.addJob(job{stack: "a", event: int64(n)}, false)
		}
		closed := make(chan struct{})
		go func() { defer close(closed); l.close() }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while two are under way")
		default:
		}
		g.letGo("a")
		<-closed
		l.addJob(job{stack: "b"}, false)
		synctest.Wait()
		if g.begun("a") != 2 || g.begun("b") != 0 {
			t.Errorf("%d and %d were run, want 2 and 0", g.begun("a"), g.begun("b"))
		}
	})
}

func TestLedger_BoundsWhatIsPending(t *testing.T) {
	l := newLedger(5, 3)
	begun := map[string]int{}
	for _, stack := range []string{"a", "a", "a", "a", "b", "b", "b", "c"} {
		if l.beginDelivery(stack) {
			begun[stack]++
		}
	}
	if begun["a"] != 3 || begun["b"] != 2 || begun["c"] != 0 {
		t.Errorf("begun %v, want 3 of a, the bound of a stack, and 2 of b, the bound of all", begun)
	}
	if l.endDelivery("a", false) || !l.beginDelivery("c") || l.beginDelivery("c") {
		t.Error("one that ended makes room for one")
	}
}

func TestLedger_TellsWhenNothingOfADeletedStackIsPending(t *testing.T) {
	l := newLedger(10, 10)
	for range 3 {
		l.beginDelivery("a")
	}
	if l.endDelivery("a", false) || l.endDelivery("a", true) || !l.endDelivery("a", false) {
		t.Error("it is gone with the last that ends, whichever that is")
	}
	if l.beginDelivery("a"); l.endDelivery("a", false) {
		t.Error("a stack that was not deleted is gone")
	}
}
