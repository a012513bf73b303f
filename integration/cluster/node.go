package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/swarm"
	"github.com/docker/docker/client"
	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/pause"
)

// Node is a machine with its own Docker engine.
type Node struct {
	Name    string
	Machine *Machine
	Engine  *client.Client

	lab     *Lab
	swarmID string // its id in the swarm, once a test has asked
}

// nodeMemory limits what a node uses with all that its engine runs.
const nodeMemory = 3 << 30

// capabilities are all but SYS_RESOURCE, BPF, PERFMON and CHECKPOINT_RESTORE: engines
// before 20.10 do not know them all, and a nested engine needs none of these.
var capabilities = []string{
	"AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER",
	"FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "MKNOD", "NET_ADMIN",
	"NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN",
	"SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_TIME",
	"SYS_TTY_CONFIG", "WAKE_ALARM",
}

// make starts the node and waits until its engine answers.
func (n *Node) make(ctx context.Context, image string, host byte) (err error) {
	shared := filepath.Join(n.lab.dir, n.Name)
	if err := os.Mkdir(shared, 0o755); err != nil {
		return err
	}
	n.Engine, err = client.NewClientWithOpts(client.WithHost("unix://"+filepath.Join(shared, "docker.sock")), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	initial := true
	n.Machine, err = n.lab.makeMachine(ctx, n.Name, host, &container.Config{
		Image: image,
		Cmd: []string{
			"--insecure-registry", "registry:5000", "--default-address-pool", "base=10.91.0.0/16,size=24",
		},
	}, &container.HostConfig{
		Init:          &initial,
		CapAdd:        capabilities,
		SecurityOpt:   []string{"seccomp=unconfined", "apparmor=unconfined"},
		MaskedPaths:   []string{},
		ReadonlyPaths: []string{},
		CgroupnsMode:  container.CgroupnsModeHost,
		Tmpfs:         map[string]string{"/run": ""}, // a power cut empties it
		Binds:         []string{"/sys/fs/cgroup:/sys/fs/cgroup", shared + ":/run/lab", n.lab.binaries() + ":/opt/berth:ro"},
		Resources:     container.Resources{Memory: nodeMemory, DeviceCgroupRules: []string{"a *:* rwm"}},
	})
	if err != nil {
		return err
	}
	n.Machine.works = n.engineAnswers
	return n.Machine.Start(ctx)
}

func (n *Node) engineAnswers(ctx context.Context) error {
	_, err := n.Engine.Info(ctx)
	return err
}

func (n *Node) close() {
	if n.Engine != nil {
		_ = n.Engine.Close()
	}
}

// join makes one swarm of the nodes, with the first one as its manager.
func (l *Lab) join(ctx context.Context) error {
	manager := l.Nodes[0]
	_, err := manager.Engine.SwarmInit(ctx, swarm.InitRequest{
		ListenAddr: "0.0.0.0:2377", AdvertiseAddr: manager.Machine.Address.String(),
		DefaultAddrPool: []string{"10.92.0.0/14"}, SubnetSize: 26,
	})
	if err != nil {
		return fmt.Errorf("make a swarm: %w", err)
	}
	made, err := manager.Engine.SwarmInspect(ctx)
	if err != nil {
		return err
	}
	all, each := errgroup.WithContext(ctx)
	for _, n := range l.Nodes[1:] {
		all.Go(func() error {
			return n.Engine.SwarmJoin(each, swarm.JoinRequest{
				ListenAddr: "0.0.0.0:2377", AdvertiseAddr: n.Machine.Address.String(),
				RemoteAddrs: []string{manager.Machine.Address.String() + ":2377"}, JoinToken: made.JoinTokens.Worker,
			})
		})
	}
	if err := all.Wait(); err != nil {
		return fmt.Errorf("join the swarm: %w", err)
	}
	return l.awaitSwarm(ctx)
}

// awaitSwarm waits until the manager sees every node ready.
func (l *Lab) awaitSwarm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		ready := 0
		nodes, err := l.Nodes[0].Engine.NodeList(ctx, swarm.NodeListOptions{})
		for _, n := range nodes {
			if n.Status.State == swarm.NodeStateReady {
				ready++
			}
		}
		if ready == len(l.Nodes) {
			return nil
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%d of %d nodes are ready in the swarm: %w", ready, len(l.Nodes), errors.Join(err, ctx.Err()))
		}
	}
}

