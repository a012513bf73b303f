// Package doctor checks what a server needs from its machine, and says for each fault what
// to do. It judges; what it asks are functions that it was given. Code in this package
// touches nothing by itself.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berth-host/berth/internal/disk"
)

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	OK   Status = "ok"
	Warn Status = "warn" // the server works, but not as well as it could
	Fail Status = "fail"
	Skip Status = "skip" // it does not apply, or something that it needs is missing
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"` // what to do; "" when there is nothing to do
}

// Report is what all checks found.
type Report struct {
	OK     bool    `json:"ok"` // no check failed
	Checks []Check `json:"checks"`
}

// Host is what the checks ask. A function that is nil makes its check Skip.
type Host struct {
	Engine   func(context.Context) (Engine, error)
	Firewall func(context.Context) (inPlace bool, err error)
	// Unguarded reports whether stacks are accepted without the firewall's rules.
	Unguarded bool

	// DNS resolves a name in a container; Here resolves it on this machine. An error of DNS
	// is one of the look-up only if ran is true.
	DNS  func(ctx context.Context, name string) (ran bool, err error)
	Here func(ctx context.Context, name string) error
	Name string // that is resolved

	Disks func() ([]disk.Space, error) // of the data directory and of the engine
	Floor int64                        // bytes below which uploads and builds are refused

	Synchronized func() (bool, error) // whether the kernel's clock follows another one
	Now          func() time.Time

	Redis    func(context.Context) error // nil if it is embedded
	Database func(context.Context) (detail string, err error)

	Certificates func(context.Context) ([]Certificate, error)
	NoTLS        string // why there are no certificates to look at

	Images func(context.Context) (missing []string, err error)

	PublicURL func(context.Context) error
	URL       string // the public one
	NotPublic string // why PublicURL is nil
}

// Engine is what a Docker engine says of itself.
type Engine struct {
	Version    string
	API        string // newest version of its API
	Fault      error  // of its settings
	Driver     string // of the storage
	Filesystem string // below the driver; "" if it does not say
	NoFileType bool   // that file system does not keep the types of files in folders
	Time       time.Time
	Runc       string // version; "" without runc
}

// Certificate is a certificate that clients get.
type Certificate struct {
	Name string
	End  time.Time
}

// errSkip begins errors that make a check Skip instead of Fail.
var errSkip = errors.New("skipped")

// Skipped returns an error with which a function of Host says that it cannot tell.
func Skipped(format string, args ...any) error {
	return skipError{fmt.Sprintf(format, args...)}
}

type skipError struct{ text string }

func (e skipError) Error() string { return e.text }
func (skipError) Unwrap() error   { return errSkip }

// limit is how long one check may take.
const limit = 30 * time.Second

// Examine runs all checks at the same time. The report has them in a fixed order.
func Examine(ctx context.Context, h Host) Report {
	engine := h.askEngine(ctx)
	checks := []struct {
		name string
		run  func(context.Context, *Host, answer) Check
	}{
		{"engine", checkEngine},
		{"storage", checkStorage},
		{"firewall", checkFirewall},
		{"dns", checkDNS},
		{"disk", checkDisk},
		{"inodes", checkInodes},
		{"clock", checkClock},
		{"redis", checkRedis},
		{"database", checkDatabase},
		{"certificates", checkCertificates},
		{"images", checkImages},
		{"runc", checkRunc},
		{"public-url", checkPublicURL},
	}
	report := Report{Checks: make([]Check, len(checks))}
	var running sync.WaitGroup
	for i, c := range checks {
		running.Go(func() {
			limited, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			report.Checks[i] = c.run(limited, &h, engine)
			report.Checks[i].Name = c.name
		})
	}
	running.Wait()
	report.OK = !slices.ContainsFunc(report.Checks, func(c Check) bool { return c.Status == Fail })
	return report
}

// answer is what the engine answered.
type answer struct {
	engine Engine
	err    error
}

func (h *Host) askEngine(ctx context.Context) answer {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	engine, err := h.Engine(limited)
	return answer{engine, err}
}

// String returns a report for people.
func (r Report) String() string {
	var text strings.Builder
	for _, c := range r.Checks {
		fmt.Fprintf(&text, "%-4s  %-12s  %s\n", c.Status, c.Name, c.Detail)
		if c.Fix != "" {
			fmt.Fprintf(&text, "%20s%s\n", "→ ", c.Fix)
		}
	}
	return text.String()
}

func good(format string, args ...any) Check {
	return Check{Status: OK, Detail: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) Check {
	return Check{Status: Skip, Detail: fmt.Sprintf(format, args...)}
}

// bad returns a check that is not good, with what to do about it.
func bad(status Status, detail, fix string) Check {
	return Check{Status: status, Detail: detail, Fix: fix}
}

// failed returns the check of an error.
func failed(err error, fix string) Check {
	if errors.Is(err, errSkip) {
		return Check{Status: Skip, Detail: err.Error()}
	}
	return bad(Fail, err.Error(), fix)
}

const noEngine = "the engine does not answer"
