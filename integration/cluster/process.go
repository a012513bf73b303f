package cluster

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/docker/docker/api/types/container"
)

// Process is one run of a program on a node.
type Process struct {
	node    *Node
	running *execution
	pidFile string
}

var processes atomic.Int64

// Begin starts a file of /opt/berth on the node with some variables and writes what it
// prints to out.
func (n *Node) Begin(ctx context.Context, env map[string]string, out io.Writer, program string, args ...string) (*Process, error) {
	p := &Process{node: n, pidFile: "/run/program-" + strconv.FormatInt(processes.Add(1), 10)}
	var variables []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		variables = append(variables, name+"="+env[name])
	}
	var err error
	p.running, err = n.Machine.begin(ctx, container.ExecOptions{
		Env: variables,
		Cmd: append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, p.pidFile, "/opt/berth/" + program}, args...),
	}, "", out)
	return p, err
}

// Signal sends the program a signal, as in "KILL". The machine must not be paused.
func (p *Process) Signal(ctx context.Context, signal string) error {
	_, err := p.node.Machine.Run(ctx, "", "sh", "-c", `kill -`+signal+` "$(cat "$0")"`, p.pidFile)
	return err
}

// Ended is closed when the program has ended, also when its machine was killed.
func (p *Process) Ended() <-chan struct{} { return p.running.done }

// EndedAt returns when the program ended. It waits for that.
func (p *Process) EndedAt() time.Time {
	<-p.Ended()
	return p.running.ended
}

// Alive reports whether the program has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.Ended():
		return false
	default:
		return true
	}
}

// Wait returns the exit code of the program once it has ended.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.Ended():
		return p.running.code(ctx)
	case <-ctx.Done():
		return 0, fmt.Errorf("the program on %s does not end: %w", p.node.Name, ctx.Err())
	}
}
