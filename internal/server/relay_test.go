package server

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeyed_TakesConnectionsWithTheKeyAlone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	k := newKeyed(l, "0123456789")
	dial := func(key string) net.Conn {
		conn, err := relayAddress{l.Addr().String(), key}.dial(context.Background())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	wrong, right := dial("0123456788"), dial("0123456789")
	_, err = io.WriteString(right, "hello")
	require.NoError(t, err)
	accepted, err := k.Accept()
	require.NoError(t, err)
	defer accepted.Close()
	got := make([]byte, 5)
	_, err = io.ReadFull(accepted, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))
	_, err = wrong.Read(got)
	require.Error(t, err, "a connection with a wrong key stays open")
	require.NoError(t, k.Close())
	_, err = k.Accept()
	require.True(t, errors.Is(err, net.ErrClosed))
}
