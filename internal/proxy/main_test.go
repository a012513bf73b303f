package proxy_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/berth-host/berth/internal/edge/lanetest"
)

// TestMain fails when a test leaves a goroutine behind: of an upload, a tunnel
// or a watch over a client.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(bothLanes{m}, goleak.Cleanup(os.Exit))
}

// bothLanes are tests that are run through both lanes.
type bothLanes struct{ tests *testing.M }

func (b bothLanes) Run() int { return lanetest.Run(b.tests.Run) }
