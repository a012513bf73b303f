package exchange

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind: of an upload, a tunnel
// or a watch over a client.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
