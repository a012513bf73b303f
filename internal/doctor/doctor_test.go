package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/doctor"
)

var (
	now      = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	errFault = errors.New("a fault")
)

// well is a host on which every check is ok.
func well() doctor.Host {
	return doctor.Host{
		Engine: func(context.Context) (doctor.Engine, error) {
			return doctor.Engine{Version: "28.0.0", API: "1.48", Driver: "overlay2", Filesystem: "extfs", Time: now, Runc: "1.3.3"}, nil
		},
		Firewall: func(context.Context) (bool, error) { return true, nil },
		DNS:      func(context.Context, string) (bool, error) { return true, nil },
		Here:     func(context.Context, string) error { return nil },
		Name:     "registry.test",
		Disks: func() ([]disk.Space, error) {
			return []disk.Space{{Dir: "/data", Bytes: 50e9, Inodes: 1e6}, {Dir: "/docker", Bytes: 50e9, Inodes: disk.Endless}}, nil
		},
		Floor:        1e9,
		Synchronized: func() (bool, error) { return true, nil },
		Now:          func() time.Time { return now },
		Redis:        func(context.Context) error { return nil },
		Database:     func(context.Context) (string, error) { return "it is whole", nil },
		Certificates: func(context.Context) ([]doctor.Certificate, error) {
			return []doctor.Certificate{{Name: "berth.test", End: now.AddDate(0, 2, 0)}}, nil
		},
		Images:    func(context.Context) ([]string, error) { return nil, nil },
		PublicURL: func(context.Context) error { return nil },
		URL:       "https://berth.test",
	}
}

var names = strings.Fields("engine storage firewall dns disk inodes clock redis database certificates images runc public-url")

func TestExamine_OfAHostThatIsWell(t *testing.T) {
	report := doctor.Examine(t.Context(), well())
	require.True(t, report.OK)
	var found []string
	for _, c := range report.Checks {
		found = append(found, c.Name)
		require.Equal(t, doctor.OK, c.Status, "%s: %s", c.Name, c.Detail)
		require.NotEmpty(t, c.Detail, c.Name)
		require.Empty(t, c.Fix, c.Name)
	}
	require.Equal(t, names, found)
}

// engineWith changes what the engine of a host says.
func engineWith(change func(*doctor.Engine)) func(*doctor.Host) {
	return func(h *doctor.Host) {
		ask := h.Engine
		h.Engine = func(ctx context.Context) (doctor.Engine, error) {
			e, err := ask(ctx)
			change(&e)
			return e, err
		}
	}
}

func diskWith(change func(*disk.Space)) func(*doctor.Host) {
	return func(h *doctor.Host) {
		h.Disks = func() ([]disk.Space, error) {
			low := disk.Space{Dir: "/docker", Bytes: 50e9, Inodes: 1e6}
			change(&low)
			return []disk.Space{{Dir: "/data", Bytes: 50e9, Inodes: 1e6}, low}, nil
		}
	}
}

func ending(at time.Time) func(*doctor.Host) {
	return func(h *doctor.Host) {
		h.Certificates = func(context.Context) ([]doctor.Certificate, error) {
			return []doctor.Certificate{{Name: "good.test", End: now.AddDate(1, 0, 0)}, {Name: "old.test", End: at}}, nil
		}
	}
}

func runc(version string) func(*doctor.Host) {
	return engineWith(func(e *doctor.Engine) { e.Runc = version })
}

