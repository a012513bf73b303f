package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"github.com/berth-host/berth/images"
	"github.com/berth-host/berth/integration/cluster"
)

// three is a cluster of three real servers, each on a node of a lab.
type three struct {
	lab     *cluster.Lab
	env     map[string]string
	servers []*labServer
}

// labServer is the server of one node.
type labServer struct {
	berth *berth // how it is called
	node  *cluster.Node
}

const (
	labData   = "/var/lib/berth/bench" // on each node
	labKey    = labData + ".key"
	labPort   = 8080
	labWithin = 30 * time.Second // what a server takes to start
	wordTime  = 6 * time.Second  // until every node has heard of a change in Swarm
)

// withThree starts three servers as one cluster, and calls measure. It leaves nothing of the
// cluster behind.
func (b *bench) withThree(ctx context.Context, settings map[string]string, measure func(context.Context, *three) error) (err error) {
	progress("starting three nodes")
	c := &three{env: map[string]string{
		"BERTH_ADMIN_LISTEN":     "",
		"BERTH_BASE_URL":         fmt.Sprintf("http://localhost:%d", labPort),
		"BERTH_CLUSTER":          "swarm",
		"BERTH_CREATES_PER_HOUR": "100000",
		"BERTH_DATA_DIR":         labData,
		"BERTH_DATABASE_URL":     fmt.Sprintf("postgres://%s:%s@postgres:5432/postgres?sslmode=disable", cluster.PostgresUser, cluster.PostgresPassword),
		"BERTH_KEY_FILE":         labKey,
		"BERTH_LISTEN":           fmt.Sprintf(":%d", labPort),
		"BERTH_REDIS_URL":        "redis://valkey:6379/1",
		"BERTH_REGISTRY":         "http://registry:5000/bench",
		"BERTH_UNCLAIMED_PER_IP": "1000",
	}}
	for name, value := range settings {
		c.env[name] = value
	}
	if c.lab, err = b.startLab(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.lab.Close()) }()
	for _, n := range c.lab.Nodes {
		if err := b.serveOn(ctx, c, n); err != nil {
			return err
		}
	}
	for _, s := range c.servers {
		if err := s.awaitStart(ctx); err != nil {
			return err
		}
	}
	return measure(ctx, c)
}

func (b *bench) startLab(ctx context.Context) (*cluster.Lab, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	base, err := images.Lookup("node", "22")
	if err != nil {
		return nil, err
	}
	return cluster.Start(ctx, cluster.Options{
		Checkout: root,
		EnvFile:  os.Getenv("BERTH_BUILD_ENV_FILE"),
		CAFile:   os.Getenv("BERTH_BUILD_CA_FILE"),
		Binaries: []string{filepath.Join(b.bin, "berthd")},
		// Debian alone runs the programs that are measured here.
		Bases: []cluster.Base{{Image: images.Debian, Name: base.Ref()}},
	})
}

// serveOn starts the server of a node.
func (b *bench) serveOn(ctx context.Context, c *three, n *cluster.Node) error {
	_, err := n.Machine.Run(ctx, strings.Repeat("k", 32), "sh", "-c", `mkdir -p "$(dirname "$0")" && umask 077 && cat >"$0"`, labKey)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(b.dir, n.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := n.Begin(ctx, c.env, log, "berthd"); err != nil {
		return err
	}
	c.servers = append(c.servers, &labServer{&berth{target: &target{name: n.Name, addr: n.AddressOf(labPort).String()}}, n})
	return nil
}

// awaitStart waits until the server serves.
func (s *labServer) awaitStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, labWithin)
	defer cancel()
	_, err := poll(ctx, "http://"+s.berth.target.addr+"/healthz", s.berth.target.addr)
	return err
}

// command runs a command of berthd on the node and returns its output.
func (c *three) command(ctx context.Context, s *labServer, args ...string) (string, error) {
	var out bytes.Buffer
	p, err := s.node.Begin(ctx, c.env, &out, "berthd", args...)
	if err != nil {
		return "", err
	}
	code, err := p.Wait(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("berthd %q on %s: %s", args, s.node.Name, out.String())
	}
	return out.String(), err
}

// state returns what a server says of the state of another.
func (c *three) state(ctx context.Context, s, of *labServer) (string, error) {
	text, err := c.command(ctx, s, "nodes", "--json")
	if err != nil {
		return "", err
	}
	var all []struct{ Name, State string }
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return "", err
	}
	for _, n := range all {
		if n.Name == of.node.Name {
			return n.State, nil
		}
	}
	return "", fmt.Errorf("%s does not know %s: %s", s.node.Name, of.node.Name, text)
}

// placeOn makes new stacks come to some nodes only.
func (c *three) placeOn(ctx context.Context, servers ...*labServer) error {
	manager := c.lab.Nodes[0].Engine
	for _, s := range c.servers {
		info, err := s.node.Engine.Info(ctx)
		if err != nil {
			return err
		}
		n, _, err := manager.NodeInspectWithRaw(ctx, info.Swarm.NodeID)
		if err != nil {
			return err
		}
		n.Spec.Labels = map[string]string{}
		if !slices.Contains(servers, s) {
			n.Spec.Labels["berth.place"] = "no"
		}
		n.Spec.Availability = swarm.NodeAvailabilityActive
		if err := manager.NodeUpdate(ctx, n.ID, n.Version, n.Spec); err != nil {
			return err
		}
	}
	return pause(ctx, wordTime)
}

// awaitPushed waits until the registry has so many tags of a stack.
func (c *three) awaitPushed(ctx context.Context, made deployed, tags int) error {
	url := fmt.Sprintf("http://%s:5000/v2/bench/stacks/%s/tags/list", c.lab.Registry.Address, strings.TrimPrefix(made.ID, "stk_"))
	for {
		has, err := countTags(ctx, url)
		if err != nil || has >= tags {
			return err
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("the registry has %d of %d tags of %s: %w", has, tags, made.ID, err)
		}
	}
}

func countTags(ctx context.Context, url string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	answer, err := direct.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	var list struct{ Tags []string }
	err = json.NewDecoder(answer.Body).Decode(&list)
	return len(list.Tags), err
}
