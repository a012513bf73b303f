package firewall

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// check runs Check on the host of a machine.
func (m *machine) check(bridges ...string) (inPlace bool, err error) {
	fault := m.in("host", func() error {
		f := New(Options{Log: slog.New(slog.DiscardHandler), Bridges: func(context.Context) ([]string, error) { return bridges, nil }})
		inPlace, err = f.Check(context.Background())
		return nil
	})
	require.NoError(m.t, fault)
	return inPlace, err
}

func TestCheck_ChangesNothingAndSaysWhetherTheRulesAreInPlace(t *testing.T) {
	m := newMachine(t)
	inPlace, err := m.check(bridgeA)
	require.NoError(t, err)
	assert.False(t, inPlace)
	assert.NotContains(t, m.rules("iptables-save"), "BERTH")
	require.NoError(t, m.apply(Options{}))
	inPlace, err = m.check(bridgeA)
	require.NoError(t, err)
	assert.True(t, inPlace)
	m.sh("host", "ip6tables -t mangle -F")
	inPlace, err = m.check(bridgeA)
	require.NoError(t, err)
	assert.False(t, inPlace)
}

func TestCheck_SaysWhyTheRulesCannotBeSet(t *testing.T) {
	m := newMachine(t)
	_, err := m.check("docker0")
	require.ErrorContains(t, err, "not on this machine")
	t.Setenv("PATH", t.TempDir())
	_, err = m.check(bridgeA)
	require.ErrorContains(t, err, "apt-get install iptables")
	t.Setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin") // for the cleaning
}
