// Package cluster runs a small cluster on this machine's Docker engine, for tests and
// benchmarks of many nodes: three engines in containers, joined to one swarm, with a
// PostgreSQL, a Valkey and a registry that they share. Its network has no way out, so
// what runs there can install nothing.
//
// A test kills, freezes and cuts off the machines of a lab, and runs berthd on its nodes.
// Its own way to the nodes is never cut off.
//
// Code in this package calls the engine of this machine, and runs what it likes in the
// containers that it makes there. All it makes carries a label with the process that made
// it: the next Start removes what a process left that has ended.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"golang.org/x/sync/errgroup"
)

const (
	// labelRun is on every object of a lab: the id of the process that made it.
	labelRun = "berth.lab"

	// prefix begins the names of a lab's objects and of its folder; the id of the process
	// follows.
	prefix = "berth-lab-"
)

// Options are what a lab is made from.
type Options struct {
	Checkout string   // folder of this repository
	EnvFile  string   // BERTH_BUILD_ENV_FILE, for the images; "" for none
	CAFile   string   // BERTH_BUILD_CA_FILE; "" for none
	Binaries []string // files that the nodes have in /opt/berth
	Bases    []Base   // images that the nodes' engines have
}

// Base is an image of this machine's engine that the nodes' engines have under another
// name.
type Base struct{ Image, Name string }

// Lab is a running cluster.
type Lab struct {
	Nodes    []*Node // the first one is the swarm's manager
	Postgres *Machine
	Valkey   *Machine
	Registry *Machine

	docker  *client.Client
	dir     string
	network string // its id
	subnet  netip.Prefix
	began   time.Time // the part of the start that is under way

	Figures []Figure // of the start
}

// Figure is how long a part of the start took.
type Figure struct {
	Part string
	Took time.Duration
}

// NodeNames are the names of a lab's nodes.
var NodeNames = []string{"m1", "w1", "w2"}

// The last part of each machine's address.
const (
	gatewayHost  = 1 // this machine, as the others reach it
	firstNode    = 11
	registryHost = 20
	postgresHost = 21
	valkeyHost   = 22
)

// Start runs a lab. It builds the images if this engine does not have them. Close removes
// the lab.
func Start(ctx context.Context, o Options) (*Lab, error) {
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, err
	}
	l := &Lab{docker: docker, began: time.Now()}
	if err := l.start(ctx, o); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Lab) start(ctx context.Context, o Options) error {
	if err := sweep(ctx, l.docker); err != nil {
		return fmt.Errorf("remove what an earlier lab left: %w", err)
	}
	if err := l.prepareFolder(o.Binaries); err != nil {
		return err
	}
	images, err := buildImages(ctx, l.docker, o)
	if err != nil {
		return err
	}
	l.measured("images")
	if err := l.makeNetwork(ctx); err != nil {
		return err
	}
	if err := l.makeMachines(ctx, images); err != nil {
		return err
	}
	l.measured("engines, PostgreSQL, Valkey and registry")
	if err := l.join(ctx); err != nil {
		return err
	}
	l.measured("swarm")
	if err := l.load(ctx, o.Bases); err != nil {
		return err
	}
	l.measured("bases")
	return nil
}

// measured notes how long the last part of the start took.
func (l *Lab) measured(part string) {
	l.Figures = append(l.Figures, Figure{part, time.Since(l.began)})
	l.began = time.Now()
}

