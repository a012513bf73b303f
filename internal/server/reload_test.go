package server

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The server that a reload would replace goes on with its stacks while the engine is away.
func TestTakePlace_LeavesItToTheOtherServerWithoutAnEngine(t *testing.T) {
	errLeft := errors.New("left")
	for _, c := range []struct {
		back bool
		want string
	}{{false, "the Docker engine does not answer; reload again once it does"}, {true, "left"}} {
		s := &Server{cfg: Config{DataDir: t.TempDir()}, log: slog.New(slog.DiscardHandler)}
		s.place = &place{back: c.back, leave: func() (state, error) { return state{}, errLeft }}
		require.EqualError(t, s.takePlace(t.Context()), c.want)
	}
}

func TestReloads_AreRefusedInTheLogWhileOneIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		r := newReloads(Program{}, make(chan os.Signal, 1))
		accept := r.refuse(slog.New(slog.NewTextHandler(&text, nil)))
		for range 2 {
			r.asked <- syscall.SIGHUP
			synctest.Wait()
		}
		accept()
		accept()
		require.Equal(t, 2, strings.Count(text.String(), underWay))
		r.asked <- syscall.SIGHUP
		synctest.Wait()
		require.Len(t, r.asked, 1, "the next one is accepted")
	})
}
