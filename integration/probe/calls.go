package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// calls are system calls, bare: what the filter lets through and what not.
func calls() map[string]func() string {
	all := map[string]func() string{
		// A child in a namespace of its own, by clone.
		"clone user namespace": func() string { return child(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}) },
		"clone net namespace":  func() string { return child(&syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}) },
		"child":                func() string { return child(nil) },
		"child chroot":         func() string { return child(&syscall.SysProcAttr{Chroot: "/tmp"}) },
	}
	for name, args := range bare {
		all[name] = func() string { return call(args...) }
	}
	return all
}

var (
	word  = [1024]byte{'t', 'm', 'p'}
	words = uintptr(unsafe.Pointer(&word))

	lowestPriority = int32(1)
	lowest         = uintptr(unsafe.Pointer(&lowestPriority))
)

// bare are system calls by number and arguments that would do something, or
// fail with another error than the filter's, were they let through.
var bare = map[string][]uintptr{
	"io_uring_setup":    {unix.SYS_IO_URING_SETUP, 1, words},
	"io_uring_enter":    {unix.SYS_IO_URING_ENTER, 0},
	"io_uring_register": {unix.SYS_IO_URING_REGISTER, 0},
	"socket vsock":      {unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM, 0},
	"socket alg":        {unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET, 0},
	"socket packet":     {unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW, 0},
	"socket bluetooth":  {unix.SYS_SOCKET, unix.AF_BLUETOOTH, unix.SOCK_RAW, 0},
	"socket xdp":        {unix.SYS_SOCKET, unix.AF_XDP, unix.SOCK_RAW, 0},
	"socket raw":        {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
	"socket raw6":       {unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
	"socket unix":       {unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0},
	"socket inet":       {unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 0},
	"socket netlink":    {unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE},
	"unshare user":      {unix.SYS_UNSHARE, unix.CLONE_NEWUSER},
	"unshare mount":     {unix.SYS_UNSHARE, unix.CLONE_NEWNS},
	"unshare net":       {unix.SYS_UNSHARE, unix.CLONE_NEWNET},
	"clone3":            {unix.SYS_CLONE3, 0, 0},
	"setns":             {unix.SYS_SETNS, 0, 0},
	"mount":             {unix.SYS_MOUNT, words, words, words, 0, 0},
	"umount2":           {unix.SYS_UMOUNT2, words, 0},
	"fsopen":            {unix.SYS_FSOPEN, words, 0},
	"open_tree":         {unix.SYS_OPEN_TREE, 0, words, 1},
	"move_mount":        {unix.SYS_MOVE_MOUNT, 0, words, 0, words, 0},
	"mount_setattr":     {unix.SYS_MOUNT_SETATTR, 0, words, 0, words, 32},
	"pivot_root":        {unix.SYS_PIVOT_ROOT, words, words},
	"chroot":            {unix.SYS_CHROOT, words},
	"bpf":               {unix.SYS_BPF, 0, words, 64},
	"perf_event_open":   {unix.SYS_PERF_EVENT_OPEN, words, 0, 0, 0, 0},
	"userfaultfd":       {unix.SYS_USERFAULTFD, 1},
	"keyctl":            {unix.SYS_KEYCTL, 0, 0, 0},
	"add_key":           {unix.SYS_ADD_KEY, words, words, words, 1, 0},
	"request_key":       {unix.SYS_REQUEST_KEY, words, words, 0, 0},
	"init_module":       {unix.SYS_INIT_MODULE, words, 1, words},
	"finit_module":      {unix.SYS_FINIT_MODULE, 0, words, 0},
	"delete_module":     {unix.SYS_DELETE_MODULE, words, 0},
	"kexec_load":        {unix.SYS_KEXEC_LOAD, 0, 0, 0, 0},
	"reboot":            {unix.SYS_REBOOT, 0, 0, 0, 0}, // with wrong magic numbers, should it get there
	"swapon":            {unix.SYS_SWAPON, words, 0},
	"swapoff":           {unix.SYS_SWAPOFF, words},
	"sethostname":       {unix.SYS_SETHOSTNAME, words, 3},
	"settimeofday":      {unix.SYS_SETTIMEOFDAY, 0, 0},
	"clock_settime":     {unix.SYS_CLOCK_SETTIME, 0, 0},
	"syslog":            {unix.SYS_SYSLOG, 10, 0, 0},
	"quotactl":          {unix.SYS_QUOTACTL, 0, 0, 0, 0},
	"acct":              {unix.SYS_ACCT, 0},
	"open_by_handle_at": {unix.SYS_OPEN_BY_HANDLE_AT, 0, words, 0},
	"fanotify_init":     {unix.SYS_FANOTIFY_INIT, 0, 0},
	"pidfd_getfd":       {unix.SYS_PIDFD_GETFD, 0, 0, 0},
	"move_pages":        {unix.SYS_MOVE_PAGES, 0, 0, 0, 0, 0, 0},
	"mbind":             {unix.SYS_MBIND, 0, 0, 0, 0, 0, 0},
	"vhangup":           {unix.SYS_VHANGUP},
	"personality":       {unix.SYS_PERSONALITY, 0x0040000}, // no randomised addresses
	"memfd_create":      {unix.SYS_MEMFD_CREATE, words, 0},
	"inotify_init1":     {unix.SYS_INOTIFY_INIT1, 0},
	"epoll_create1":     {unix.SYS_EPOLL_CREATE1, 0},
	"clock_gettime":     {unix.SYS_CLOCK_GETTIME, 0, words},
	"sched_getaffinity": {unix.SYS_SCHED_GETAFFINITY, 0, 128, words},
	"landlock":          {unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1},
}

// call makes a system call.
func call(args ...uintptr) string {
	var a [7]uintptr
	copy(a[:], args)
	result, _, errno := unix.Syscall6(a[0], a[1], a[2], a[3], a[4], a[5], a[6])
	if errno != 0 {
		return outcome(errno)
	}
	if a[0] == unix.SYS_SOCKET {
		_ = unix.Close(int(result)) // it only had to open
	}
	return "ok"
}

// outcome names an error.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	}
	return err.Error()
}

// child runs a program that does nothing.
func child(attr *syscall.SysProcAttr) string {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = attr
	return outcome(cmd.Run())
}

// privileges are attempts to be more than the stack's own user.
func privileges() map[string]func() string {
	return map[string]func() string{
		"setuid 0":  func() string { return call(unix.SYS_SETUID, 0) },
		"setgid 0":  func() string { return call(unix.SYS_SETGID, 0) },
		"setgroups": func() string { return call(unix.SYS_SETGROUPS, 1, words) },
		"capset": func() string {
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
			return outcome(unix.Capset(&head, &data[0]))
		},
		"capabilities":       func() string { return status("CapEff", "CapPrm", "CapBnd", "CapAmb") },
		"no new privileges":  noNewPrivileges,
		"system call filter": func() string { return status("Seccomp") },
		"root user":          func() string { return strconv.FormatBool(os.Getuid() == 0 || os.Getgid() == 0) },
		"setuid program":     setuidProgram,
		"chown to root":      func() string { return inTemp(func(path string) error { return os.Chown(path, 0, 0) }) },
		"mknod device":       func() string { return outcome(unix.Mknod("/tmp/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 1)))) },
		"real-time priority": func() string { return call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, lowest) },
		"higher priority":    func() string { return outcome(unix.Setpriority(unix.PRIO_PROCESS, 0, -10)) },
		"core dumps": func() string {
			return outcome(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}))
		},
		"out of memory score": func() string { return outcome(os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)) },
		"interface down": func() string {
			request, err := unix.NewIfreq("eth0")
			if err != nil {
				return outcome(err)
			}
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
			if err != nil {
				return outcome(err)
			}
			defer unix.Close(fd)
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCSIFFLAGS, uintptr(unsafe.Pointer(request)))
			if errno != 0 {
				return outcome(errno)
			}
			return "ok"
		},
	}
}

// status reads values of /proc/self/status.
func status(keys ...string) string {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return outcome(err)
	}
	var values []string
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		for _, k := range keys {
			if k == key {
				values = append(values, strings.TrimLeft(strings.TrimSpace(value), "0"))
			}
		}
	}
	return strings.Join(values, " ")
}

func noNewPrivileges() string {
	set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return outcome(err)
	}
	return strconv.Itoa(set)
}

// setuidProgram mounts with the help of a program that root owns and that has
// the setuid bit.
func setuidProgram() string {
	var denied *exec.ExitError
	info, err := os.Stat("/usr/bin/mount")
	if err != nil || info.Mode()&fs.ModeSetuid == 0 {
		return "no such program"
	}
	if err := exec.Command("/usr/bin/mount", "-t", "tmpfs", "none", "/tmp").Run(); errors.As(err, &denied) {
		return "refused"
	}
	return "ok"
}

func inTemp(do func(path string) error) string {
	file, err := os.CreateTemp("/tmp", "probe")
	if err != nil {
		return outcome(err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	return outcome(do(file.Name()))
}
