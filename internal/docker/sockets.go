package docker

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/engine"
)

// engineDNS is the address of the engine's resolver inside every container that is on a
// network of its own.
var engineDNS = netip.MustParseAddr("127.0.0.11")

// socketTables returns the host's tables of the TCP sockets in the network of a process
// that has an address. It finds none where it cannot see the engine's processes, as from
// within a container, in which the number is another process or none.
func socketTables(pid int, ip string) (string, bool) {
	folder := filepath.Join("/proc", strconv.Itoa(pid), "net")
	addresses, err := os.ReadFile(filepath.Join(folder, "fib_trie"))
	if err != nil || ip == "" || !strings.Contains(string(addresses), "-- "+ip+"\n") {
		return "", false
	}
	v4, err4 := readTable(filepath.Join(folder, "tcp"))
	v6, err6 := readTable(filepath.Join(folder, "tcp6"))
	return v4 + v6, err4 == nil && (err6 == nil || errors.Is(err6, fs.ErrNotExist))
}

// tableMax is how much of a table is read, in bytes. The sockets that listen come first,
// and there may be a million others.
const tableMax = 256 << 10

func readTable(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, tableMax))
	return string(text), err
}

// socketsAnswer is how long a container may take to show its sockets.
const socketsAnswer = 5 * time.Second

// Sockets implements engine.Driver.
func (d *Driver) Sockets(ctx context.Context, id string) ([]string, error) {
	found, err := d.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	table, ok := socketTables(found.State.Pid, address(ownNetworks(&found)))
	if !ok {
		if table, err = d.ownSocketTables(ctx, id); err != nil {
			return nil, err
		}
	}
	return listeners(table), nil
}

// ownSocketTables returns the tables that the container's kernel shows inside it. That of
// gVisor has none for IPv6.
func (d *Driver) ownSocketTables(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, socketsAnswer)
	defer cancel()
	table, _, err := engine.Answer(ctx, d, id, engine.Cmd{Args: []string{"cat", "/proc/net/tcp", "/proc/net/tcp6"}})
	return table, err
}

// listeners returns the addresses in the text of /proc/net/tcp and tcp6 on which a process
// listens, in the order of their ports.
func listeners(table string) []string {
	var found []netip.AddrPort
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		const local, state, listen = 1, 3, "0A"
		if len(fields) <= state || fields[state] != listen {
			continue
		}
		addr, ok := parseSocket(fields[local])
		if ok && addr.Addr() != engineDNS && !slices.Contains(found, addr) {
			found = append(found, addr)
		}
	}
	slices.SortFunc(found, func(a, b netip.AddrPort) int { return int(a.Port()) - int(b.Port()) })
	return each(found, netip.AddrPort.String)
}

// parseSocket parses an address as the kernel writes it: hexadecimal words of four bytes
// in the host's order, a colon, and the port.
func parseSocket(text string) (netip.AddrPort, bool) {
	host, service, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	number, err := strconv.ParseUint(service, 16, 16)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), ok && err == nil
}
