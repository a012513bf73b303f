package proxy

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTable_FindsWhatAMapDoes(t *testing.T) {
	var table table
	require.Nil(t, table.load("host"))
	want, records := map[string]*record{}, []*record{{}, {}, {}}
	dice := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		host, r := fmt.Sprint("host", dice.IntN(2000)), records[dice.IntN(len(records))]
		if dice.IntN(2) == 0 {
			table.store(host, r)
			want[host] = r
		} else if table.slots.Load() != nil {
			if table.remove(host, r); want[host] == r {
				delete(want, host)
			}
		}
	}
	for n := range 2000 {
		host := fmt.Sprint("host", n)
		require.Same(t, want[host], table.load(host), host)
	}
	require.LessOrEqual(t, 2*table.taken, len(*table.slots.Load()))
}

// Hosts that come and go leave nothing behind.
func TestTable_DoesNotGrowByHostsThatHaveGone(t *testing.T) {
	var table table
	r := &record{}
	for n := range 100_000 {
		host := fmt.Sprint("host", n)
		table.store(host, r)
		table.remove(host, r)
	}
	require.Len(t, *table.slots.Load(), fewest)
}

func TestTable_IsReadWhileItIsWritten(t *testing.T) {
	var table table
	stays, goes := &record{}, &record{}
	table.store("stays", stays)
	var readers sync.WaitGroup
	ended := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if table.load("stays") != stays {
					t.Error("a host that stays is not found")
					return
				}
				if found := table.load("goes"); found != nil && found != goes {
					t.Error("a host leads elsewhere")
					return
				}
			}
		})
	}
	for n := range 20_000 {
		table.store("goes", goes)
		table.store(fmt.Sprint("host", n), goes)
		table.remove("goes", goes)
	}
	close(ended)
	readers.Wait()
}
