package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"time"
)

var versionNumber = regexp.MustCompile(`\d+\.\d+(\.\d+)?`)

// describe returns, in one line, the machine on which a table was made and the versions
// of the compared programs. Caddy is omitted if its path is "".
func describe(ctx context.Context, caddy string) string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	if caddy != "" {
		caddy = "Caddy " + version(ctx, caddy, "version") + ", "
	}
	return fmt.Sprintf("%d cores (%s), Linux %s, %s, Docker Engine %s, nginx %s, %swrk %s, %s",
		runtime.NumCPU(), processor(), strings.TrimSpace(string(kernel)), runtime.Version(),
		version(ctx, "docker", "version", "--format", "{{.Server.Version}}"),
		version(ctx, "nginx", "-v"), caddy, version(ctx, "wrk", "-v"),
		time.Now().UTC().Format(time.DateOnly))
}

// version returns the first version number in a program's output.
func version(ctx context.Context, name string, args ...string) string {
	out, _ := exec.CommandContext(ctx, name, args...).CombinedOutput() // wrk -v exits with 1
	if found := versionNumber.Find(out); found != nil {
		return string(found)
	}
	return "unknown"
}

// processor returns the model of the processor.
func processor() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return runtime.GOARCH
}
