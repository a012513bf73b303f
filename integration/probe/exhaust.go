package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// exhaustions use something up until a time comes, and tell how far they got.
var exhaustions = map[string]func(until time.Time) string{
	"processes":   forks,
	"memory":      memory,
	"descriptors": descriptors,
	"inotify":     watches,
	"disk":        disk,
	"log":         flood,
}

// forks starts processes that do nothing but run, as many as there may be.
func forks(until time.Time) string {
	var all []*exec.Cmd
	end := "time"
	for time.Now().Before(until) {
		cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			end = outcome(err)
			time.Sleep(10 * time.Millisecond)
			continue
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	}
	return fmt.Sprintf("%d processes, %s", len(all), end)
}

// memory fills memory in a child, again and again: the kernel ends it at the
// ceiling, and would end this process otherwise.
func memory(until time.Time) string {
	ended := 0
	for time.Now().Before(until) {
		cmd := exec.Command("/bin/sh", "-c", `x=xxxxxxxxxxxxxxxx; while :; do x="$x$x"; done`)
		if err := cmd.Start(); err != nil {
			return outcome(err)
		}
		timer := time.AfterFunc(time.Until(until), func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil {
			ended++
		}
		timer.Stop()
	}
	return fmt.Sprintf("%d ended", ended)
}

// descriptors opens files until it may not, and again.
func descriptors(until time.Time) string {
	most := 0
	for time.Now().Before(until) {
		var open []int
		for time.Now().Before(until) {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				break
			}
			open = append(open, fd)
		}
		most = max(most, len(open))
		for _, fd := range open {
			_ = unix.Close(fd) // opened for nothing but its number
		}
	}
	return fmt.Sprintf("%d descriptors", most)
}

// watches makes inotify instances until the user may have no more, and keeps
// them.
func watches(until time.Time) string {
	made := 0
	for time.Now().Before(until) {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		made++
		defer unix.Close(fd)
	}
	return fmt.Sprintf("%d instances", made)
}

// disk writes 64 MB to the disk, and again.
func disk(until time.Time) string {
	path := filepath.Join(os.Getenv("DATA_DIR"), "fill")
	defer os.Remove(path)
	block := make([]byte, 1<<20)
	written := 0
	for time.Now().Before(until) {
		file, err := os.Create(path)
		if err != nil {
			return outcome(err)
		}
		for i := 0; i < 64 && time.Now().Before(until); i++ {
			if _, err := file.Write(block); err != nil {
				file.Close()
				return outcome(err)
			}
			written++
		}
		if err := file.Close(); err != nil {
			return outcome(err)
		}
	}
	return fmt.Sprintf("%d MB", written)
}

// flood writes log lines as fast as they are taken.
func flood(until time.Time) string {
	lines := strings.Repeat("a line of a log that nobody asked for and nobody reads\n", 100)
	written := 0
	for time.Now().Before(until) {
		n, err := os.Stdout.WriteString(lines)
		if err != nil {
			return outcome(err)
		}
		written += n
	}
	return fmt.Sprintf("%d MB", written>>20)
}
