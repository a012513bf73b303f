package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
)

// Versions of the packages that the tests build.
const (
	oldVersion = "1.2.3"
	newVersion = "1.3.0"
)

// makePackages builds the packages of both versions once, the older one for amd64 alone.
var makePackages = sync.OnceValues(func() (string, error) {
	dist := filepath.Join(scratch, "dist")
	for version, archs := range map[string]string{oldVersion: "amd64", newVersion: "amd64 arm64"} {
		cmd := exec.Command("../packaging/build.sh")
		cmd.Env = append(os.Environ(), "VERSION="+version, "ARCHS="+archs, "DIST="+dist, "STAGE="+filepath.Join(scratch, "stage-"+version))
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build packages: %w\n%s", err, out)
		}
	}
	return dist, nil
})

// needPackages returns the folder of the packages.
func needPackages(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		lacks(t, "dpkg-deb is not installed, which the tests of packages need")
	}
	dist, err := makePackages()
	require.NoError(t, err)
	return dist
}

// prints runs a program of this machine and returns what it prints.
func prints(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, complaint bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	require.NoError(t, cmd.Run(), "%s %v: %s", name, args, &complaint)
	return out.String()
}

func TestPackages_HaveTheFilesOfBothArchitectures(t *testing.T) {
	t.Parallel()
	dist := needPackages(t)
	files := map[string][]string{
		"berthd": {"-rwxr-xr-x ./usr/bin/berthd", "-rw-r--r-- ./usr/lib/systemd/system/berthd.service", "-rw-r--r-- ./usr/share/berthd/berthd.env", "-rw-r--r-- ./usr/share/man/man8/berthd.8.gz", "-rw-r--r-- ./usr/share/bash-completion/completions/berthd", "-rw-r--r-- ./etc/needrestart/conf.d/berthd.conf"},
		"berth":  {"-rwxr-xr-x ./usr/bin/berth", "-rw-r--r-- ./usr/share/man/man1/berth.1.gz", "-rw-r--r-- ./usr/share/bash-completion/completions/berth"},
	}
	for arch, machine := range map[string]byte{"amd64": 0x3e, "arm64": 0xb7} {
		for name, want := range files {
			deb := filepath.Join(dist, fmt.Sprintf("%s_%s_%s.deb", name, newVersion, arch))
			require.Equal(t, arch, strings.TrimSpace(prints(t, "dpkg-deb", "--field", deb, "Architecture")))
			require.Equal(t, newVersion, strings.TrimSpace(prints(t, "dpkg-deb", "--field", deb, "Version")))
			var listed []string
			for line := range strings.Lines(prints(t, "dpkg-deb", "--contents", deb)) {
				fields := strings.Fields(line)
				listed = append(listed, fields[0]+" "+fields[len(fields)-1])
			}
			require.Subset(t, listed, want)
			requireStatic(t, deb, "usr/bin/"+name, machine)
		}
		archive := filepath.Join(dist, "berth-"+newVersion+"-linux-"+arch+".tar.gz")
		listed := prints(t, "tar", "-tzf", archive)
		for _, file := range []string{"berth", "berthd", "berth.1", "berthd.8", "berth.bash", "berthd.bash", "berthd.env", "berthd.service", "LICENSE"} {
			require.Contains(t, listed, "berth-"+newVersion+"-linux-"+arch+"/"+file+"\n")
		}
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = dist
	out, err := sums.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// requireStatic requires that a program of a package is for a machine, an ELF number, and
// needs no interpreter.
func requireStatic(t *testing.T, deb, program string, machine byte) {
	t.Helper()
	dir := t.TempDir()
	prints(t, "dpkg-deb", "--extract", deb, dir)
	file, err := os.ReadFile(filepath.Join(dir, program))
	require.NoError(t, err)
	require.Equal(t, machine, file[18], "machine of %s", deb)
	require.NotContains(t, string(file[:4096]), "/lib", "it has an interpreter")
}

const systemdDockerfile = `FROM ` + baseImage + `
ARG DEBIAN_MIRROR
COPY ca.crt install.sh /berth/
RUN sh /berth/install.sh systemd iptables man-db bash-completion curl
`

// asInit makes a control group hierarchy of the container's own, and runs systemd on it.
const asInit = `umount -R /sys/fs/cgroup; mount -o remount,rw /sys && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec /lib/systemd/systemd`

// machine is a container on which packages are installed.
type machine struct {
	container *testcontainers.DockerContainer
}

// boot runs a Debian until the test ends.
func boot(t *testing.T, dockerfile string, command []string, host func(*container.HostConfig)) machine {
	t.Helper()
	needBase(t)
	files, err := installFiles()
	require.NoError(t, err)
	files["Dockerfile"] = []byte(dockerfile)
	image, err := packContext(files)
	require.NoError(t, err)
	var log bytes.Buffer
	c, err := testcontainers.Run(t.Context(), "",
		testcontainers.WithDockerfile(testcontainers.FromDockerfile{
			ContextArchive: image, Repo: "berth-test-systemd", Tag: "latest", KeepImage: true, BuildArgs: buildArgs(), BuildLogWriter: &log,
		}),
		testcontainers.WithCmd(command...),
		testcontainers.WithLabels(map[string]string{labelInstance: instanceName(0)}),
		testcontainers.WithHostConfigModifier(host),
	)
	t.Cleanup(func() {
		if c != nil {
			require.NoError(t, c.Terminate(context.Background(), testcontainers.StopTimeout(0)))
		}
	})
	require.NoError(t, err, "%s", log.String())
	return machine{c}
}

// try runs a script and returns its exit code and what it prints.
func (m machine) try(t *testing.T, script string) (int, string) {
	t.Helper()
	code, out, err := m.container.Exec(t.Context(), []string{"sh", "-c", script}, tcexec.Multiplexed())
	require.NoError(t, err)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	return code, string(text)
}

// sh runs a script that has to succeed.
func (m machine) sh(t *testing.T, script string) string {
	t.Helper()
	code, out := m.try(t, script)
	require.Zero(t, code, "%s\n%s", script, out)
	return strings.TrimSpace(out)
}

// bootSystemd runs a Debian with systemd, which has the packages in /dist and the engine's
// socket.
func bootSystemd(t *testing.T) machine {
	dist := needPackages(t)
	m := boot(t, systemdDockerfile, []string{"sh", "-c", asInit}, func(c *container.HostConfig) {
		c.CapAdd = []string{"SYS_ADMIN", "NET_ADMIN"}
		c.SecurityOpt = []string{"seccomp=unconfined", "apparmor=unconfined"}
		c.Tmpfs = map[string]string{"/run": "", "/tmp": ""}
		c.Binds = []string{dist + ":/dist:ro", "/var/run/docker.sock:/engine.sock"}
	})
	eventually(t, "systemd is up", func() error {
		if code, out := m.try(t, "systemctl is-system-running"); code != 0 {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
	return m
}

func TestPackages_RunUnderSystemd(t *testing.T) {
	t.Parallel()
	m := bootSystemd(t)
	require.Contains(t, m.sh(t, "dpkg -i /dist/*_1.2.3_amd64.deb"), "systemctl enable --now berthd")
	require.Equal(t, "berthd version 1.2.3\nberth version 1.2.3", m.sh(t, "berthd --version && berth --version"))
	require.Equal(t, "600 root:root", m.sh(t, "stat -c '%a %U:%G' /etc/berth/berthd.env"))
	m.requireSafeUnit(t)
	m.requireDocumented(t)

	_, state := m.try(t, "systemctl is-enabled berthd; systemctl is-active berthd")
	require.Equal(t, "disabled\ninactive\n", state, "nobody has set its addresses")
	m.sh(t, `printf 'DOCKER_HOST=unix:///engine.sock\nBERTH_LISTEN=:8181\n' >>/etc/berth/berthd.env`)
	m.sh(t, "systemctl enable --now berthd")
	m.requireServing(t)
	require.Equal(t, "700", m.sh(t, "stat -c %a /var/lib/berth"))
	require.Regexp(t, `^as_live_\w+$`, m.sh(t, "cd / && berthd account create ana@example.com 2>/dev/null"), "a command does not use the service's data")
	instance, pid := m.sh(t, "cat /var/lib/berth/instance"), m.sh(t, "systemctl show -P MainPID berthd")

	m.sh(t, `dpkg-deb -R /dist/berthd_1.3.0_amd64.deb /tmp/broken && printf '#!/bin/sh\nexit 3\n' >/tmp/broken/usr/bin/berthd &&
		sed -i 's/^Version: .*/Version: 1.2.9/' /tmp/broken/DEBIAN/control && dpkg-deb -Znone -b /tmp/broken /tmp/broken.deb`)
	require.Contains(t, m.sh(t, "dpkg -i /tmp/broken.deb </dev/null"), "the new version does not start, and the old one serves on; see journalctl -u berthd")
	m.requireServing(t)
	require.Equal(t, pid, m.sh(t, "systemctl show -P MainPID berthd"))

	require.NotContains(t, m.sh(t, "dpkg -i /dist/*_1.3.0_amd64.deb </dev/null"), "does not start")
	eventually(t, "the new version runs", func() error {
		if now := m.sh(t, "systemctl show -P MainPID berthd"); now == pid || now == "0" {
			return fmt.Errorf("the main process is %s", now)
		}
		return nil
	})
	m.requireServing(t)
	require.Equal(t, "berthd version 1.3.0", m.sh(t, "berthd --version"))
	require.Equal(t, "active 0", m.sh(t, `echo "$(systemctl is-active berthd)" "$(systemctl show -P NRestarts berthd)"`), "it was restarted, not reloaded")
	require.Contains(t, m.sh(t, "journalctl -u berthd"), `"msg":"reloaded"`)
	eventually(t, "the version before ends", func() error {
		if code, _ := m.try(t, "test -e /proc/"+pid); code == 0 {
			return errors.New("it runs")
		}
		return nil
	})
	m.requireDrainsAfterReload(t)
	require.Equal(t, instance, m.sh(t, "cat /var/lib/berth/instance"))
	require.Contains(t, m.sh(t, "tail -1 /etc/berth/berthd.env; stat -c %a /etc/berth/berthd.env"), "BERTH_LISTEN=:8181\n600")

	m.sh(t, "systemctl disable --now berthd") // the seventh command of docs/operating/cluster.md
	_, state = m.try(t, "systemctl is-enabled berthd; systemctl is-active berthd")
	require.Equal(t, "disabled\ninactive\n", state)
	m.sh(t, "test -s /var/lib/berth/berth.db && test -s /var/lib/berth/key")
	m.sh(t, "systemctl enable --now berthd")
	m.requireServing(t)

	m.sh(t, "dpkg -r berthd")
	_, state = m.try(t, "systemctl is-active berthd")
	require.Equal(t, "inactive\n", state)
	require.Equal(t, instance, m.sh(t, "cat /var/lib/berth/instance"), "the state is gone")
	m.sh(t, "test -e /etc/berth/berthd.env && test ! -e /etc/systemd/system/multi-user.target.wants/berthd.service")

	require.Contains(t, m.sh(t, "dpkg -P berthd berth"), "--filter label=berth.instance="+instance)
	m.sh(t, "test ! -e /var/lib/berth && test ! -e /etc/berth && test ! -e /usr/bin/berth")
	_, failed := m.try(t, "systemctl --failed --no-legend")
	require.Empty(t, failed)
}

// requireDrainsAfterReload requires that a restart waits for an open request, as a reload does, also
// after a reload, and that the service comes back if its main process is killed.
func (m machine) requireDrainsAfterReload(t *testing.T) {
	t.Helper()
	require.NotContains(t, m.sh(t, "journalctl -u berthd"), "not our child")
	m.sh(t, `(printf 'POST /v0/validate HTTP/1.1\r\nHost: localhost:8181\r\nContent-Type: application/json\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{"files"'; sleep 4; printf ':{} }') |
		bash -c 'exec 3<>/dev/tcp/localhost/8181 4<&0; cat <&4 >&3 & cat <&3 >/tmp/answer; wait' & sleep 2; systemctl restart berthd; wait`)
	require.Regexp(t, "^HTTP/1.1 [24]", m.sh(t, "head -1 /tmp/answer"), "a request was cut off by the restart")
	m.requireServing(t)
	_, failed := m.try(t, "systemctl --failed --no-legend")
	require.Empty(t, failed)

	pid := m.sh(t, "systemctl show -P MainPID berthd")
	m.sh(t, "systemctl reload berthd && kill -9 $(systemctl show -P MainPID berthd)")
	eventually(t, "the service is restarted", func() error {
		if now := m.sh(t, "systemctl show -P MainPID berthd"); now == pid || now == "0" {
			return fmt.Errorf("the main process is %s", now)
		}
		_, err := m.try(t, "curl -sS --fail-with-body localhost:8181/healthz")
		if err != `{"ok":true}` {
			return errors.New(err)
		}
		return nil
	})
	m.requireServing(t)
}

// requireSafeUnit requires that systemd finds no fault in the unit, and that it is closed
// well enough.
func (m machine) requireSafeUnit(t *testing.T) {
	t.Helper()
	require.Empty(t, m.sh(t, "systemd-analyze verify --man=no berthd.service 2>&1"))
	text := m.sh(t, "systemd-analyze security --offline=true berthd.service | grep -o 'level for berthd.service: [0-9.]*'")
	level, err := strconv.ParseFloat(strings.Fields(text)[3], 64)
	require.NoError(t, err)
	require.LessOrEqual(t, level, 6.0)
	t.Log(text)
}

// requireDocumented requires manual pages without faults, and completion of commands.
func (m machine) requireDocumented(t *testing.T) {
	t.Helper()
	// Debian's images leave manual pages out when they install a package.
	m.sh(t, "for deb in /dist/*_1.2.3_amd64.deb; do dpkg-deb -x $deb /tmp/x; done")
	for page, says := range map[string]string{"man8/berthd.8.gz": "--admin-listen", "man1/berth.1.gz": "deploy"} {
		text := m.sh(t, "man -l --warnings -Tascii -P cat /tmp/x/usr/share/man/"+page)
		require.Contains(t, text, says)
		require.NotContains(t, text, "warning:")
	}
	const complete = `bash -c '. /usr/share/bash-completion/bash_completion; . /usr/share/bash-completion/completions/%[1]s
		COMP_WORDS=(%[1]s %[2]s); COMP_CWORD=1; COMP_LINE="%[1]s %[2]s"; COMP_POINT=${#COMP_LINE}; __start_%[1]s 2>/dev/null; echo ${COMPREPLY[@]}'`
	require.Equal(t, "deploy", m.sh(t, fmt.Sprintf(complete, "berth", "dep")))
	require.Equal(t, "config", m.sh(t, fmt.Sprintf(complete, "berthd", "conf")))
}

// requireServing requires that the service is ready and answers.
func (m machine) requireServing(t *testing.T) {
	t.Helper()
	require.Equal(t, "active", m.sh(t, "systemctl is-active berthd"))
	require.Equal(t, "serving http://localhost:8080", m.sh(t, "systemctl show -P StatusText berthd"))
	require.Equal(t, `{"ok":true}`, m.sh(t, "curl -sS --fail-with-body localhost:8181/healthz"))
	require.Equal(t, "2min", m.sh(t, "systemctl show -P WatchdogUSec berthd"))
	require.NotEqual(t, "0", m.sh(t, "systemctl show -P WatchdogTimestampMonotonic berthd"), "it gives no sign of life")
}

func TestPackages_InstallWithoutSystemdAndWithoutANetwork(t *testing.T) {
	t.Parallel()
	dist := needPackages(t)
	m := boot(t, systemdDockerfile, []string{"sleep", "infinity"}, func(c *container.HostConfig) {
		c.NetworkMode = "none"
		c.Binds = []string{dist + ":/dist:ro"}
	})
	// The new version has another text.
	m.sh(t, "dpkg-deb -R /dist/berthd_1.2.3_amd64.deb /tmp/x && echo '# before' >>$(find /tmp/x -name berthd.env) && dpkg-deb -Znone -b /tmp/x /tmp/before.deb")
	m.sh(t, "dpkg -i /tmp/before.deb /dist/berth_1.2.3_amd64.deb")
	m.sh(t, "echo BERTH_LISTEN=:8181 >>/etc/berth/berthd.env && mkdir -p /var/lib/berth && touch /var/lib/berth/kept")
	require.Contains(t, m.sh(t, "berthd config"), ":8181")
	m.requireUpgraded(t)
	m.sh(t, "dpkg -r berthd berth && test -e /var/lib/berth/kept && test -e /etc/berth/berthd.env")
	m.sh(t, "dpkg -P berthd berth && test ! -e /var/lib/berth && test ! -e /etc/berth")

	// Earlier packages had the file as a conffile, about which dpkg asks.
	m.sh(t, "cd /tmp/x && mkdir -p etc/berth && mv usr/share/berthd/berthd.env etc/berth && echo /etc/berth/berthd.env >DEBIAN/conffiles && chmod 600 etc/berth/berthd.env && dpkg-deb -Znone -b . /tmp/conffile.deb")
	m.sh(t, "dpkg -i /tmp/conffile.deb && echo BERTH_LISTEN=:8181 >>/etc/berth/berthd.env")
	m.requireUpgraded(t)
	m.sh(t, "touch /etc/berth/root.pem && dpkg -P berthd berth && test ! -e /etc/berth/berthd.env && test -e /etc/berth/root.pem")
}

// requireUpgraded upgrades where nobody answers a question, and requires that the settings are
// those from before.
func (m machine) requireUpgraded(t *testing.T) {
	t.Helper()
	before := m.sh(t, "cat /etc/berth/berthd.env")
	require.Contains(t, before, "# before\nBERTH_LISTEN=:8181")
	m.sh(t, "dpkg -i /dist/*_1.3.0_amd64.deb <&-")
	require.Equal(t, before, m.sh(t, "cat /etc/berth/berthd.env"))
	require.Equal(t, "600 root:root", m.sh(t, "stat -c '%a %U:%G' /etc/berth/berthd.env"))
	require.Equal(t, "install ok installed", m.sh(t, "dpkg-query -W -f '${Status}' berthd"))
}
