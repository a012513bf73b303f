package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// family holds the rules of IPv4 or IPv6 in one table.
type family struct {
	save, restore string // programs
	table         string
	fixed         rules
	// shared returns, by the chain, what changes those that all installations fill.
	shared map[string]func(wanted, []string) []string
	// taken are the fixed rules as the program prints them: releases of iptables may
	// print the same rule differently.
	taken rules
}

// families returns the families that this machine has.
func families() []*family {
	all := []*family{
		{
			save: "iptables-save", restore: "iptables-restore", table: "mangle", fixed: rules4(), taken: rules4(),
			shared: map[string]func(wanted, []string) []string{
				chainOpen: wanted.openChanges, chainBuild: wanted.buildChanges, chainMail: wanted.mailChanges,
				chainShut: wanted.shutChanges, chainNodes: wanted.nodesChanges,
			},
		},
		{
			save: "iptables-save", restore: "iptables-restore", table: "raw", fixed: rulesRaw(), taken: rulesRaw(),
			shared: map[string]func(wanted, []string) []string{chainWithin: wanted.withinChanges},
		},
	}
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		all = append(all, &family{save: "ip6tables-save", restore: "ip6tables-restore", table: "mangle", fixed: rules6(), taken: rules6()})
	}
	return all
}

// ensure sets what differs between the rules that were found and the wanted ones, all in one step,
// and reports whether any fixed rule differed.
func (f *family) ensure(ctx context.Context, found rules, want wanted) (changed bool, err error) {
	changed = !f.inPlace(found)
	lines := f.sharedChanges(found, want)
	if changed {
		lines = append(f.set(found), lines...)
	}
	if len(lines) == 0 {
		return false, nil
	}
	if _, err := runProgram(ctx, f.script(lines), f.restore, "--noflush", "--wait", "10"); err != nil || !changed {
		return false, err
	}
	if found, err = f.read(ctx); err != nil {
		return false, err
	}
	f.taken = found
	if !f.inPlace(found) {
		return false, fmt.Errorf("firewall: %s took the rules, but %s does not show them", f.restore, f.save)
	}
	return true, nil
}

func (f *family) read(ctx context.Context) (rules, error) { return f.startRead(ctx)() }

// startRead begins to read the rules that are there, and returns what waits for them.
func (f *family) startRead(ctx context.Context) (wait func() (rules, error)) {
	text := startProgram(ctx, "", f.save, "-t", f.table)
	return func() (rules, error) {
		found, err := text()
		return parse(found), err
	}
}

// script returns the input of restore with these lines.
func (f *family) script(lines []string) string {
	return "*" + f.table + "\n" + strings.Join(lines, "\n") + "\nCOMMIT\n"
}

// inPlace reports whether exactly the fixed rules are there, and the kernel's own
// chains lead to them.
func (f *family) inPlace(found rules) bool {
	for chain, want := range f.fixed {
		switch {
		case !ours(chain) && len(f.missing(found, chain)) > 0:
			return false
		case ours(chain) && (len(found[chain]) != len(want) || !slices.Equal(found[chain], f.taken[chain])):
			return false
		}
	}
	for chain := range f.shared {
		if _, there := found[chain]; !there {
			return false
		}
	}
	return true
}

// missing returns the rules that one of the kernel's own chains lacks.
func (f *family) missing(found rules, chain string) []string {
	return slices.DeleteFunc(slices.Clone(f.fixed[chain]), func(rule string) bool { return slices.Contains(found[chain], rule) })
}

// set returns the lines that set the fixed rules: declaring a chain empties it.
func (f *family) set(found rules) []string {
	var declare, add []string
	for chain := range f.shared {
		if _, there := found[chain]; !there {
			declare = append(declare, ":"+chain+" - [0:0]")
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(f.fixed)) {
		if !ours(chain) {
			for _, rule := range f.missing(found, chain) {
				add = append(add, "-I "+chain+" "+rule)
			}
			continue
		}
		declare = append(declare, ":"+chain+" - [0:0]")
		for _, rule := range f.fixed[chain] {
			add = append(add, "-A "+chain+" "+rule)
		}
	}
	return append(declare, add...)
}

// sharedChanges returns the lines for the chains that all installations fill.
func (f *family) sharedChanges(found rules, want wanted) []string {
	var lines []string
	for chain, changes := range f.shared {
		lines = append(lines, changes(want, found[chain])...)
	}
	return lines
}

func ours(chain string) bool { return strings.HasPrefix(chain, "BERTH-") }

// programTime is how long a program may take; another one may hold the kernel's lock on
// the rules.
const programTime = 30 * time.Second

// runProgram runs one of the iptables programs with input and returns its output.
func runProgram(ctx context.Context, input, program string, args ...string) (string, error) {
	return startProgram(ctx, input, program, args...)()
}

// startProgram starts a program, which is in the network of this thread, and returns what waits for
// its output.
func startProgram(ctx context.Context, input, program string, args ...string) (wait func() (string, error)) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Start()
	return func() (string, error) {
		defer cancel()
		if err == nil {
			err = cmd.Wait()
		}
		if errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("firewall: %s is not installed; on Debian: apt-get install iptables", program)
		}
		if err != nil {
			return "", fmt.Errorf("firewall: %s: %w: %s", program, err, strings.TrimSpace(complaint.String()))
		}
		return out.String(), nil
	}
}
