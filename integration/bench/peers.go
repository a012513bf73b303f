package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// caddyModule is built if Debian has no package of Caddy.
const caddyModule = "github.com/caddyserver/caddy/v2/cmd/caddy@v2.11.9"

// installTools installs nginx and wrk if needed.
func installTools(ctx context.Context) error {
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	for _, name := range []string{"nginx", "wrk", "haproxy"} {
		if err := install(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// installCaddy installs Caddy if needed and returns its path: Debian's package, or a
// program built from its module into bin.
func installCaddy(ctx context.Context, bin string) (path string, err error) {
	built := filepath.Join(bin, "caddy")
	if _, err := os.Stat(built); err == nil {
		return built, nil
	}
	if err := install(ctx, "caddy"); err == nil {
		return exec.LookPath("caddy")
	}
	progress("building %s", caddyModule)
	if err := quiet(ctx, []string{"GOBIN=" + bin, "CGO_ENABLED=0"}, "go", "install", caddyModule); err != nil {
		return "", err
	}
	return built, nil
}

// install installs the package of a program unless the program is there.
func install(ctx context.Context, name string) error {
	if _, err := exec.LookPath(name); err == nil {
		return nil
	}
	progress("installing %s", name)
	allow, err := denyServices()
	if err != nil {
		return err
	}
	defer allow()
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	get := []string{"install", "-y", "-qq", "--no-install-recommends", name}
	if err := quiet(ctx, env, "apt-get", get...); err == nil {
		return nil
	}
	if err := quiet(ctx, env, "apt-get", "update", "-qq"); err != nil {
		return err
	}
	return quiet(ctx, env, "apt-get", get...)
}

// denyServices keeps Debian from starting, on all addresses and permanently, the
// servers that it installs, until allow is called.
func denyServices() (allow func(), err error) {
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); err == nil {
		return func() {}, nil
	}
	if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return nil, fmt.Errorf("packages cannot be installed by this user: %w", err)
	}
	return func() { os.Remove(policy) }, nil
}

// goBuild builds programs of the module in source into bin.
func goBuild(ctx context.Context, source, bin string, packages ...string) error {
	args := append([]string{"-C", source, "build", "-trimpath", "-buildvcs=false", "-o", bin + "/"}, packages...)
	return quiet(ctx, []string{"CGO_ENABLED=0"}, "go", args...)
}

// quiet runs a command and shows its output only if it fails.
func quiet(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, args, err, out)
	}
	return nil
}
