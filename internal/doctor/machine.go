package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/disk"
)

// oldestAPI is the oldest version of the engine's API that Berth is tested with: that of
// Docker 20.10.
const oldestAPI = "1.41"

func checkEngine(_ context.Context, _ *Host, a answer) Check {
	switch e := a.engine; {
	case a.err != nil:
		return bad(Fail, a.err.Error(), "start the Docker engine (systemctl start docker), or set DOCKER_HOST to its address; run doctor as root")
	case e.Fault != nil:
		return bad(Fail, e.Fault.Error(), "change the setting or the engine as it says")
	case compareVersions(e.API, oldestAPI) < 0:
		return bad(Fail, fmt.Sprintf("Docker %s, with version %s of its API, is older than 20.10", e.Version, e.API), "install Docker 20.10 or newer")
	default:
		return good("Docker %s, API %s", e.Version, e.API)
	}
}

// slow are storage drivers that copy whole files or images.
var slow = []string{"vfs", "devicemapper", "aufs", "overlay"}

func checkStorage(_ context.Context, _ *Host, a answer) Check {
	e := a.engine
	detail := "storage driver " + e.Driver
	if e.Filesystem != "" {
		detail += " on " + e.Filesystem
	}
	const fix = `set "storage-driver": "overlay2" in /etc/docker/daemon.json on ext4 or xfs and restart the engine; images are built again`
	switch {
	case a.err != nil:
		return skipped(noEngine)
	case e.NoFileType:
		return bad(Fail, detail+", which does not keep the types of files in folders (d_type): removed files come back", "move the engine's data to ext4, or to xfs made with ftype=1")
	case slices.Contains(slow, e.Driver):
		return bad(Warn, detail+", which copies images as a whole: builds are slow and need much space", fix)
	}
	return good("%s", detail)
}

func checkFirewall(ctx context.Context, h *Host, a answer) Check {
	if a.err != nil {
		return skipped(noEngine)
	}
	inPlace, err := h.Firewall(ctx)
	switch {
	case err != nil && h.Unguarded:
		return bad(Warn, err.Error()+"; BERTH_ALLOW_UNGUARDED accepts stacks all the same, and they reach this machine's networks", "install iptables, run the server as root on the engine's network, then unset BERTH_ALLOW_UNGUARDED")
	case err != nil:
		return bad(Fail, err.Error(), "install iptables, and run the server (and doctor) as root or with CAP_NET_ADMIN on the engine's network")
	case inPlace:
		return good("the rules that isolate stacks are in place")
	}
	return good("the rules that isolate stacks can be set; a running server sets them")
}

func checkDNS(ctx context.Context, h *Host, a answer) Check {
	switch {
	case a.err != nil:
		return skipped(noEngine)
	case h.DNS == nil:
		return skipped("only berthd doctor runs a container for it")
	}
	ran, err := h.DNS(ctx, h.Name)
	switch {
	case err == nil:
		return good("%s resolves inside a container", h.Name)
	case !ran:
		return failed(err, "repair the engine until docker run --rm debian:trixie-slim true works; journalctl -u docker has its log")
	}
	if here := h.Here(ctx, h.Name); here != nil {
		return failed(err, "this machine does not resolve "+h.Name+" either: repair its DNS (/etc/resolv.conf)")
	}
	return failed(err, `this machine resolves the name, so containers do not reach its DNS server: open port 53 for them, or set "dns" in /etc/docker/daemon.json`)
}

// scarce is how many times the floor counts as nearly short.
const scarce = 2

// usualFloor is used for warnings where the operator has turned the floor off.
const usualFloor = 1e9

// bytesPerInode converts the floor, which is in bytes, to inodes, as package admission
// does.
const bytesPerInode = 16 << 10

func checkDisk(_ context.Context, h *Host, _ answer) Check {
	return h.checkRoom("free bytes", func(s disk.Space) int64 { return s.Bytes }, 1, humanBytes)
}

func checkInodes(_ context.Context, h *Host, _ answer) Check {
	return h.checkRoom("free inodes", func(s disk.Space) int64 { return s.Inodes }, bytesPerInode, func(n int64) string { return fmt.Sprint(n) })
}

// checkRoom compares an amount of all disks with the floor, divided by per.
func (h *Host) checkRoom(what string, of func(disk.Space) int64, per int64, show func(int64) string) Check {
	disks, err := h.Disks()
	if err != nil {
		return bad(Fail, err.Error(), "mount the disk, or set BERTH_DATA_DIR to a folder that can be read")
	}
	floor := h.Floor / per
	enough := cmp.Or(h.Floor, usualFloor) / per * scarce
	status, parts := OK, []string{}
	for _, d := range disks {
		amount := of(d)
		parts = append(parts, fmt.Sprintf("%s: %s", d.Dir, describe(amount, show)))
		switch {
		case amount < floor:
			status = Fail
		case amount < enough && status == OK:
			status = Warn
		}
	}
	detail := what + ": " + strings.Join(parts, ", ")
	fix := fmt.Sprintf("make room (docker system df shows what the engine uses), or enlarge the disk; below %s uploads and builds are refused (BERTH_DISK_FLOOR)", show(floor))
	if status == OK {
		return good("%s", detail)
	}
	return bad(status, detail, fix)
}

func describe(amount int64, show func(int64) string) string {
	if amount == disk.Endless {
		return "not known"
	}
	return show(amount)
}

// humanBytes writes a number of bytes in GB.
func humanBytes(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// skew is how far the clocks of this machine and its engine may be apart: the length of a
// request is in it.
const skew = 5 * time.Second

func checkClock(_ context.Context, h *Host, a answer) Check {
	if a.err == nil && !a.engine.Time.IsZero() {
		if apart := h.Now().Sub(a.engine.Time).Abs(); apart > skew {
			return bad(Fail, fmt.Sprintf("this machine's clock and the engine's are %s apart: the ends of logs and builds cannot be told", apart.Round(time.Second)), "synchronize both clocks, for example with systemd-timesyncd or chrony")
		}
	}
	synchronized, err := h.Synchronized()
	switch {
	case err != nil:
		return skipped("the kernel does not say whether the clock is synchronized: %v", err)
	case !synchronized:
		return bad(Warn, "nothing synchronizes the clock: signatures of webhooks and certificates depend on it", "run systemd-timesyncd or chrony (timedatectl set-ntp true)")
	}
	return good("the clock is synchronized")
}
