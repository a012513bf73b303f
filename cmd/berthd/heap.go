package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

// How much the heap grows between two collections. It is usually small compared to the
// rate at which requests fill it, and collecting less often saves a tenth of the
// proxy's processor time. A large heap, for example while many uploads are unpacked,
// must not grow to several times what is in use.
const (
	heapRoom    = 96 << 20 // bytes
	mostGrowth  = 400      // percent of what is in use, where that is less than heapRoom
	leastGrowth = 20       // percent, where that is more
)

// boundHeap keeps the growth of the heap within these limits from now on. It adjusts it
// after each collection.
func boundHeap() { setGrowth(100) } // what Go begins with

func setGrowth(percent int) {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	growth := int(min(mostGrowth, max(leastGrowth, heapRoom*100/max(1, live[0].Value.Uint64()))))
	if growth != percent {
		debug.SetGCPercent(growth)
	}
	runtime.AddCleanup(new(collected), setGrowth, growth)
}

// collected is an object that the next collection finds unused.
type collected struct{ _ *int }
