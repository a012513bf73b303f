package usage

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/berth-host/berth/internal/histogram"
	"github.com/berth-host/berth/internal/proxy"
)

// Point is what was measured of a service in one step.
type Point struct {
	At int64 // when the step began, in Unix seconds

	Traffic proxy.Counts

	CPU    time.Duration // of processors that was used
	Over   time.Duration // how long that was measured; 0 if it was not
	Memory *int64        // bytes in use, the most of all measurements; nil if there was none
	Data   *int64        // bytes of the data directory when it was last added up; nil if it was not
}

// Requests returns the number of requests.
func (p *Point) Requests() (n uint64) {
	for _, answers := range p.Traffic.Answers {
		n += answers
	}
	return n
}

// Cores returns how many processors were used on average, false if that was not measured.
func (p *Point) Cores() (float64, bool) {
	if p.Over <= 0 {
		return 0, false
	}
	return p.CPU.Seconds() / p.Over.Seconds(), true
}

// merge adds another point, which was measured later.
func (p *Point) merge(later *Point) {
	for i, n := range later.Traffic.Answers {
		p.Traffic.Answers[i] += n
	}
	p.Traffic.In += later.Traffic.In
	p.Traffic.Out += later.Traffic.Out
	p.Traffic.First.Merge(&later.Traffic.First)
	p.CPU += later.CPU
	p.Over += later.Over
	if p.Memory == nil || later.Memory != nil && *later.Memory > *p.Memory {
		p.Memory = later.Memory
	}
	if later.Data != nil {
		p.Data = later.Data
	}
}

// packTraffic returns the traffic in a short form: its numbers, and the histogram.
func packTraffic(c *proxy.Counts) []byte {
	var packed []byte
	for _, n := range c.Answers {
		packed = binary.AppendUvarint(packed, n)
	}
	packed = binary.AppendUvarint(packed, c.In)
	packed = binary.AppendUvarint(packed, c.Out)
	return append(packed, c.First.Pack()...)
}

// errTraffic is the error for what packTraffic did not return.
var errTraffic = errors.New("not the traffic of a step")

// unpackTraffic reads what packTraffic returned.
func unpackTraffic(packed []byte) (c proxy.Counts, err error) {
	for _, field := range []*uint64{
		&c.Answers[0], &c.Answers[1], &c.Answers[2], &c.Answers[3], &c.Answers[4], &c.Answers[5], &c.In, &c.Out,
	} {
		n, size := binary.Uvarint(packed)
		if size <= 0 {
			return c, errTraffic
		}
		*field, packed = n, packed[size:]
	}
	c.First, err = histogram.Unpack(packed)
	return c, err
}