// load gives every node's engine the base images.
func (l *Lab) load(ctx context.Context, bases []Base) error {
	for _, b := range bases {
		all, each := errgroup.WithContext(ctx)
		for _, n := range l.Nodes {
			all.Go(func() error { return n.load(each, b) })
		}
		if err := all.Wait(); err != nil {
			return fmt.Errorf("load %s: %w", b.Image, err)
		}
	}
	return nil
}

func (n *Node) load(ctx context.Context, b Base) error {
	saved, err := n.lab.docker.ImageSave(ctx, []string{b.Image})
	if err != nil {
		return err
	}
	defer saved.Close()
	loaded, err := n.Engine.ImageLoad(ctx, saved)
	if err != nil {
		return err
	}
	defer loaded.Body.Close()
	if _, err := io.Copy(io.Discard, loaded.Body); err != nil {
		return err
	}
	return n.Engine.ImageTag(ctx, b.Image, b.Name)
}

// Cut lets no packet through between the node and some machines, in either direction.
// Connections stay open and learn nothing. Without machines it cuts the node off from all
// others.
func (n *Node) Cut(ctx context.Context, from ...*Machine) error {
	if len(from) == 0 {
		from = n.lab.Machines()
	}
	var addresses []string
	for _, m := range from {
		if m != n.Machine {
			addresses = append(addresses, m.Address.String())
		}
	}
	_, err := n.Machine.Run(ctx, wall+"add element inet lab cut { "+strings.Join(addresses, ", ")+" }\n", "nft", "-f", "-")
	return err
}

// wall makes a set of addresses whose packets are dropped, unless there is one already.
// It touches neither the engine's rules nor those of berthd.
const wall = `add table inet lab
add set inet lab cut { type ipv4_addr; }
add chain inet lab in { type filter hook input priority -400; }
add chain inet lab out { type filter hook output priority -400; }
add chain inet lab through { type filter hook forward priority -400; }
flush chain inet lab in
flush chain inet lab out
flush chain inet lab through
add rule inet lab in ip saddr @cut drop
add rule inet lab out ip daddr @cut drop
add rule inet lab through ip saddr @cut drop
add rule inet lab through ip daddr @cut drop
`

// Heal ends every cut of the node.
func (n *Node) Heal(ctx context.Context) error {
	_, err := n.Machine.Run(ctx, "add table inet lab\ndelete table inet lab\n", "nft", "-f", "-")
	return err
}

// EndEngine ends the node's engine with a signal, as in "KILL", and keeps it down.
// StartEngine starts the next one.
func (n *Node) EndEngine(ctx context.Context, signal string) error {
	_, err := n.Machine.Run(ctx, "", "sh", "-c", `touch /run/engine-held
		engine=$(cat /run/docker.pid) && kill -`+signal+` $engine && while [ -e /proc/$engine ]; do sleep 0.02; done`)
	return err
}

// StartEngine lets the node's engine start again and waits until it answers.
func (n *Node) StartEngine(ctx context.Context) error {
	if _, err := n.Machine.Run(ctx, "", "rm", "-f", "/run/engine-held"); err != nil {
		return err
	}
	return n.Machine.Ready(ctx)
}

// RestartEngine ends the node's engine with a signal and starts it again.
func (n *Node) RestartEngine(ctx context.Context, signal string) error {
	if err := n.EndEngine(ctx, signal); err != nil {
		return err
	}
	return n.StartEngine(ctx)
}

// AddressOf returns the node's address with a port.
func (n *Node) AddressOf(port uint16) netip.AddrPort {
	return netip.AddrPortFrom(n.Machine.Address, port)
}
