package server

import (
	"errors"
	"log/slog"
	"testing"

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
