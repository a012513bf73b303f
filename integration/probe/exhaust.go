package main

import (
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// exhaustions use something up from begin on, at least until the time that it
// returns and until they got as much as is asked for. They return how much of it
// they got, and what kept them from more: time, the name of an error, killed, or
// nothing where a ceiling of the host's is missing.
var exhaustions = map[string]func(least int, begin func() time.Time) (got int, end string){
	"processes":   forks,
	"memory":      memory,
	"descriptors": descriptors,
	"inotify":     watches,
	"disk":        disk,
	"log":         flood,
}

// The most that is taken of what a ceiling ought to bound.
const (
	mostProcesses   = 10_000
	mostMemory      = 2 << 30 // bytes
	mostDescriptors = 2_000_000
	mostWatches     = 100_000
)

// forks starts processes that do nothing but run, nearly as many as there may be.
func forks(_ int, begin func() time.Time) (got int, end string) {
	wait, run, err := os.Pipe()
	if err != nil {
		return 0, outcome(err)
	}
	var all []*exec.Cmd
	start := func() error {
		cmd := exec.Command("/bin/sh", "-c", "read x; while :; do :; done")
		cmd.Stdin = wait
		err := cmd.Start()
		if err == nil {
			all = append(all, cmd)
		}
		return err
	}
	stop := func(some []*exec.Cmd) {
		for _, cmd := range some {
			_ = cmd.Process.Kill() // it may have ended
		}
		for _, cmd := range some {
			_ = cmd.Wait() // once none runs any more: each takes a turn to end
		}
	}
	for err == nil && len(all) < mostProcesses {
		err = start()
	}
	got, end = len(all), outcome(err)
	own := max(len(all)-8, 0) // the probe itself must not want for threads
	stop(all[own:])
	all = all[:own]
	wait.Close()
	run.Close() // they all run
	time.Sleep(time.Until(begin()))
	stop(all)
	return got, end
}

// memory fills memory in a child, again and again: the kernel ends it at the
// ceiling, and would end this process otherwise.
func memory(least int, begin func() time.Time) (got int, end string) {
	for until := begin(); got < least || time.Now().Before(until); {
		cmd := exec.Command("/proc/self/exe", "fill")
		if err := cmd.Start(); err != nil {
			return got, outcome(err)
		}
		_ = cmd.Wait() // its state says how it ended
		status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if !ok || status.Signal() != syscall.SIGKILL {
			return got, "nothing"
		}
		got++
	}
	return got, "killed"
}

// fill takes memory until the kernel ends the process.
func fill() {
	const block = 16 << 20
	for range mostMemory / block {
		if _, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
			log.Fatal(err)
		}
	}
}

// descriptors opens files until it may not, and again.
func descriptors(_ int, begin func() time.Time) (got int, end string) {
	for until := begin(); end == "" || time.Now().Before(until); {
		var open []int
		for end = "nothing"; len(open) < mostDescriptors; {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				end = outcome(err)
				break
			}
			open = append(open, fd)
		}
		got = max(got, len(open))
		for _, fd := range open {
			_ = unix.Close(fd) // opened for nothing but its number
		}
	}
	return got, end
}

// watches makes inotify instances until the user may have no more, and keeps
// them.
func watches(_ int, begin func() time.Time) (got int, end string) {
	until := begin()
	for ; got < mostWatches; got++ {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			time.Sleep(time.Until(until))
			return got, outcome(err)
		}
		defer unix.Close(fd)
	}
	return got, "nothing"
}

// disk writes 64 MB to the disk, and again.
func disk(least int, begin func() time.Time) (got int, end string) {
	until := begin()
	path := filepath.Join(os.Getenv("DATA_DIR"), "fill")
	defer os.Remove(path)
	block := make([]byte, 1<<20)
	for got < least || time.Now().Before(until) {
		file, err := os.Create(path)
		if err != nil {
			return got, outcome(err)
		}
		for range 64 {
			if _, err := file.Write(block); err != nil {
				file.Close()
				return got, outcome(err)
			}
			got++
		}
		if err := file.Close(); err != nil {
			return got, outcome(err)
		}
	}
	return got, "time"
}

// flood writes log lines as fast as they are taken, and counts megabytes.
func flood(least int, begin func() time.Time) (got int, end string) {
	until := begin()
	lines := strings.Repeat("a line of a log that nobody asked for and nobody reads\n", 100)
	written := 0
	for written>>20 < least || time.Now().Before(until) {
		n, err := os.Stdout.WriteString(lines)
		if err != nil {
			return written >> 20, outcome(err)
		}
		written += n
	}
	return written >> 20, "time"
}
