package docker

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// hundred is a disk with 100 bytes of room.
func hundred() (int64, error) { return 100, nil }

func TestPromises_AreOfWhatIsNotPromisedYet(t *testing.T) {
	var p promises
	first, err := p.promise(60, hundred)
	require.NoError(t, err)
	_, err = p.promise(41, hundred)
	require.Equal(t, &engine.NoRoomError{Need: 41, Room: 40}, err)
	second, err := p.promise(40, hundred)
	require.NoError(t, err, "it is just enough")
	first()
	_, err = p.promise(61, hundred)
	require.Equal(t, &engine.NoRoomError{Need: 61, Room: 60}, err)
	second()
	require.Zero(t, p.bytes)
}

func TestPromises_TakeNothingIfTheDiskCannotBeAsked(t *testing.T) {
	var p promises
	broken := errors.New("the disk is broken")
	_, err := p.promise(1, func() (int64, error) { return 100, broken })
	require.ErrorIs(t, err, broken)
	require.Zero(t, p.bytes)
}

func TestPromises_ManyAtOnceNeverExceedWhatIsFree(t *testing.T) {
	var p promises
	var made atomic.Int64
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := p.promise(30, hundred); err == nil {
				made.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 3, made.Load())
}
