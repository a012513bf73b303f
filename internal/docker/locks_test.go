package docker

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestNamedLocks_AreSharedOrHadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks namedLocks
		first, err := locks.share(t.Context(), "n")
		require.NoError(t, err)
		second, err := locks.share(t.Context(), "n")
		require.NoError(t, err)
		another, err := locks.alone(t.Context(), "m")
		require.NoError(t, err)
		another()

		had := false
		go func() {
			alone, err := locks.alone(t.Context(), "n")
			if err != nil {
				t.Error(err)
				return
			}
			had = true
			alone()
		}()
		synctest.Wait()
		first()
		synctest.Wait()
		require.False(t, had, "somebody shares it still")
		second()
		synctest.Wait()
		require.True(t, had)
		require.Empty(t, locks.locks, "nobody holds one")
	})
}

func TestNamedLocks_AreWaitedForUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks namedLocks
		done, err := locks.alone(t.Context(), "n")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = locks.share(ctx, "n")
		require.ErrorIs(t, err, context.Canceled)
		done()
		again, err := locks.share(ctx, "n")
		require.NoError(t, err, "there is nothing to wait for")
		again()
		require.Empty(t, locks.locks)
	})
}
