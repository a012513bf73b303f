package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/berth-host/berth/integration/observe"
)

// calamity is a fault that goes on for some seconds. What concerns all nodes ignores the
// victim.
type calamity struct {
	name       string
	seconds    int // at most
	begin, end func(*chaos, *Host) error
}

var calamities = []calamity{
	{"node killed", 40, onNode((*Machine).Kill), onNode((*Machine).Restore)},
	{"node frozen", 40, onNode((*Machine).Pause), onNode((*Machine).Restore)},
	{"node cut off", 40, func(_ *chaos, h *Host) error { return h.node.Cut(context.Background()) }, heal},
	{"node cut off from PostgreSQL", 30, func(x *chaos, h *Host) error { return h.node.Cut(context.Background(), x.c.lab.Postgres) }, heal},
	{"node cut off from another", 20, func(x *chaos, h *Host) error { return h.node.Cut(context.Background(), x.c.after(h).node.Machine) }, heal},
	{"engine restarted", 8, func(_ *chaos, h *Host) error { return h.node.EndEngine(context.Background(), "KILL") }, func(_ *chaos, h *Host) error { return h.node.StartEngine(context.Background()) }},
	{"server killed", 3, signal("KILL"), nothing},
	{"server stopped", 8, signal("TERM"), awaitEnd},
	{"server frozen", 25, signal("STOP"), signal("CONT")},
	{"PostgreSQL killed", 15, onShared((*Lab).postgres, (*Machine).Kill), onShared((*Lab).postgres, (*Machine).Restore)},
	{"PostgreSQL frozen", 30, onShared((*Lab).postgres, (*Machine).Pause), onShared((*Lab).postgres, (*Machine).Restore)},
	{"Redis away", 15, onShared((*Lab).valkey, (*Machine).Kill), onShared((*Lab).valkey, (*Machine).Restore)},
	{"registry away", 15, onShared((*Lab).registry, (*Machine).Kill), onShared((*Lab).registry, (*Machine).Restore)},
	{"drain", 10, command("nodes", "drain"), command("nodes", "activate")},
}

func (l *Lab) postgres() *Machine { return l.Postgres }
func (l *Lab) valkey() *Machine   { return l.Valkey }
func (l *Lab) registry() *Machine { return l.Registry }

func nothing(*chaos, *Host) error { return nil }

// awaitEnd waits for the end of a server that was asked to end.
func awaitEnd(_ *chaos, h *Host) error {
	select {
	case <-h.process.Ended():
		return nil
	case <-time.After(patience):
		return fmt.Errorf("the server on %s does not end", h.node.Name)
	}
}

func heal(_ *chaos, h *Host) error { return h.node.Heal(context.Background()) }

func onNode(do func(*Machine, context.Context) error) func(*chaos, *Host) error {
	return func(_ *chaos, h *Host) error { return do(h.node.Machine, context.Background()) }
}

func onShared(which func(*Lab) *Machine, do func(*Machine, context.Context) error) func(*chaos, *Host) error {
	return func(x *chaos, _ *Host) error { return do(which(x.c.lab), context.Background()) }
}

// signal sends the server a signal, unless it has ended.
func signal(name string) func(*chaos, *Host) error {
	return func(_ *chaos, h *Host) error {
		if !h.process.Alive() {
			return nil
		}
		err := h.process.Signal(context.Background(), name)
		if err != nil && !h.process.Alive() {
			return nil // it has ended meanwhile
		}
		return err
	}
}

// command begins a command about the node on another one. endCommands looks how it ends.
func command(words ...string) func(*chaos, *Host) error {
	return func(x *chaos, h *Host) error {
		by, c := x.c.after(h), &running{words: append(words, h.node.Name), out: &observe.Record{}}
		var err error
		c.process, err = by.node.Begin(context.Background(), by.variables(), c.out, "berthd", c.words...)
		if err == nil {
			x.commands = append(x.commands, c)
		}
		return err
	}
}

// running is a command of berthd that runs.
type running struct {
	words   []string
	process *Process
	out     *observe.Record
}

// endCommands waits for the end of every command: it has done what it was to do, or says why
// it has not, unless its node was killed meanwhile.
func (x *chaos) endCommands(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, c := range x.commands {
		code, err := c.process.Wait(ctx)
		killed := errdefs.IsNotFound(err) || code == 137
		if text := c.out.String(); !killed && (err != nil || code != 0 && !strings.Contains(text, "berthd")) {
			t.Errorf("berthd %q ends with exit code %d, %v: %s", c.words, code, err, text)
		}
		x.count(fmt.Sprintf("command %s, exit code %d", strings.Join(c.words[:2], " "), code))
	}
	x.commands = nil
}

// after returns the next server.
func (c *Cluster) after(h *Host) *Host {
	for i, one := range c.hosts {
		if one == h {
			return c.hosts[(i+1)%len(c.hosts)]
		}
	}
	return nil
}