// faults are what each check finds. detail is a part of what it says, fix of what to do.
var faults = []struct {
	name        string
	change      func(*doctor.Host)
	status      doctor.Status
	detail, fix string
}{
	{"engine", func(h *doctor.Host) {
		h.Engine = func(context.Context) (doctor.Engine, error) { return doctor.Engine{}, errFault }
	}, doctor.Fail, "a fault", "systemctl start docker"},
	{"engine", engineWith(func(e *doctor.Engine) { e.API = "1.40" }), doctor.Fail, "1.40", "Docker 20.10 or newer"},
	{"engine", engineWith(func(e *doctor.Engine) { e.Fault = errFault }), doctor.Fail, "a fault", "change the setting"},
	{"storage", engineWith(func(e *doctor.Engine) { e.Driver = "vfs" }), doctor.Warn, "vfs on extfs", "overlay2"},
	{"storage", engineWith(func(e *doctor.Engine) { e.NoFileType = true }), doctor.Fail, "d_type", "ftype=1"},
	{"firewall", func(h *doctor.Host) { h.Firewall = func(context.Context) (bool, error) { return false, errFault } }, doctor.Fail, "a fault", "iptables"},
	{"firewall", func(h *doctor.Host) {
		h.Unguarded = true
		h.Firewall = func(context.Context) (bool, error) { return false, errFault }
	}, doctor.Warn, "BERTH_ALLOW_UNGUARDED", "unset BERTH_ALLOW_UNGUARDED"},
	{"firewall", func(h *doctor.Host) { h.Firewall = func(context.Context) (bool, error) { return false, nil } }, doctor.OK, "can be set", ""},
	{"dns", func(h *doctor.Host) {
		h.DNS = func(context.Context, string) (bool, error) { return true, errFault }
	}, doctor.Fail, "a fault", "port 53"},
	{"dns", func(h *doctor.Host) {
		h.DNS = func(context.Context, string) (bool, error) { return true, errFault }
		h.Here = func(context.Context, string) error { return errFault }
	}, doctor.Fail, "a fault", "this machine does not resolve registry.test either"},
	{"dns", func(h *doctor.Host) {
		h.DNS = func(context.Context, string) (bool, error) { return false, errFault }
		h.Here = func(context.Context, string) error { return errFault }
	}, doctor.Fail, "a fault", "repair the engine"},
	{"dns", func(h *doctor.Host) {
		h.DNS = func(context.Context, string) (bool, error) { return false, doctor.Skipped("no %s", "image") }
	}, doctor.Skip, "no image", ""},
	{"dns", func(h *doctor.Host) { h.DNS = nil }, doctor.Skip, "berthd doctor", ""},
	{"disk", diskWith(func(s *disk.Space) { s.Bytes = 9e8 }), doctor.Fail, "/docker: 0.9 GB", "BERTH_DISK_FLOOR"},
	{"disk", diskWith(func(s *disk.Space) { s.Bytes = 15e8 }), doctor.Warn, "/docker: 1.5 GB", "make room"},
	{"disk", func(h *doctor.Host) {
		h.Floor = 0
		diskWith(func(s *disk.Space) { s.Bytes = 1 })(h)
	}, doctor.Warn, "/docker: 0.0 GB", "make room"},
	{"disk", func(h *doctor.Host) { h.Disks = func() ([]disk.Space, error) { return nil, errFault } }, doctor.Fail, "a fault", "mount"},
	{"inodes", diskWith(func(s *disk.Space) { s.Inodes = 60_000 }), doctor.Fail, "/docker: 60000", "below 61035"},
	{"inodes", diskWith(func(s *disk.Space) { s.Inodes = 100_000 }), doctor.Warn, "/docker: 100000", "make room"},
	{"clock", engineWith(func(e *doctor.Engine) { e.Time = now.Add(time.Minute) }), doctor.Fail, "1m0s apart", "synchronize"},
	{"clock", func(h *doctor.Host) { h.Synchronized = func() (bool, error) { return false, nil } }, doctor.Warn, "nothing synchronizes", "chrony"},
	{"clock", func(h *doctor.Host) { h.Synchronized = func() (bool, error) { return false, errFault } }, doctor.Skip, "a fault", ""},
	{"redis", func(h *doctor.Host) { h.Redis = func(context.Context) error { return errFault } }, doctor.Warn, "a fault", "BERTH_REDIS_URL"},
	{"redis", func(h *doctor.Host) { h.Redis = nil }, doctor.OK, "embedded", ""},
	{"database", func(h *doctor.Host) { h.Database = func(context.Context) (string, error) { return "", errFault } }, doctor.Fail, "a fault", "do as it says"},
	{"certificates", ending(now.Add(-time.Hour)), doctor.Fail, "old.test has ended on 2026-11-25", "renew"},
	{"certificates", ending(now.AddDate(0, 0, 13)), doctor.Warn, "old.test ends on 2026-12-08", "renew"},
	{"certificates", func(h *doctor.Host) {
		h.Certificates = func(context.Context) ([]doctor.Certificate, error) { return nil, errFault }
	}, doctor.Fail, "a fault", "BERTH_TLS_CERT"},
	{"certificates", func(h *doctor.Host) {
		h.Certificates = func(context.Context) ([]doctor.Certificate, error) { return nil, nil }
	}, doctor.OK, "none yet", ""},
	{"certificates", func(h *doctor.Host) { h.Certificates, h.NoTLS = nil, "plain HTTP" }, doctor.Skip, "plain HTTP", ""},
	{"images", func(h *doctor.Host) {
		h.Images = func(context.Context) ([]string, error) { return []string{"node@22"}, nil }
	}, doctor.Warn, "node@22", "berthd images build"},
	{"images", func(h *doctor.Host) {
		h.Images = func(context.Context) ([]string, error) { return nil, errFault }
	}, doctor.Fail, "a fault", "journalctl"},
	{"runc", runc("1.1.11"), doctor.Fail, "CVE-2024-21626", "1.2.8"},
	{"runc", runc("1.1.12"), doctor.Fail, "CVE-2025-31133", "1.2.8"},
	{"runc", runc("v1.2.7"), doctor.Fail, "CVE-2025-52881", "1.3.3"},
	{"runc", runc("1.3.0-rc.1"), doctor.Fail, "CVE-2025-52881", "1.3.3"},
	{"runc", runc("1.2.8"), doctor.OK, "runc 1.2.8", ""},
	{"runc", runc("1.4.0"), doctor.OK, "runc 1.4.0", ""},
	{"runc", runc("1.4.0-rc.2"), doctor.Fail, "CVE-2025-52881", "1.3.3"},
	{"runc", runc("1.4.0-rc.3"), doctor.OK, "runc 1.4.0-rc.3", ""},
	{"runc", runc("1.1.5+ds1"), doctor.Warn, "only the distribution knows", "apt-get install runc"},
	{"runc", runc(""), doctor.Skip, "does not say", ""},
	{"runc", runc("main"), doctor.Skip, "not known", ""},
	{"public-url", func(h *doctor.Host) { h.PublicURL = func(context.Context) error { return errFault } }, doctor.Fail, "a fault", "BERTH_BASE_URL"},
	{"public-url", func(h *doctor.Host) { h.PublicURL, h.NotPublic = nil, "not now" }, doctor.Skip, "not now", ""},
}

