package docker

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNamedLocks_AreSharedOrHadAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks namedLocks
		ends := make(chan struct{})
		for range 2 {
			go func() { assert.NoError(t, locks.share(t.Context(), "n", func() error { <-ends; return nil })) }()
		}
		synctest.Wait()
		require.NoError(t, locks.alone(t.Context(), "m", func() error { return nil }))

		had := false
		go func() { assert.NoError(t, locks.alone(t.Context(), "n", func() error { had = true; return nil })) }()
		synctest.Wait()
		ends <- struct{}{}
		synctest.Wait()
		require.False(t, had, "somebody shares it still")
		ends <- struct{}{}
		synctest.Wait()
		require.True(t, had)
		require.Empty(t, locks.locks, "nobody holds one")
	})
}

func TestNamedLocks_AreWaitedForUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locks namedLocks
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		nothing := func() error { return nil }
		require.NoError(t, locks.alone(t.Context(), "n", func() error {
			require.ErrorIs(t, locks.share(ctx, "n", nothing), context.Canceled)
			return nil
		}))
		require.NoError(t, locks.share(ctx, "n", nothing), "there is nothing to wait for")
		require.Empty(t, locks.locks)
	})
}
