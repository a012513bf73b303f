package slowbody

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp/fasthttputil"
)

// A Read that waits ends, on every kind of connection that a body comes from, and so does each
// later one.
func TestAbort_EndsAReadThatWaits(t *testing.T) {
	t.Parallel()
	inMemory := fasthttputil.NewPipeConns()
	client, server := net.Pipe()
	for name, conns := range map[string][2]net.Conn{"in memory": {inMemory.Conn1(), inMemory.Conn2()}, "pipe": {client, server}} {
		r := NewReader(conns[0], conns[0].SetReadDeadline)
		go func() { _, _ = conns[1].Write([]byte("ab")) }()
		p := make([]byte, 2)
		n, err := r.Read(p)
		require.NoError(t, err)
		require.Equal(t, 2, n)
		time.AfterFunc(50*time.Millisecond, r.Abort)
		for range 2 {
			_, err = r.Read(p)
			require.True(t, Stalled(err), "%s: %v", name, err)
		}
	}
}

// However much has arrived, the next bytes may be waited for.
func TestRead_WaitsForABodyOfAnySize(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 1, 10e9, 10e12} {
		r := NewReader(strings.NewReader("more"), func(deadline time.Time) error {
			require.WithinDuration(t, time.Now().Add(Stall), deadline, 10*time.Second)
			return nil
		})
		r.read, r.waited = size, time.Second
		_, err := r.Read(make([]byte, 10))
		require.NoError(t, err)
	}
}

func TestRead_PassesABodyOn(t *testing.T) {
	t.Parallel()
	r := NewReader(strings.NewReader("a body"), func(time.Time) error { return nil })
	p := make([]byte, 10)
	n, err := r.Read(p)
	require.NoError(t, err)
	require.Equal(t, "a body", string(p[:n]))
}
