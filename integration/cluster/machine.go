package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-host/berth/internal/pause"
)

// Machine is one machine of a lab: a node, or one of the services that they share.
type Machine struct {
	Name    string
	Address netip.Addr

	lab   *Lab
	id    string                      // of its container
	works func(context.Context) error // reports what does not work yet, nil once all does
}

const (
	// readyWithin limits how long a machine may take to work after its start.
	readyWithin = 2 * time.Minute

	// pauses is how often to try to freeze a machine: the kernel may give up on one whose
	// processes fork all the time.
	pauses = 5

	// cpuShares is a machine's weight when others want the processors too; a container has
	// 1024 by default.
	cpuShares = 256
)

// makeMachine starts a machine and waits until it works.
func (l *Lab) makeMachine(ctx context.Context, name string, host byte, config *container.Config, more *container.HostConfig) (*Machine, error) {
	m := &Machine{Name: name, Address: l.address(host), lab: l}
	config.Hostname = name
	config.Labels = l.labels()
	more.CPUShares = cpuShares
	more.ExtraHosts = l.hosts()
	more.NetworkMode = container.NetworkMode(l.network)
	made, err := l.docker.ContainerCreate(ctx, config, more, &network.NetworkingConfig{
		EndpointsConfig: map[string]*network.EndpointSettings{
			l.network: {IPAMConfig: &network.EndpointIPAMConfig{IPv4Address: m.Address.String()}},
		},
	}, nil, prefix+strconv.Itoa(os.Getpid())+"-"+name)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	m.id = made.ID
	return m, nil
}

// hosts are the names and addresses of all machines.
func (l *Lab) hosts() []string {
	all := []string{
		"registry:" + l.address(registryHost).String(),
		"postgres:" + l.address(postgresHost).String(),
		"valkey:" + l.address(valkeyHost).String(),
	}
	for i, name := range NodeNames {
		all = append(all, name+":"+l.address(byte(firstNode+i)).String())
	}
	return all
}

// Start starts a machine that was killed, and waits until it works.
func (m *Machine) Start(ctx context.Context) error {
	if err := m.lab.docker.ContainerStart(ctx, m.id, container.StartOptions{}); err != nil {
		return fmt.Errorf("start %s: %w", m.Name, err)
	}
	return m.Ready(ctx)
}

// Ready waits until the machine works.
func (m *Machine) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := m.works(ctx)
		if err == nil {
			return nil
		}
		if !pause.For(ctx, 50*time.Millisecond) {
			return fmt.Errorf("%s does not work: %w\n%s", m.Name, err, m.log())
		}
	}
}

// log returns the end of what the machine has printed.
func (m *Machine) log() string {
	out, err := m.lab.docker.ContainerLogs(context.Background(), m.id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return err.Error()
	}
	defer out.Close()
	var text strings.Builder
	_, _ = stdcopy.StdCopy(&text, &text, out)
	return text.String()
}

// Kill ends the machine as a power cut would. Its disk stays.
func (m *Machine) Kill(ctx context.Context) error {
	if err := m.lab.docker.ContainerKill(ctx, m.id, "KILL"); err != nil {
		return fmt.Errorf("kill %s: %w", m.Name, err)
	}
	ended, errs := m.lab.docker.ContainerWait(ctx, m.id, container.WaitConditionNotRunning)
	select {
	case <-ended:
		return nil
	case err := <-errs:
		return err
	}
}

// Pause freezes every process of the machine. Its connections stay.
func (m *Machine) Pause(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := m.lab.docker.ContainerPause(ctx, m.id)
		if err == nil || attempt == pauses || !strings.Contains(err.Error(), "unable to freeze") {
			return err
		}
	}
}

// Unpause lets a frozen machine go on.
func (m *Machine) Unpause(ctx context.Context) error {
	return m.lab.docker.ContainerUnpause(ctx, m.id)
}

// Restore brings the machine back to work from whatever was done to it.
func (m *Machine) Restore(ctx context.Context) error {
	now, err := m.lab.docker.ContainerInspect(ctx, m.id)
	if err != nil {
		return err
	}
	if now.State.Paused {
		if err := m.Unpause(ctx); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// Memory returns how many bytes the processes of the machine use, those of its containers
// included.
func (m *Machine) Memory(ctx context.Context) (uint64, error) {
	text, err := m.Run(ctx, "", "cat", "/proc/self/cgroup")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
			return memoryOf("/sys/fs/cgroup/memory" + path)
		}
	}
	return 0, errors.New("the machine has no control group for memory of version 1")
}

// memoryOf returns the anonymous memory of a control group and those below it.
func memoryOf(group string) (uint64, error) {
	stat, err := os.ReadFile(group + "/memory.stat")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(stat)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "total_rss "); ok {
			return strconv.ParseUint(text, 10, 64)
		}
	}
	return 0, errors.New(group + "/memory.stat has no total_rss")
}

// Run runs a command on the machine and returns its output. If it fails, its output is in
// the error.
func (m *Machine) Run(ctx context.Context, input string, command ...string) (string, error) {
	var out strings.Builder
	e, err := m.begin(ctx, container.ExecOptions{Cmd: command}, input, &out)
	if err != nil {
		return "", err
	}
	<-e.done
	code, err := e.code(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("%q on %s ends with exit code %d: %s", command, m.Name, code, out.String())
	}
	return out.String(), err
}

// execution is a command that runs on a machine.
type execution struct {
	machine *Machine
	id      string
	done    chan struct{} // closed when all its output was read
	ended   time.Time     // when that was; to be read once done is closed
}

// begin starts a command on the machine. It may write to out until done is closed.
func (m *Machine) begin(ctx context.Context, o container.ExecOptions, input string, out io.Writer) (*execution, error) {
	o.AttachStdout, o.AttachStderr, o.AttachStdin = true, true, input != ""
	made, err := m.lab.docker.ContainerExecCreate(ctx, m.id, o)
	if err != nil {
		return nil, fmt.Errorf("run %q on %s: %w", o.Cmd, m.Name, err)
	}
	stream, err := m.lab.docker.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return nil, fmt.Errorf("run %q on %s: %w", o.Cmd, m.Name, err)
	}
	e := &execution{machine: m, id: made.ID, done: make(chan struct{})}
	go func() {
		defer func() {
			e.ended = time.Now()
			close(e.done)
		}()
		defer stream.Close()
		if input != "" {
			_, _ = io.WriteString(stream.Conn, input)
			_ = stream.CloseWrite()
		}
		_, _ = stdcopy.StdCopy(out, out, stream.Reader)
	}()
	return e, nil
}

// code returns the exit code of a command whose output has ended.
func (e *execution) code(ctx context.Context) (int, error) {
	for {
		now, err := e.machine.lab.docker.ContainerExecInspect(ctx, e.id)
		if err != nil {
			return 0, err
		}
		if !now.Running {
			return now.ExitCode, nil
		}
		if !pause.For(ctx, 10*time.Millisecond) {
			return 0, ctx.Err()
		}
	}
}
