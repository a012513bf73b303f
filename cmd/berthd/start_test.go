package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A setting that cannot be read stops the start with a sentence, before anything is made.
func TestStart_StopsAtASwitchThatIsNeitherOnNorOff(t *testing.T) {
	for _, value := range []string{"true", "OFF", "1", "no"} {
		dir := t.TempDir()
		stdout, stderr, err := berthd(t, dir, "--fast-lane", value, "--listen", "127.0.0.1:0")
		require.Error(t, err, value)
		require.Empty(t, stdout)
		require.Contains(t, stderr, `--fast-lane="`+value+`": write on or off`)
		made, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, made)
	}
}
