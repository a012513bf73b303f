package peer

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/pause"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stackid"
	"github.com/berth-host/berth/internal/store"
)

// Owners knows which node has a stack.
type Owners interface {
	// Owner returns the node of a stack, "" if the stack does not exist. It asks the
	// database only about a stack that it does not know, and fails if it cannot.
	Owner(ctx context.Context, id string) (string, error)
	// Reread is Owner with a look into the database.
	Reread(ctx context.Context, id string) (string, error)
}

// Rows is the database of stacks and their nodes; package store implements it.
type Rows interface {
	// Placements returns the stacks that are not deleted.
	Placements(ctx context.Context) ([]store.Placement, error)
	// PlacementsOf returns some stacks, with the node "" for those that are deleted.
	PlacementsOf(ctx context.Context, ids []string) ([]store.Placement, error)
	// Placement returns the node of a stack, "" if it does not exist.
	Placement(ctx context.Context, id string) (store.Placement, error)
	// WatchIDs returns what tells of each commit that touches a stack.
	WatchIDs() (changes *store.Changes, stop func())
}

const (
	// breath is the time between two reads of what changed, while stacks change.
	breath = 20 * time.Millisecond
	// wholeEvery is how often all rows are read, whatever was missed.
	wholeEvery = 30 * time.Second
	// readLimit is how long a request waits for a row.
	readLimit = 3 * time.Second
	// strangers is how many unknown stacks are asked about at once.
	strangers = 8
)

// TableConfig is what a Table needs.
type TableConfig struct {
	Rows   Rows
	Routes *proxy.Routes
	Self   string // this node
	Peer   func(node string) *proxy.Peer
	Domain string // of the services' names
	Log    *slog.Logger
}

// Table knows the node of each stack, and makes the hosts of other nodes' stacks lead
// there.
type Table struct {
	cfg    TableConfig
	places chan struct{} // of reads about single stacks

	mu    sync.Mutex
	nodes map[string]string // by stack
}

// NewTable returns a Table that knows nothing before Load.
func NewTable(cfg TableConfig) *Table {
	return &Table{cfg: cfg, places: make(chan struct{}, strangers), nodes: map[string]string{}}
}

// Load reads all rows.
func (t *Table) Load(ctx context.Context) error {
	all, err := t.cfg.Rows.Placements(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := make(map[string]bool, len(all))
	for _, p := range all {
		known[p.Stack] = true
		t.apply(p)
	}
	for id := range t.nodes {
		if !known[id] {
			t.apply(store.Placement{Stack: id})
		}
	}
	return nil
}

// Follow keeps the table up to date until ctx ends. After a look that failed, all is read.
func (t *Table) Follow(ctx context.Context) {
	changes, stop := t.cfg.Rows.WatchIDs()
	defer stop()
	whole := time.NewTicker(wholeEvery)
	defer whole.Stop()
	for missed := true; ; { // what changed before it listened
		var ids []string
		select {
		case <-changes.Woken():
			any := false
			ids, any = changes.Take()
			missed = missed || any
		case <-whole.C:
			missed = true
		case <-ctx.Done():
			return
		}
		err := t.look(ctx, ids, missed)
		if missed = err != nil; missed && ctx.Err() == nil {
			t.cfg.Log.Warn("the stacks' nodes could not be read; the next change or look tries again", "error", err)
		}
		pause.For(ctx, breath)
	}
}

// look reads where some stacks are, or all of them.
func (t *Table) look(ctx context.Context, ids []string, all bool) error {
	if all {
		return t.Load(ctx)
	}
	changed, err := t.cfg.Rows.PlacementsOf(ctx, ids)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range changed {
		t.apply(p)
	}
	return nil
}

// apply updates the table and the routes with one placement. The node "" means that the
// stack is deleted. The caller holds mu.
func (t *Table) apply(p store.Placement) {
	if old, known := t.nodes[p.Stack]; known && old == p.Node {
		return
	}
	wildcard := "*-" + stackid.Hex(p.Stack) + "." + t.cfg.Domain
	switch p.Node {
	case "":
		delete(t.nodes, p.Stack)
		t.cfg.Routes.Forget(p.Stack)
		return
	case t.cfg.Self:
		t.cfg.Routes.Keep(p.Stack, wildcard)
	default:
		t.cfg.Routes.Lead(p.Stack, wildcard, t.cfg.Peer(p.Node))
	}
	t.nodes[p.Stack] = p.Node
}

// Owner returns the node of a stack; see Owners.
func (t *Table) Owner(ctx context.Context, id string) (string, error) {
	t.mu.Lock()
	node, known := t.nodes[id]
	t.mu.Unlock()
	if known || !stackid.Valid(id) {
		return node, nil
	}
	return t.Reread(ctx, id)
}

// Reread reads the row of a stack again and returns its node, "" if it does not
// exist. A read that fails changes nothing, and is an error only of a stack that was not
// known before.
func (t *Table) Reread(ctx context.Context, id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var p store.Placement
	var err error
	select {
	case t.places <- struct{}{}:
		p, err = t.cfg.Rows.Placement(ctx, id)
		<-t.places
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.cfg.Log.Warn("the node of a stack could not be read", "stack", id, "error", err)
		if node, known := t.nodes[id]; known {
			return node, nil
		}
		return "", err
	}
	t.apply(p)
	return p.Node, nil
}

// RereadHost is Reread for the stack that a host belongs to by its name, if there can be one;
// it is proxy.Routes.Refresh.
func (t *Table) RereadHost(ctx context.Context, host string) bool {
	label, _, _ := strings.Cut(host, ".")
	if id := stackid.FromHex(label[strings.LastIndexByte(label, '-')+1:]); stackid.Valid(id) {
		_, err := t.Reread(ctx, id)
		return err == nil
	}
	return true
}

// Elsewhere makes the hosts of a stack that this node gave away lead to its owner, and
// returns the targets that they led to.
func (t *Table) Elsewhere(id string) []*proxy.Target {
	_, _ = t.Reread(context.Background(), id) // Follow reads it again if this fails
	return t.cfg.Routes.Remove(id)
}
