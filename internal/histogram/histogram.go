// Package histogram counts durations in buckets that are the same everywhere, so that the
// counts of two times, or of two nodes, add up to those of both. A quantile is within 7% of
// the true one. The package touches nothing.
package histogram

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sync/atomic"
	"time"
)

// Durations are counted in microseconds. Up to linear there is a bucket for each; above, each
// power of two has parts buckets of equal width.
const (
	linear    = 16
	linearLog = 4 // of linear
	parts     = 8
	partsLog  = 3  // of parts
	powers    = 24 // from linear up to 268 s, which count as the last bucket too

	// Size is the number of buckets.
	Size = linear + powers*parts
)

// Histogram has the count of each bucket.
type Histogram [Size]uint64

// bucket returns the bucket of a duration.
func bucket(d time.Duration) int {
	micros := uint64(max(d, 0) / time.Microsecond)
	if micros < linear {
		return int(micros)
	}
	power := bits.Len64(micros) - 1
	part := int(micros>>(power-partsLog)) % parts
	return min(linear+(power-linearLog)*parts+part, Size-1)
}

// middle returns the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < linear {
		return time.Duration(bucket)*time.Microsecond + time.Microsecond/2
	}
	power := (bucket-linear)/parts + linearLog
	width := time.Microsecond << (power - partsLog)
	return time.Duration(parts+(bucket-linear)%parts)*width + width/2
}

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) { h[bucket(d)]++ }

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// Total returns how many durations were counted.
func (h *Histogram) Total() (total uint64) {
	for _, n := range h {
		total += n
	}
	return total
}

// Quantile returns the duration that a share q of the counted ones does not exceed, and false
// if none were counted.
func (h *Histogram) Quantile(q float64) (time.Duration, bool) {
	total := h.Total()
	if total == 0 {
		return 0, false
	}
	rank := min(uint64(q*float64(total)), total-1)
	for i, n := range h {
		if rank < n {
			return middle(i), true
		}
		rank -= n
	}
	return 0, false
}

// Pack returns the histogram in a short form: for each bucket that is not empty, the number
// of empty ones before it, and its count.
func (h *Histogram) Pack() (packed []byte) {
	next := 0
	for i, n := range h {
		if n == 0 {
			continue
		}
		packed = binary.AppendUvarint(packed, uint64(i-next))
		packed = binary.AppendUvarint(packed, n)
		next = i + 1
	}
	return packed
}

// errPacked is the error for what Pack did not return.
var errPacked = errors.New("not a packed histogram")

// Unpack reads what Pack returned.
func Unpack(packed []byte) (h Histogram, err error) {
	for at := uint64(0); len(packed) > 0; at++ {
		skipped, n := binary.Uvarint(packed)
		if n <= 0 || skipped >= Size {
			return h, errPacked
		}
		count, m := binary.Uvarint(packed[n:])
		if at += skipped; m <= 0 || at >= Size {
			return h, errPacked
		}
		h[at], packed = count, packed[n+m:]
	}
	return h, nil
}

// Counter is a histogram that many goroutines count in, without a lock. Its zero value is
// empty.
type Counter struct{ counts [Size]atomic.Uint64 }

// Add counts a duration.
func (c *Counter) Add(d time.Duration) { c.counts[bucket(d)].Add(1) }

// Take returns what was counted since the last call.
func (c *Counter) Take() (h Histogram) {
	for i := range c.counts {
		if c.counts[i].Load() != 0 {
			h[i] = c.counts[i].Swap(0)
		}
	}
	return h
}
