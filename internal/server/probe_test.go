package server

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/internal/docker"
)

func TestProbe_NamesWhatAStackReaches(t *testing.T) {
	e, err := docker.Open(t.Context(), docker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil && os.Getenv("BERTH_REQUIRE_ENGINE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	driver := docker.NewDriver(e, docker.Info{}, docker.DriverOptions{Instance: strings.ToLower(rand.Text()), Pool: netip.MustParsePrefix("10.215.77.0/27")})
	if there, err := driver.HasImage(t.Context(), images.Debian); err != nil || !there {
		t.Skip("the engine does not have ", images.Debian)
	}
	require.NoError(t, probe(t.Context(), driver, images.Debian, []netip.AddrPort{netip.MustParseAddrPort("10.215.77.13:5000")}))
	there, err := driver.Inventory(context.WithoutCancel(t.Context()), "")
	require.NoError(t, err)
	require.Empty(t, there)

	listener, err := net.Listen("tcp", "0.0.0.0:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	own, err := netip.ParsePrefix(addressOf(t, "docker0"))
	require.NoError(t, err)
	reachable := netip.AddrPortFrom(own.Addr(), port)
	err = probe(t.Context(), driver, images.Debian, []netip.AddrPort{netip.MustParseAddrPort("10.215.77.13:5000"), reachable})
	if err == nil {
		t.Skip("the firewall of a server on this machine keeps stacks from it")
	}
	require.ErrorContains(t, err, "a stack's container reaches "+reachable.String())
	require.NotContains(t, err.Error(), "\n")
}

func TestTryShut_RefusesAStartWithoutRules(t *testing.T) {
	unset, reached := errors.New("no iptables"), errors.New("a stack's container reaches 10.0.0.9:5432")
	for name, tt := range map[string]struct {
		unset, tried error
		unguarded    bool
		want         string
	}{
		"rules hold":            {},
		"rules do not hold":     {tried: reached, want: reached.Error()},
		"no rules":              {unset: unset, tried: reached, want: reached.Error() + "; the rules could not be set: no iptables"},
		"none, but not reached": {unset: unset},
		"none are wanted":       {unset: unset, tried: reached, unguarded: true},
		"not needed, but set":   {tried: reached, unguarded: true, want: reached.Error()},
	} {
		s := &Server{cfg: Config{AllowUnguarded: tt.unguarded}, log: slog.New(slog.DiscardHandler)}
		if err := s.tryShut(tt.unset, func() error { return tt.tried }); tt.want == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, tt.want, name)
		}
	}
}

// addressOf returns the first address of an interface.
func addressOf(t *testing.T, name string) string {
	t.Helper()
	found, err := net.InterfaceByName(name)
	if err != nil {
		t.Skip(err)
	}
	all, err := found.Addrs()
	require.NoError(t, err)
	require.NotEmpty(t, all)
	return all[0].String()
}
