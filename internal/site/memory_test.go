package site

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// many are n files of the same size.
func many(n, size int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("%d.png", i)] = strings.Repeat(string(rune('a'+i%26)), size)
	}
	return files
}

// inMemory opens a site with part of a memory.
func inMemory(t *testing.T, m *memory, max int64, files map[string]string) *Site {
	t.Helper()
	s, err := Open(folder(t, files), Options{})
	must(t, err)
	s.memory = m.share(max)
	t.Cleanup(func() { s.Close() })
	return s
}

// ask requests files by number and checks the answers.
func ask(t *testing.T, s *Site, files map[string]string, numbers ...int) {
	t.Helper()
	for _, i := range numbers {
		name := fmt.Sprintf("%d.png", i)
		if res := do(s, get("/"+name)); res.StatusCode != http.StatusOK || bodyOf(t, res) != files[name] {
			t.Errorf("%s gives other bytes", name)
		}
	}
}

func (s *Site) holds(i int) bool {
	return s.routes[fmt.Sprintf("%d.png", i)].file.plain.body.Load() != nil
}

func TestMemory_BoundsOneSite(t *testing.T) {
	files := many(50, 1000)
	m := &memory{max: 1 << 20}
	s := inMemory(t, m, 10*(1000+overhead), files)
	for i := range 50 {
		ask(t, s, files, i)
		if s.memory.used > s.memory.max || s.memory.own.Len() > 10 {
			t.Fatalf("%d bodies of %d bytes in memory", s.memory.own.Len(), s.memory.used)
		}
	}
	if s.memory.own.Len() != 10 {
		t.Errorf("%d bodies in memory, want 10", s.memory.own.Len())
	}
}

func TestMemory_KeepsWhatIsUsed(t *testing.T) {
	files := many(50, 1000)
	s := inMemory(t, &memory{max: 1 << 20}, 5*(1000+overhead), files)
	for i := 1; i < 50; i++ {
		ask(t, s, files, 0, i)
	}
	if !s.holds(0) || s.holds(1) {
		t.Error("the file in use was dropped, or one long out of use kept")
	}
}

func TestMemory_BoundsAllSites(t *testing.T) {
	files := many(20, 1000)
	m := &memory{max: 10 * (1000 + overhead)}
	one, two := inMemory(t, m, 1<<20, files), inMemory(t, m, 1<<20, files)
	for i := range 20 {
		ask(t, one, files, i)
	}
	for i := range 20 {
		ask(t, two, files, i)
	}
	if m.used > m.max || two.memory.own.Len() != 10 || one.memory.used != 0 {
		t.Errorf("%d bytes in use, %d and %d bodies", m.used, one.memory.own.Len(), two.memory.own.Len())
	}
}

func TestMemory_LeavesOutWhatWouldPushOutTheRest(t *testing.T) {
	files := many(2, 1000)
	s := inMemory(t, &memory{max: 1 << 20}, 3000, files)
	ask(t, s, files, 0, 0, 1)
	if s.memory.used != 0 {
		t.Errorf("%d bytes in use", s.memory.used)
	}
}

func TestMemory_ForgetsAClosedSite(t *testing.T) {
	files := many(5, 1000)
	m := &memory{max: 1 << 20}
	s := inMemory(t, m, 1<<20, files)
	ask(t, s, files, 0, 1, 2)
	s.memory.close()
	if m.used != 0 || m.all.Len() != 0 {
		t.Errorf("%d bytes in use", m.used)
	}
	ask(t, s, files, 0, 3)
	if m.used != 0 {
		t.Errorf("%d bytes in use after Close", m.used)
	}
}

func TestMemory_HoldsUnderManyAtATime(t *testing.T) {
	files := many(40, 500)
	m := &memory{max: 15 * (500 + overhead)}
	sites := []*Site{inMemory(t, m, 10*(500+overhead), files), inMemory(t, m, 10*(500+overhead), files)}
	var wait sync.WaitGroup
	for g := range 8 {
		wait.Go(func() {
			for i := range 200 {
				ask(t, sites[(g+i)%2], files, (i*(g+1))%40)
			}
		})
	}
	wait.Wait()
	if m.used > m.max || m.used != sites[0].memory.used+sites[1].memory.used {
		t.Errorf("%d bytes in use of %d and %d", m.used, sites[0].memory.used, sites[1].memory.used)
	}
}
