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

// engineDNS is the address of the engine's own resolver inside every container
// on a network of its own.
var engineDNS = netip.MustParseAddr("127.0.0.11")

// socketTables are the host's tables of the TCP sockets in a container's network.
// There are none where the processes of the engine are not to be seen: from
// within a container, say, where the number is another process or nobody.
func socketTables(c Container) (string, bool) {
	folder := filepath.Join("/proc", strconv.Itoa(c.Pid), "net")
	addresses, err := os.ReadFile(filepath.Join(folder, "fib_trie"))
	if err != nil || c.IP == "" || !strings.Contains(string(addresses), "-- "+c.IP+"\n") {
		return "", false
	}
	v4, err4 := readTable(filepath.Join(folder, "tcp"))
	v6, err6 := readTable(filepath.Join(folder, "tcp6"))
	return v4 + v6, err4 == nil && (err6 == nil || errors.Is(err6, fs.ErrNotExist))
}

// tableMax is how much of a table is read, in bytes. The sockets that listen
// come first in it, and there may be a million others.
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

// Sockets is engine.Driver's.
func (d *Driver) Sockets(ctx context.Context, id string) ([]string, error) {
	c, err := d.engine.inspect(ctx, id)
	if err != nil {
		return nil, err
	}
	table, ok := socketTables(c)
	if !ok {
		if table, err = d.ownSocketTables(ctx, id); err != nil {
			return nil, err
		}
	}
	return listeners(table), nil
}

// ownSocketTables are the tables that the container's kernel shows inside it:
// gVisor's has none of IPv6.
func (d *Driver) ownSocketTables(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, socketsAnswer)
	defer cancel()
	table, _, err := engine.Answer(ctx, d, id, engine.Cmd{Args: []string{"cat", "/proc/net/tcp", "/proc/net/tcp6"}})
	return table, err
}

// listeners are the addresses in the text of /proc/net/tcp and tcp6 that a
// process listens on, in the order of their ports.
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
	text := make([]string, len(found))
	for i, addr := range found {
		text[i] = addr.String()
	}
	return text
}

// parseSocket reads an address as the kernel writes it: hexadecimal words of
// four bytes in the host's order, a colon, the port.
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
