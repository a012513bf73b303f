// Command bench compares Berth with its peers: with nginx, Caddy and Go's own reverse
// proxy for requests, and with the same steps done by hand for deploys and restores.
// Such a row of its table is a ratio of two things measured alternately within one run,
// so that a busy machine slows both. What has no peer, like the time to notice a crash,
// has a fixed limit.
//
// It installs missing peers, listens on the loopback only, and stops and removes
// everything that it started. A missed goal is a result like any other; the exit code
// is 1 only if something could not be measured.
package main

import (
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
const timeLimit = 20 * time.Minute

// bench is one run.
type bench struct {
	dir     string // of this run: configurations, logs, data; removed at the end
	bin     string // of the programs that are measured
	tools   string // of the programs that help to measure
	rounds  int
	round   time.Duration // of one load
	deploys int
	caddy   string // path of the program
	table   table
}

// section is a part of the table.
type section struct {
	name    string
	measure func(*bench, context.Context) error
}

var sections = []section{
	{"proxy", (*bench).measureProxy},
	{"look", (*bench).measureLook},
	{"static", (*bench).measureStatic},
	{"memory", (*bench).measureMemory},
	{"deploy", (*bench).measureDeploys},
	{"redeploy", (*bench).measureRedeploys},
	{"crash", (*bench).measureCrashes},
	{"restore", (*bench).measureRestores},
	{"hundred", (*bench).measureHundred},
	{"neighbour", (*bench).measureNeighbour},
	{"webhooks", (*bench).measureWebhooks},
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
	rounds := flag.Int("rounds", 5, "loads of each kind on each server")
	round := flag.Duration("round", 3*time.Second, "length of one load, whole seconds")
	deploys := flag.Int("deploys", 9, "deploys, redeploys and crashes of each kind")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	b := &bench{rounds: *rounds, round: *round, deploys: *deploys}
	if err := b.run(ctx, strings.Split(*only, ","), *write); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run measures the named sections and prints the results.
func (b *bench) run(ctx context.Context, names []string, write string) error {
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
		if !slices.Contains(names, s.name) || ctx.Err() != nil {
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

// The programs that are measured, and those that help to measure.
var (
	measured = []string{serverProgram, "./integration/bench/front", "./integration/bench/hooks"}
	helping  = []string{"./integration/bench/reverseproxy", "./integration/bench/answer", "./integration/probe"}
)

// progress reports a slow step on the terminal.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}
