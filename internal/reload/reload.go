// Package reload starts another process of a server's program that takes its place, and
// carries what the two say to each other: the new process reports each step that it has done,
// and the old one gives it the files and the state that it leaves.
//
// Code in this package starts processes and touches the files that they inherit. It does not
// know what a server is.
package reload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// variable is what tells a process that another one has started it to take its place: the
// names of the files that it inherits, separated by commas, from the third on. A check gets it
// without a name.
const variable = "BERTHD_PREDECESSOR"

// control is the name of the first of these files.
const control = "control"

// firstFile is the number of the first file behind the standard ones.
const firstFile = 3

// Program is the program that runs, by the path under which it was started.
type Program struct{ path string }

// Current returns the program that runs. It is to be called before anything can have changed
// the working folder.
func Current() (Program, error) {
	path, err := exec.LookPath(os.Args[0])
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err == nil && isRunning(path) {
		return Program{path}, nil
	}
	path, err = os.Executable() // as the kernel knows it
	return Program{path}, err
}

// isRunning reports whether a path leads to the program that runs.
func isRunning(path string) bool {
	there, err := os.Stat(path)
	if err != nil {
		return false
	}
	running, err := os.Stat("/proc/self/exe")
	return err == nil && os.SameFile(there, running)
}

// Path returns the path of the program.
func (p Program) Path() string { return p.path }

// Check returns why what is at the path now must not be run, or cannot: others than its owner
// can write it, or it fails with the arguments. The error has the last line that it printed.
func (p Program) Check(ctx context.Context, args ...string) error {
	if err := p.checkOwner(); err != nil {
		return err
	}
	c := exec.CommandContext(ctx, p.path, args...)
	c.Env = append(environment(), variable+"=")
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("%s %s: %w: %s", p.path, strings.Join(args, " "), err, lines[len(lines)-1])
}

// checkOwner returns why somebody else than root and this process's user may have written the
// program.
func (p Program) checkOwner() error {
	file, err := os.Stat(p.path)
	if err != nil {
		return err
	}
	folder, err := os.Stat(filepath.Dir(p.path))
	if err != nil {
		return err
	}
	owner := file.Sys().(*syscall.Stat_t).Uid
	const others, sticky = 0o022, os.ModeSticky
	switch {
	case !file.Mode().IsRegular():
		return fmt.Errorf("%s is not a file", p.path)
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d, who could replace the server; let it belong to root or to the server's user", p.path, owner)
	case file.Mode().Perm()&others != 0:
		return fmt.Errorf("others can write %s; run chmod go-w on it", p.path)
	case folder.Mode().Perm()&0o002 != 0 && folder.Mode()&sticky == 0:
		return fmt.Errorf("everybody can write the folder of %s; run chmod o-w on it", p.path)
	}
	return nil
}

// Successor is the process that is about to take the place of this one.
type Successor struct {
	command *exec.Cmd
	channel *channel
	ended   chan struct{} // closed when the process has ended
	how     error         // how it ended; after ended
}

// Start starts the program with arguments. It inherits the files by their names, and the
// environment but for what names this process.
func (p Program) Start(args []string, files map[string]*os.File) (*Successor, error) {
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	c := exec.Command(p.path, args...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	names := []string{control}
	c.ExtraFiles = []*os.File{theirs}
	for name, file := range files {
		names = append(names, name)
		c.ExtraFiles = append(c.ExtraFiles, file)
	}
	c.Env = append(environment(), variable+"="+strings.Join(names, ","))
	wait := c.Wait
	if isSystemds() {
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT}
		wait = func() error { return awaitEnd(c.Process.Pid) }
	}
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	s := &Successor{command: c, channel: newChannel(ours), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.how = wait()
	}()
	return s, nil
}

// isSystemds reports whether systemd has started this process as its service. The next one is to
// be systemd's child from the start, too: it does not wait for the end of a main process that was
// another's when it got to know it, but kills it at once.
func isSystemds() bool { return os.Getppid() == 1 && os.Getenv("NOTIFY_SOCKET") != "" }

// awaitEnd waits until a process has ended that another one than this waits for.
func awaitEnd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	for {
		_, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// environment returns the environment without what is for this process alone.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(line string) bool {
		name, _, _ := strings.Cut(line, "=")
		return name == variable || name == "WATCHDOG_PID" || strings.HasPrefix(name, "LISTEN_")
	})
}

