package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

func TestParseRuntimes_TakesEveryNameOfARuntime(t *testing.T) {
	for name, want := range map[string]stack.Runtime{
		"redis": {Name: "valkey", Version: "8"}, "redis@8": {Name: "valkey", Version: "8"}, "valkey": {Name: "valkey", Version: "8"}, "node@22": {Name: "node", Version: "22"},
	} {
		got, err := parseRuntimes([]string{name})
		require.NoError(t, err)
		require.Equal(t, []stack.Runtime{want}, got, name)
	}
	for _, name := range []string{"static", "cobol"} {
		_, err := parseRuntimes([]string{name})
		require.ErrorContains(t, err, "there is no base image")
	}
}
