package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// files are attempts at the files of the kernel, the host and others.
func files() map[string]func() string {
	all := map[string]func() string{
		"writable":                        writable,
		"devices":                         devices,
		"write /sys/kernel/uevent_helper": func() string { return outcome(os.WriteFile("/sys/kernel/uevent_helper", []byte("/tmp/x"), 0)) },
		"cgroup write": func() string {
			return outcome(os.Mkdir(firstOf("/sys/fs/cgroup/memory", "/sys/fs/cgroup")+"/probe", 0o755))
		},
		"kernel symbols": symbols,
	}
	for _, path := range []string{
		"/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug", "/proc/interrupts",
		"/proc/kmsg", "/proc/latency_stats", "/proc/acpi", "/proc/scsi", "/sys/firmware", "/sys/kernel/debug",
		"/sys/kernel/tracing", "/sys/kernel/security", "/sys/fs/bpf", "/sys/devices/virtual/powercap",
		"/sys/devices/system/cpu/cpu0/thermal_throttle",
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/dev/mem", "/dev/kmsg",
		"/dev/kvm", "/dev/vsock", "/dev/fuse", "/dev/net/tun", "/dev/vda", "/dev/sda", "/etc/shadow", "/root",
		"/var/lib/docker",
	} {
		all["read "+path] = func() string { return read(path) }
	}
	for _, path := range []string{
		"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/eth0/disable_ipv6",
		"/proc/sys/vm/overcommit_memory", "/proc/irq/default_smp_affinity", "/etc/passwd", "/etc/resolv.conf", "/etc/hosts",
		"/usr/bin/sh",
	} {
		all["write "+path] = func() string { return write(path) }
	}
	return all
}

func firstOf(paths ...string) string {
	for _, path := range paths {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return paths[0]
}

// read describes what is at a path: empty for what is masked.
func read(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return outcome(err)
	}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return outcome(err)
		}
		return found(len(entries))
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return outcome(err)
	}
	defer file.Close()
	var b [64]byte
	n, _ := file.Read(b[:])
	return found(n)
}

func found(n int) string {
	if n == 0 {
		return "empty"
	}
	return "content"
}

// write opens a file for writing and writes nothing.
func write(path string) string {
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return outcome(err)
	}
	return outcome(file.Close())
}

// writable lists the topmost folders in which this user can make files.
func writable() string {
	var all []string
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case path == "/proc" || err != nil && d != nil && d.IsDir():
			return fs.SkipDir // /proc has only what the kernel makes; others' folders are closed
		case err != nil || !d.IsDir():
			return nil
		}
		if unix.Access(path, unix.W_OK) == nil {
			all = append(all, path)
			return fs.SkipDir
		}
		return nil
	})
	slices.Sort(all)
	return strings.Join(all, " ")
}

// devices lists the devices.
func devices() string {
	var all []string
	_ = filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type()&fs.ModeDevice != 0 && !strings.HasPrefix(path, "/dev/pts/") {
			all = append(all, filepath.Base(path))
		}
		return nil
	})
	slices.Sort(all)
	return strings.Join(all, " ")
}

// symbols reports whether the kernel shows where its code is.
func symbols() string {
	text, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		return outcome(err)
	}
	for line := range strings.Lines(string(text)) {
		address, _, _ := strings.Cut(line, " ")
		if n, err := strconv.ParseUint(address, 16, 64); err == nil && n != 0 {
			return "addresses"
		}
	}
	return "hidden"
}

// others are attempts at the processes of others. The target "process" is the
// id that one of them has on the host.
func others(targets map[string]string) map[string]func() string {
	pid, err := strconv.Atoi(targets["process"])
	if err != nil {
		return nil
	}
	return map[string]func() string{
		"signal another's process": func() string { return outcome(unix.Kill(pid, 0)) },
		"trace another's process":  func() string { return call(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(pid), 0, 0) },
		"see others' processes":    foreign,
	}
}

// foreign reports whether there is a process of another user.
func foreign() string {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return outcome(err)
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat("/proc/"+e.Name(), &st) == nil && int(st.Uid) != os.Getuid() {
			return "process " + e.Name() + " of " + strconv.Itoa(int(st.Uid))
		}
	}
	return "none"
}
