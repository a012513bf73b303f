package histogram

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuantile_IsNearTheTrueOne(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	all := make([]time.Duration, 10_000)
	for i := range all {
		all[i] = time.Duration(random.ExpFloat64() * float64(30*time.Millisecond))
		h.Add(all[i])
	}
	slices.Sort(all)
	for _, q := range []float64{0.5, 0.95, 0.99} {
		got, ok := h.Quantile(q)
		require.True(t, ok)
		require.InEpsilon(t, all[int(q*float64(len(all)))], got, 0.07, "%v", q)
	}
}

func TestQuantile_OfNothingIsNone(t *testing.T) {
	var h Histogram
	_, ok := h.Quantile(0.5)
	require.False(t, ok)
}

func TestMerge_IsAsIfAllWereCountedInOne(t *testing.T) {
	var one, two, both Histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Microsecond
		both.Add(d)
		if i%3 == 0 {
			one.Add(d)
		} else {
			two.Add(d)
		}
	}
	one.Merge(&two)
	require.Equal(t, both, one)
	require.EqualValues(t, 1000, one.Total())
}

func TestBucket_HoldsItsMiddleAndEveryDuration(t *testing.T) {
	for i := range Size {
		require.Equal(t, i, bucket(middle(i)), i)
	}
	require.Equal(t, 0, bucket(-time.Second))
	require.Equal(t, Size-1, bucket(1000*time.Hour))
}

func TestPack_IsShortAndComesBack(t *testing.T) {
	var h Histogram
	require.Empty(t, h.Pack())
	for range 300 {
		h.Add(5 * time.Millisecond)
		h.Add(time.Hour)
	}
	require.Less(t, len(h.Pack()), 12)
	back, err := Unpack(h.Pack())
	require.NoError(t, err)
	require.Equal(t, h, back)
	for _, wrong := range []string{"\xff", "\x01", "\xd0\x01\x01", "\xcf\x01\x01\x00\x01"} {
		_, err := Unpack([]byte(wrong))
		require.Error(t, err, "%x", wrong)
	}
}

func TestCounter_LosesNothingBetweenTakes(t *testing.T) {
	var c Counter
	var sum Histogram
	var adding sync.WaitGroup
	for range 4 {
		adding.Go(func() {
			for i := range 10_000 {
				c.Add(time.Duration(i) * time.Microsecond)
			}
		})
	}
	done := make(chan struct{})
	go func() { adding.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
		}
		taken := c.Take()
		sum.Merge(&taken)
	}
	require.EqualValues(t, 40_000, sum.Total())
}
