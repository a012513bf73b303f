package peer_test

import (
	"os"
	"testing"

	"github.com/berth-host/berth/internal/edge/lanetest"
)

// TestMain runs the tests through both lanes of the public listeners.
func TestMain(m *testing.M) { os.Exit(lanetest.Run(m.Run)) }