// Close removes the lab with all that it made but the images.
func (l *Lab) Close() error {
	for _, n := range l.Nodes {
		n.close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := remove(ctx, l.docker, strconv.Itoa(os.Getpid()))
	if l.dir != "" {
		err = errors.Join(err, os.RemoveAll(l.dir))
	}
	return errors.Join(err, l.docker.Close())
}

// Node returns the node with a name.
func (l *Lab) Node(name string) *Node {
	i := slices.IndexFunc(l.Nodes, func(n *Node) bool { return n.Name == name })
	return l.Nodes[i]
}

// Machines returns every machine of the lab.
func (l *Lab) Machines() []*Machine {
	all := []*Machine{l.Registry, l.Postgres, l.Valkey}
	for _, n := range l.Nodes {
		all = append(all, n.Machine)
	}
	return all
}

// prepareFolder makes the folder that the nodes share with this process.
func (l *Lab) prepareFolder(binaries []string) error {
	dir, err := os.MkdirTemp("", prefix+strconv.Itoa(os.Getpid())+"-") // short: the paths of sockets are bounded
	if err != nil {
		return err
	}
	l.dir = dir
	if err := os.Mkdir(l.binaries(), 0o755); err != nil {
		return err
	}
	for _, path := range binaries {
		if err := os.Link(path, filepath.Join(l.binaries(), filepath.Base(path))); err != nil {
			return err
		}
	}
	return nil
}

// binaries is the folder that the nodes have as /opt/berth.
func (l *Lab) binaries() string { return filepath.Join(l.dir, "bin") }

// makeNetwork makes the lab's network in the first range that is free on this machine.
func (l *Lab) makeNetwork(ctx context.Context) error {
	var lastErr error
	for third := range 64 {
		l.subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 99, byte(third), 0}), 24)
		made, err := l.docker.NetworkCreate(ctx, prefix+strconv.Itoa(os.Getpid()), network.CreateOptions{
			Driver:   "bridge",
			Internal: true,
			Labels:   l.labels(),
			IPAM:     &network.IPAM{Config: []network.IPAMConfig{{Subnet: l.subnet.String()}}},
		})
		if err == nil {
			l.network = made.ID
			return nil
		}
		lastErr = err
	}
	return fmt.Errorf("no range below 10.99.0.0/18 is free for a network: %w", lastErr)
}

func (l *Lab) labels() map[string]string {
	return map[string]string{labelRun: strconv.Itoa(os.Getpid())}
}

// address returns the address of a host on the lab's network.
func (l *Lab) address(host byte) netip.Addr {
	bytes := l.subnet.Addr().As4()
	bytes[3] = host
	return netip.AddrFrom4(bytes)
}

// makeMachines starts all machines at the same time and waits until they work.
func (l *Lab) makeMachines(ctx context.Context, images images) error {
	all, ctx := errgroup.WithContext(ctx)
	for i, name := range NodeNames {
		n := &Node{Name: name, lab: l}
		l.Nodes = append(l.Nodes, n)
		all.Go(func() error { return n.make(ctx, images.node, byte(firstNode+i)) })
	}
	for _, s := range services {
		all.Go(func() error {
			m, err := s.make(ctx, l, images.services)
			*s.place(l) = m
			return err
		})
	}
	return all.Wait()
}

// sweep removes the labs of processes that have ended.
func sweep(ctx context.Context, docker *client.Client) error {
	runs := map[string]bool{}
	of := filters.NewArgs(filters.Arg("label", labelRun))
	containers, err1 := docker.ContainerList(ctx, container.ListOptions{All: true, Filters: of})
	for _, c := range containers {
		runs[c.Labels[labelRun]] = true
	}
	networks, err2 := docker.NetworkList(ctx, network.ListOptions{Filters: of})
	for _, n := range networks {
		runs[n.Labels[labelRun]] = true
	}
	dirs, err3 := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	for _, dir := range dirs {
		run, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		runs[run] = true
		if hasEnded(run) {
			err3 = errors.Join(err3, os.RemoveAll(dir))
		}
	}
	errs := []error{err1, err2, err3}
	for run := range runs {
		if hasEnded(run) {
			errs = append(errs, remove(ctx, docker, run))
		}
	}
	return errors.Join(errs...)
}

// hasEnded reports whether the process with an id has ended.
func hasEnded(run string) bool {
	pid, err := strconv.Atoi(run)
	return err == nil && pid != os.Getpid() && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// remove removes the containers, volumes and network of a lab.
func remove(ctx context.Context, docker *client.Client, run string) error {
	of := filters.NewArgs(filters.Arg("label", labelRun+"="+run))
	containers, err := docker.ContainerList(ctx, container.ListOptions{All: true, Filters: of})
	errs := []error{err}
	var all errgroup.Group
	for _, c := range containers {
		all.Go(func() error {
			return docker.ContainerRemove(ctx, c.ID, container.RemoveOptions{Force: true, RemoveVolumes: true})
		})
	}
	errs = append(errs, all.Wait())
	networks, err := docker.NetworkList(ctx, network.ListOptions{Filters: of})
	errs = append(errs, err)
	for _, n := range networks {
		errs = append(errs, docker.NetworkRemove(ctx, n.ID))
	}
	return errors.Join(errs...)
}
