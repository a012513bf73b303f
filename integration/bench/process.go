package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a child process.
type process struct {
	name string
	proc *os.Process
	log  string // path of its output
	done chan struct{}
}

// startProgram starts a program with its output in a file. The program ends with this
// one in any case.
func (b *bench) startProgram(name string, env []string, path string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(b.dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	command := append([]string{path}, args...)
	if b.core != "" {
		command = append([]string{"taskset", "-c", b.core}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.proc = cmd.Process
	go func() { defer close(p.done); cmd.Wait() }() //nolint:errcheck // it is stopped by a signal
	return p, nil
}

// stop asks the program to end and waits until it has.
func (p *process) stop() {
	p.proc.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		syscall.Kill(-p.proc.Pid, syscall.SIGKILL)
		<-p.done
	}
}

// replacedBy makes this the process that has taken its place, once the one before has ended.
func (p *process) replacedBy(pid int) error {
	<-p.done
	proc, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	p.proc, p.done = proc, make(chan struct{})
	go func() {
		defer close(p.done)
		for proc.Signal(syscall.Signal(0)) == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}()
	return nil
}

// listening waits until something accepts connections at addr.
func (p *process) listening(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		nc, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			return nc.Close()
		}
		select {
		case <-p.done:
			return p.fault("it ended")
		case <-ctx.Done():
			return p.fault("it does not listen at " + addr)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// fault returns what went wrong with the program, and its output.
func (p *process) fault(what string) error {
	text, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %s:\n%s", p.name, what, text[max(0, len(text)-2000):])
}

// freeAddr returns an unused loopback address.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// tick is the unit of processor time in /proc; Linux shows 100 a second on
// every machine.
const tick = 10 * time.Millisecond

// cpu returns the processor time used so far by the program and its children.
func (p *process) cpu() (time.Duration, error) {
	var total time.Duration
	for _, pid := range p.tree() {
		fields, err := statFields(pid)
		if err != nil {
			return 0, err
		}
		for _, f := range fields[11:13] { // utime, stime
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, err
			}
			total += time.Duration(n) * tick
		}
	}
	return total, nil
}

// memory returns the sum of a field of /proc/<pid>/status over the program and its
// children, in bytes.
func (p *process) memory(field string) (int64, error) {
	var total int64
	for _, pid := range p.tree() {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, ok := strings.Cut(string(status), "\n"+field+":")
		line, _, _ := strings.Cut(rest, " kB")
		kB, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if !ok || err != nil {
			return 0, fmt.Errorf("no %s in the status of process %d", field, pid)
		}
		total += kB << 10
	}
	return total, nil
}

// forgetPeak resets the peak of the memory to its present size.
func (p *process) forgetPeak() error {
	for _, pid := range p.tree() {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
			return err
		}
	}
	return nil
}

// tree returns the program and all its descendants.
func (p *process) tree() []int {
	children := map[int][]int{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, _ := strconv.Atoi(filepath.Base(entry))
		if fields, err := statFields(pid); err == nil {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], pid)
		}
	}
	tree := []int{p.proc.Pid}
	for i := 0; i < len(tree); i++ {
		tree = append(tree, children[tree[i]]...)
	}
	return tree
}

// statFields returns the fields of /proc/<pid>/stat from the third on, the state: the
// second may contain spaces and parentheses.
func statFields(pid int) ([]string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return nil, fmt.Errorf("/proc/%d/stat is too short", pid)
	}
	return fields, nil
}
