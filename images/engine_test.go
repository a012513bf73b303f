package images

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a PATH of stand-ins on which a script runs; each writes its call into
// a log.
type machine struct {
	t   *testing.T
	dir string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	m := machine{t, t.TempDir()}
	for _, tool := range []string{"sh", "grep", "setsid", "nohup", "sleep", "tail", "cat", "touch", "mktemp", "chmod", "rm"} {
		found, err := exec.LookPath(tool)
		if err != nil {
			t.Skipf("%s is missing here", tool)
		}
		if err := os.Symlink(found, filepath.Join(m.dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	m.fake("id", "echo 0")
	m.fake("pidof", "exit 1")
	m.fake("apt-cache", "exit 1")
	m.file("os-release", "ID=debian\n")
	return m
}

func (m machine) file(name, content string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), []byte(content), 0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) fake(name, script string) {
	m.file(name, "#!/bin/sh\necho \""+name+" $*\" >>\"$MACHINE/calls\"\n"+script+"\n")
}

// run returns what engine.sh said, whether it succeeded, and the calls it made.
func (m machine) run(env ...string) (said string, ok bool, calls string) {
	m.t.Helper()
	return m.script("engine.sh", env...)
}

// script runs a script with its arguments as run does.
func (m machine) script(line string, env ...string) (said string, ok bool, calls string) {
	m.t.Helper()
	command := exec.CommandContext(m.t.Context(), "sh", strings.Fields(line)...)
	command.Env = append(env, "PATH="+m.dir, "MACHINE="+m.dir, "BERTH_OS_RELEASE="+m.dir+"/os-release",
		"BERTH_SYSTEMD="+m.dir+"/none", "BERTH_DOCKERD_LOG="+m.dir+"/dockerd.log")
	out, err := command.CombinedOutput()
	written, _ := os.ReadFile(filepath.Join(m.dir, "calls"))
	return string(out), err == nil, string(written)
}

const (
	answersOnceStarted = `[ -e "$MACHINE/up" ] && echo 28.0`
	// The real one stays in the foreground; this one lets the test end.
	comesUp = `touch "$MACHINE/up"`
)

func TestEngine_UsesTheOneThatAnswers(t *testing.T) {
	m := newMachine(t)
	m.fake("docker", "echo 28.0")
	m.fake("apt-get", "")
	said, ok, calls := m.run()
	if !ok || said != "engine.sh: Docker Engine 28.0 answers\n" || strings.Contains(calls, "apt-get") {
		t.Errorf("said %q, %v, called %q", said, ok, calls)
	}
}

func TestEngine_InstallsAndStartsOnDebianAsRoot(t *testing.T) {
	m := newMachine(t)
	m.fake("apt-get", `case "$*" in *install*)
	printf '#!/bin/sh\n%s\n' '`+answersOnceStarted+`' >"$MACHINE/docker"
	printf '#!/bin/sh\n%s\n' '`+comesUp+`; sleep 5' >"$MACHINE/dockerd"
	: >"$MACHINE/iptables"
	for x in docker dockerd iptables; do /bin/chmod +x "$MACHINE/$x"; done
esac`)
	said, ok, calls := m.run()
	if !ok || !strings.Contains(calls, "docker.io iptables mmdebstrap ca-certificates iproute2") {
		t.Errorf("said %q, %v, called %q", said, ok, calls)
	}
	for _, line := range []string{"installing docker.io", "starting dockerd", "Docker Engine 28.0 answers"} {
		if !strings.Contains(said, line) {
			t.Errorf("%q does not say %q", said, line)
		}
	}
}

func TestEngine_StartsWhatIsInstalledWithoutInstalling(t *testing.T) {
	m := newMachine(t)
	m.fake("docker", answersOnceStarted)
	m.fake("dockerd", comesUp+"; sleep 5")
	m.fake("iptables", "")
	m.fake("apt-get", "")
	if said, ok, calls := m.run(); !ok || strings.Contains(calls, "apt-get") {
		t.Errorf("said %q, %v, called %q", said, ok, calls)
	}
}

func TestEngine_SaysInOneLineWhatIsMissing(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(machine)
		env     string
		want    string
	}{
		"not root":       {func(m machine) { m.fake("id", "echo 1000"); m.fake("apt-get", "") }, "", "install Docker Engine"},
		"another system": {func(m machine) { m.file("os-release", "ID=alpine\n"); m.fake("apt-get", "") }, "", "install Docker Engine"},
		"no apt":         {func(machine) {}, "", "install Docker Engine"},
		"DOCKER_HOST":    {func(m machine) { m.fake("apt-get", "") }, "DOCKER_HOST=unix:///none", "nothing answers at DOCKER_HOST=unix:///none"},
		"it ends": {func(m machine) {
			m.fake("docker", "exit 1")
			m.fake("dockerd", "echo no disk; exit 1")
			m.fake("iptables", "")
			m.fake("apt-get", "")
		}, "", "dockerd ended: no disk"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			c.prepare(m)
			said, ok, calls := m.run(c.env)
			last := said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]
			if ok || !strings.Contains(last, c.want) || strings.Contains(calls, "install") {
				t.Errorf("said %q, %v, called %q", said, ok, calls)
			}
		})
	}
}

func TestDebian_ReplacesAnImageWithoutFiles(t *testing.T) {
	for size, want := range map[string]string{"echo 0": "pulled debian:trixie-slim", "exit 1": "pulled debian:trixie-slim", "echo 81123938": ""} {
		m := newMachine(t)
		m.fake("timeout", "")
		m.fake("docker", size)
		if said, ok, calls := m.script("debian.sh"); !ok || strings.Contains(calls, "docker pull") != (want != "") || !strings.Contains(said, want) {
			t.Errorf("%s: said %q, %v, called %q", size, said, ok, calls)
		}
	}
}

func TestDebian_NamesTMPDIRIfNoProgramRunsThere(t *testing.T) {
	for name, noexec := range map[string]bool{"noexec": true, "exec": false} {
		m := newMachine(t)
		m.fake("mmdebstrap", "")
		m.fake("apt-get", "")
		if noexec {
			if err := os.Remove(filepath.Join(m.dir, "chmod")); err != nil {
				t.Fatal(err)
			}
			m.fake("chmod", "")
		}
		temp := t.TempDir()
		said, ok, calls := m.script("debian.sh rootfs", "TMPDIR="+temp)
		if ok == noexec || strings.Contains(said, temp+", which is probably mounted noexec: set TMPDIR") != noexec || strings.Contains(calls, "mmdebstrap --quiet") == noexec {
			t.Errorf("%s: said %q, %v, called %q", name, said, ok, calls)
		}
		if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
			t.Errorf("%s: left %v, %v", name, left, err)
		}
	}
}
