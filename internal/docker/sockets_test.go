package docker

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// table is /proc/net/tcp and tcp6 of a container on a little-endian machine.
const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0B00007F:9C41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 21 1 0 100 0 0 10 0
   1: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 22 1 0 100 0 0 10 0
   2: 0201D50A:1F90 0101D50A:C350 01 00000000:00000000 00:00000000 00000000  1000        0 23 1 0 100 0 0 10 0
  sl  local_address                         remote_address                        st tx_queue rx_queue
   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000
`

func TestListeners_AreThoseOfTheProcessByPort(t *testing.T) {
	want := []string{"[::1]:22", "127.0.0.1:3000", "[::]:8080"}
	if got := listeners(table); !slices.Equal(got, want) {
		t.Errorf("listeners = %v, want %v", got, want)
	}
}

func TestListeners_OfNonsenseAreNone(t *testing.T) {
	for _, text := range []string{"", "garbage", "0: zz:zz x 0A", "0: 01:1F90 x 0A", "0: 0100007F x 0A"} {
		if got := listeners(text); len(got) != 0 {
			t.Errorf("listeners(%q) = %v", text, got)
		}
	}
}

func TestSocketTables_AreThoseOfTheContainersNetworkAndOfNoOther(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	table, ok := socketTables(os.Getpid(), "127.0.0.1")
	if !ok || !slices.Contains(listeners(table), ln.Addr().String()) {
		t.Errorf("%s is not among %v", ln.Addr(), listeners(table))
	}
	for ip, pid := range map[string]int{"192.0.2.1": os.Getpid(), "": os.Getpid(), "127.0.0.1": 0} {
		if table, ok := socketTables(pid, ip); ok {
			t.Errorf("the tables of process %d at %q are %q", pid, ip, table)
		}
	}
}

func TestNthSubnet_CutsThePoolIntoPiecesThatDoNotOverlap(t *testing.T) {
	pool := netip.MustParsePrefix("10.213.0.0/16")
	for n, want := range map[int]string{0: "10.213.0.0/28", 1: "10.213.0.16/28", 16: "10.213.1.0/28", 4095: "10.213.255.240/28"} {
		if got := nthSubnet(pool, subnetBits, n); got.String() != want {
			t.Errorf("subnet %d = %s, want %s", n, got, want)
		}
	}
}

// A process may open as many sockets as it likes.
func TestSocketTables_AreReadWithABound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tcp")
	if err := os.WriteFile(name, make([]byte, 4*tableMax), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := readTable(name); err != nil || len(text) != tableMax {
		t.Errorf("of a large table %d bytes are read, %v; want %d", len(text), err, tableMax)
	}
}
