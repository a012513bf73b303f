// Command helper is the only program in the image that the tests of package docker run. It
// does the one thing that its first argument names.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	action, args := os.Args[1], os.Args[2:]
	actions[action](args)
}

var actions = map[string]func(args []string){
	"print": func(args []string) { fmt.Println(strings.Join(args, " ")) },
	"exit":  func(args []string) { os.Exit(number(args[0])) },
	"sleep": func(args []string) { time.Sleep(duration(args[0])) },

	// serve runs until SIGTERM, then writes a file, if it is given one, and ends with code 0.
	"serve": func(args []string) {
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		fmt.Println("serving")
		<-ended
		if len(args) > 0 {
			check(os.WriteFile(args[0], []byte(args[1]), 0o644))
		}
		fmt.Println("stopping")
	},

	// stubborn ignores SIGTERM.
	"stubborn": func([]string) {
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("serving")
		time.Sleep(time.Hour)
	},

	// both prints lines to standard output and error in turn, with a pause after each.
	"both": func(args []string) {
		for i := range number(args[0]) {
			fmt.Fprintf([]*os.File{os.Stdout, os.Stderr}[i%2], "%d\n", i)
			time.Sleep(duration(args[1]))
		}
	},

	// count prints lines, with a pause after each.
	"count": func(args []string) {
		for i := range number(args[0]) {
			fmt.Println(i)
			time.Sleep(duration(args[1]))
		}
	},

	// background starts a child that keeps the output open, and ends.
	"background": func(args []string) {
		child := exec.Command("/bin/helper", "sleep", args[0])
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		check(child.Start())
		fmt.Println("in front")
		os.Exit(number(args[1]))
	},

	// mute closes its output, goes on for a while and ends with a code.
	"mute": func(args []string) {
		fmt.Println("last words")
		os.Stdout.Close()
		os.Stderr.Close()
		time.Sleep(duration(args[0]))
		os.Exit(number(args[1]))
	},

	// long prints lines of so many bytes, with a mark after each, and a last line without
	// newline. flood prints so many bytes of short lines.
	"long": func(args []string) {
		for _, size := range args {
			fmt.Println(strings.Repeat("x", number(size)))
			fmt.Println("mark")
		}
		fmt.Print("no newline")
	},
	"flood": func(args []string) {
		out := bufio.NewWriter(os.Stdout)
		for left := number(args[0]); left > 0; left -= 100 {
			fmt.Fprintln(out, strings.Repeat("y", 99))
		}
		check(out.Flush())
	},

	// stat prints the owner and mode of paths.
	"stat": func(args []string) {
		for _, path := range args {
			info, err := os.Stat(path)
			check(err)
			owner := info.Sys().(*syscall.Stat_t)
			fmt.Printf("%s %d:%d %v\n", path, owner.Uid, owner.Gid, info.Mode())
		}
	},
	"cat": func(args []string) {
		text, err := os.ReadFile(args[0])
		check(err)
		os.Stdout.Write(text)
	},
	"write": func(args []string) { check(os.WriteFile(args[0], []byte(args[1]), 0o644)) },
	"append": func(args []string) {
		file, err := os.OpenFile(args[0], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		check(err)
		_, err = file.WriteString(args[1])
		check(err)
	},
	"mkdir": func(args []string) { check(os.Mkdir(args[0], 0o755)) },
	"env":   func(args []string) { fmt.Println(os.Getenv(args[0])) },
	"whoami": func([]string) {
		dir, err := os.Getwd()
		check(err)
		fmt.Println(os.Getuid(), os.Getgid(), dir)
	},

	// limits prints the limits that the kernel applies to this process.
	"limits": func([]string) {
		var core syscall.Rlimit
		check(syscall.Getrlimit(syscall.RLIMIT_CORE, &core))
		fmt.Println("core", core.Cur, core.Max)
		fmt.Println("pid1", os.Getpid() != 1)
		status, err := os.ReadFile("/proc/self/status")
		check(err)
		for line := range strings.Lines(string(status)) {
			key, value, _ := strings.Cut(line, ":")
			switch key {
			case "CapEff", "CapBnd", "NoNewPrivs", "Seccomp":
				fmt.Println(key, strings.TrimSpace(value))
			}
		}
	},

	// syscalls prints the results of some system calls.
	"syscalls": func([]string) {
		for _, c := range []struct {
			name            string
			number, a, b, c uintptr
		}{
			{"unshare", syscall.SYS_UNSHARE, syscall.CLONE_NEWUSER, 0, 0},
			{"clone3", 435, 0, 0, 0},
			{"vsock", syscall.SYS_SOCKET, 40, syscall.SOCK_STREAM, 0},
			{"algorithms", syscall.SYS_SOCKET, syscall.AF_ALG, syscall.SOCK_SEQPACKET, 0},
			{"unix", syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_STREAM, 0},
		} {
			if _, _, errno := syscall.Syscall(c.number, c.a, c.b, c.c); errno != 0 {
				fmt.Println(c.name, errno)
				continue
			}
			fmt.Println(c.name, "ok")
		}
	},

	// listen greets whoever connects and sends back each line; dial prints the greeting.
	"listen": func(args []string) {
		for _, addr := range args {
			listener, err := net.Listen("tcp", addr)
			check(err)
			go greet(listener)
		}
		fmt.Println("listening")
		select {}
	},
	"dial": func(args []string) {
		conn, err := net.DialTimeout("tcp", args[0], 5*time.Second)
		check(err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		check(err)
		fmt.Print(line)
	},

	// call prints the greeting and, at SIGTERM, what comes back on the same connection.
	"call": func(args []string) {
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM)
		conn, err := net.DialTimeout("tcp", args[0], 5*time.Second)
		check(err)
		lines := bufio.NewScanner(conn)
		lines.Scan()
		fmt.Println(lines.Text())
		<-ended
		check(conn.SetDeadline(time.Now().Add(5 * time.Second)))
		fmt.Fprintln(conn, "still connected")
		lines.Scan()
		check(lines.Err())
		fmt.Println(lines.Text())
	},

	// eat takes memory until the kernel kills the process.
	"eat": func([]string) {
		var eaten [][]byte
		for {
			block := make([]byte, 1<<20)
			for i := range block {
				block[i] = 1
			}
			eaten = append(eaten, block)
		}
	},
}

func greet(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		check(err)
		go func() {
			defer conn.Close()
			fmt.Fprintln(conn, "hello")
			io.Copy(conn, conn)
		}()
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	check(err)
	return d
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
