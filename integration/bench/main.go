// Command bench compares Berth with its peers: with nginx, Caddy and Go's own reverse
// proxy for requests, and with the same steps done by hand for deploys and restores.
// Such a row of its table is a ratio of two things measured alternately within one run,
// so that a busy machine slows both. A row without a peer, like the time to notice a
// crash, has a fixed limit.
//
// With -base it compares the present state with another commit instead, see comparison.
//
// It installs missing peers, listens on the loopback only, and stops and removes
// everything that it started. A missed goal is a result like any other; the exit code
// is 1 only if something could not be measured. In a comparison it is also 1 if a row is
// worse than it may be.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// timeLimit limits the whole run, including building the programs.
const timeLimit = 60 * time.Minute

// bench is one run.
type bench struct {
	dir     string // of this run: configurations, logs, data; removed at the end
	bin     string // of the programs that are measured
	tools   string // of the programs that help to measure
	pool    string // of the servers' networks; "": the default
	core    string // for the programs that are started; "": any
	rounds  int
	round   time.Duration // of one load
	deploys int
	caddy   string // path of the program; "" in a comparison
	table   table
}

// section is a part of the table.
type section struct {
	name    string
	measure func(*bench, context.Context) error         // nil if it is only compared
	arrange func(*bench, context.Context, *stand) error // for a comparison of commits; nil if they are not compared in it
	// renewed: each round of a comparison arranges it anew, and there are more of them,
	// since processes of one program differ more among themselves than such figures may.
	renewed bool
}

var sections = []section{
	{"proxy", (*bench).measurePlane, (*bench).proxyTrials, true},
	{"static", nil, (*bench).staticTrials, true}, // proxy measures it beside its peers
	{"hosts", (*bench).measureHosts, nil, false},
	{"look", (*bench).measureLook, (*bench).lookTrials, false},
	{"memory", (*bench).measureMemory, (*bench).memoryTrials, false},
	{"deploy", (*bench).measureDeploys, (*bench).deployTrials, false},
	{"redeploy", (*bench).measureRedeploys, (*bench).redeployTrials, false},
	{"edit", (*bench).measureEdits, (*bench).editTrials, false},
	{"overlay", (*bench).measureOverlays, (*bench).overlayTrials, false},
	{"crash", (*bench).measureCrashes, (*bench).crashTrials, false},
	{"restore", (*bench).measureRestores, (*bench).restoreTrials, false},
	{"snapshot", (*bench).measureSnapshots, nil, false},
	{"hundred", (*bench).measureHundred, (*bench).hundredTrials, false},
	{"crowd", (*bench).measureCrowd, nil, false},
	{"neighbour", (*bench).measureNeighbour, (*bench).neighbourTrials, false},
	{"webhooks", (*bench).measureWebhooks, (*bench).webhookTrials, false},
	{"nodes", (*bench).measureNodes, nil, false},
	{"forward", (*bench).measureForward, nil, false},
	{"takeover", (*bench).measureTakeover, nil, false},
	{"move", (*bench).measureMoves, nil, false},
	{"creates", (*bench).measureCreates, nil, false},
}

// sectionNames returns the names of the sections in order.
func sectionNames() string {
	names := make([]string, len(sections))
	for i, s := range sections {
		names[i] = s.name
	}
	return strings.Join(names, ",")
}

func main() {
	write := flag.String("write", "", "file to write the table to as Markdown, besides the terminal")
	only := flag.String("only", sectionNames(), "parts to measure")
	base := flag.String("base", "", "commit to compare with, instead of the peers")
	rounds := flag.Int("rounds", 0, "loads of each kind on each server; 0: 5. With -base, rounds of every row, four times as many of proxy and static; 0: 10")
	round := flag.Duration("round", 0, "length of one load, whole seconds; 0: 3s, with -base 1s")
	deploys := flag.Int("deploys", 9, "deploys, redeploys and crashes of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	names := strings.Split(*only, ",")
	var err error
	if *base == "" {
		b := &bench{rounds: cmp.Or(*rounds, 5), round: cmp.Or(*round, 3*time.Second), deploys: *deploys}
		err = b.measureSections(ctx, names, *write)
	} else {
		c := &comparison{rounds: cmp.Or(*rounds, 10), round: cmp.Or(*round, time.Second)}
		err = c.compareSections(ctx, names, *base)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// measureSections measures the named sections and prints the results.
func (b *bench) measureSections(ctx context.Context, names []string, write string) error {
	ctx, cancel := context.WithTimeout(ctx, timeLimit)
	defer cancel()
	var err error
	if b.dir, err = os.MkdirTemp("", "berth-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.prepare(ctx); err != nil {
		return err
	}
	var failures []error
	for _, s := range sections {
		if s.measure == nil || !slices.Contains(names, s.name) || ctx.Err() != nil {
			continue
		}
		progress("measuring: %s", s.name)
		if err := s.measure(b, ctx); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", s.name, err))
		}
	}
	m := describe(ctx, b.caddy)
	b.table.print(os.Stdout, m)
	if write != "" && len(failures) == 0 {
		failures = append(failures, writeReport(write, &b.table, m))
	}
	return errors.Join(failures...)
}

// prepare installs the peers and builds the programs to measure.
func (b *bench) prepare(ctx context.Context) error {
	var err error
	if b.bin, err = filepath.Abs(filepath.Join(".build", "bench")); err != nil {
		return err
	}
	b.tools = b.bin
	if err := installTools(ctx); err != nil {
		return err
	}
	if b.caddy, err = installCaddy(ctx, b.bin); err != nil {
		return err
	}
	progress("building")
	return goBuild(ctx, ".", b.bin, slices.Concat(measured, helping)...)
}

const serverProgram = "./cmd/berthd"

// The programs that are measured, and the ones that help to measure.
var (
	measured = []string{serverProgram, "./integration/bench/front", "./integration/bench/hooks"}
	helping  = []string{"./integration/bench/reverseproxy", "./integration/bench/answer", "./integration/bench/page", "./integration/probe"}
)

// progress reports a slow step on the terminal.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