// pair returns the two ends of a connection between processes.
func pair() (ours net.Conn, theirs *os.File, err error) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to another process: %w", err)
	}
	own := os.NewFile(uintptr(ends[0]), control)
	defer own.Close() // FileConn has a copy
	theirs = os.NewFile(uintptr(ends[1]), control)
	if ours, err = net.FileConn(own); err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// PID returns the number of the process.
func (s *Successor) PID() int { return s.command.Process.Pid }

// Ended is closed when the process has ended.
func (s *Successor) Ended() <-chan struct{} { return s.ended }

// Await returns what the process reports next, into report. It fails if the process ends, or
// ctx does.
func (s *Successor) Await(ctx context.Context, report any) error {
	heard := make(chan error, 1)
	go func() { heard <- s.channel.in.Decode(report) }()
	select {
	case err := <-heard:
		if err == nil {
			return nil
		}
		select { // most likely its end has closed the channel
		case <-s.ended:
			return s.end()
		case <-ctx.Done():
			return fmt.Errorf("the new process does not answer: %w", err)
		}
	case <-s.ended:
		return s.end()
	case <-ctx.Done():
		return fmt.Errorf("the new process does not answer: %w", context.Cause(ctx))
	}
}

// end returns how the process ended, after it has.
func (s *Successor) end() error {
	if s.how == nil {
		return errors.New("the new process ended by itself")
	}
	return fmt.Errorf("the new process ended: %w", s.how)
}

// Give gives the process the state that this one leaves.
func (s *Successor) Give(state any) error { return s.channel.out.Encode(state) }

// Terminate asks the process to end, as SIGTERM does.
func (s *Successor) Terminate() {
	_ = s.command.Process.Signal(syscall.SIGTERM) // or it has ended
}

// Kill ends the process, and returns once it has ended.
func (s *Successor) Kill() {
	_ = s.command.Process.Kill() // or it has ended
	<-s.ended
	s.channel.close()
}

// Predecessor is the process that this one is about to take the place of.
type Predecessor struct {
	channel *channel
	files   map[string]*os.File
}

// HasSettings reports whether another process has started this one to take its place, or to check
// whether it could, so that the environment has all settings of the start.
func HasSettings() bool {
	_, ok := os.LookupEnv(variable)
	return ok
}

// FromEnvironment returns the process that has started this one to take its place, nil if
// none has.
func FromEnvironment() (*Predecessor, error) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	if err := os.Unsetenv(variable); err != nil {
		return nil, err
	}
	names := strings.Split(text, ",")
	if names[0] != control {
		return nil, fmt.Errorf("%s is set, but not by another berthd; unset it", variable)
	}
	p := &Predecessor{files: map[string]*os.File{}}
	for i, name := range names {
		unix.CloseOnExec(firstFile + i)
		p.files[name] = os.NewFile(uintptr(firstFile+i), name)
	}
	file := p.files[control]
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("%s is set, but not by another berthd; unset it: %w", variable, err)
	}
	delete(p.files, control)
	p.channel = newChannel(conn)
	return p, file.Close()
}

// Files returns the inherited files by their names. They are the caller's.
func (p *Predecessor) Files() map[string]*os.File { return p.files }

// Report tells the process of a step that is done.
func (p *Predecessor) Report(step any) error { return p.channel.out.Encode(step) }

// Await receives the state that the process leaves, into state. It fails if the process has
// ended, or goes on by itself.
func (p *Predecessor) Await(state any) error {
	if err := p.channel.in.Decode(state); err != nil {
		return fmt.Errorf("the process before this one has not left its place: %w", err)
	}
	return nil
}

// AwaitEnd returns once the process has ended.
func (p *Predecessor) AwaitEnd() {
	var nothing struct{}
	_ = p.channel.in.Decode(&nothing) // it says nothing more
	p.channel.close()
}

// channel carries values between two processes.
type channel struct {
	conn net.Conn
	in   *json.Decoder
	out  *json.Encoder
}

func newChannel(conn net.Conn) *channel {
	return &channel{conn, json.NewDecoder(conn), json.NewEncoder(conn)}
}

func (c *channel) close() { _ = c.conn.Close() } // nothing is on its way