func TestExamine_SaysWhatEachFaultIsAndWhatToDo(t *testing.T) {
	failing := map[string]bool{}
	for _, f := range faults {
		host := well()
		f.change(&host)
		report := doctor.Examine(t.Context(), host)
		found := report.Checks[slices.Index(names, f.name)]
		require.Equal(t, f.status, found.Status, "%s: %s", f.name, found.Detail)
		require.Contains(t, found.Detail, f.detail, f.name)
		require.Contains(t, found.Fix, f.fix, f.name)
		require.Equal(t, f.fix == "", found.Fix == "", "%s: %s", f.name, found.Fix)
		require.Equal(t, f.status != doctor.Fail, report.OK, f.name)
		failing[f.name] = failing[f.name] || f.status == doctor.Fail || f.status == doctor.Warn
	}
	for _, name := range names {
		require.True(t, failing[name], "no fault of %s", name)
	}
}

func TestExamine_SkipsWhatNeedsTheEngine(t *testing.T) {
	host := well()
	host.Engine = func(context.Context) (doctor.Engine, error) { return doctor.Engine{}, errFault }
	host.Firewall, host.DNS, host.Images = nil, nil, nil // not called
	for _, c := range doctor.Examine(t.Context(), host).Checks {
		want := doctor.OK
		switch c.Name {
		case "engine":
			want = doctor.Fail
		case "storage", "firewall", "dns", "images", "runc":
			want = doctor.Skip
		}
		require.Equal(t, want, c.Status, c.Name)
	}
}

func TestReport_IsWrittenForPeopleAndAsJSON(t *testing.T) {
	report := doctor.Report{OK: false, Checks: []doctor.Check{{Name: "engine", Status: doctor.Fail, Detail: "none", Fix: "start it"}, {Name: "redis", Status: doctor.OK, Detail: "embedded"}}}
	require.Equal(t, "fail  engine        none\n                  → start it\nok    redis         embedded\n", report.String())
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.JSONEq(t, `{"ok": false, "checks": [{"name": "engine", "status": "fail", "detail": "none", "fix": "start it"}, {"name": "redis", "status": "ok", "detail": "embedded", "fix": ""}]}`, string(text))
}
