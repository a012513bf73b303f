package server

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// Each of these returns a function that sets the field returned by its argument.

func text(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, value string) error {
		*field(c) = value
		return nil
	}
}

func duration(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, value string) error {
		d, err := parseDuration(value)
		*field(c) = d
		return err
	}
}

// durations parses durations separated by commas, at least one.
func durations(field func(*Config) *[]time.Duration) func(*Config, string) error {
	return func(c *Config, value string) error {
		for part := range strings.SplitSeq(value, ",") {
			d, err := parseDuration(strings.TrimSpace(part))
			if err != nil {
				return fmt.Errorf("%q is %w, with commas between them", part, err)
			}
			*field(c) = append(*field(c), d)
		}
		return nil
	}
}

// parseDuration accepts what a manifest does, and also milliseconds, so that a test can
// run a lifetime in seconds.
func parseDuration(value string) (time.Duration, error) {
	d, err := stack.ParseDuration(value)
	if err != nil {
		d, err = time.ParseDuration(value)
	}
	switch {
	case err != nil:
		return 0, errors.New("not a duration; write one like 90s, 15m, 1h30m or 7d")
	case d <= 0:
		return 0, errors.New("not above 0; write a duration like 90s, 15m, 1h30m or 7d")
	}
	return d, nil
}

func flag(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, value string) error {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("write true or false")
		}
		*field(c) = on
		return nil
	}
}

func number(field func(*Config) *int) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return errors.New("not a whole number above 0")
		}
		*field(c) = n
		return nil
	}
}

func size(field func(*Config) *int64) func(*Config, string) error {
	return func(c *Config, value string) error {
		n, err := parseSize(value)
		*field(c) = n
		return err
	}
}

// leastMemory is the lowest memory limit that an engine accepts, in bytes.
const leastMemory = 6 << 20

// memory is like size for the memory limit of a container.
func memory(field func(*Config) *int64) func(*Config, string) error {
	return func(c *Config, value string) error {
		err := size(field)(c, value)
		if err == nil && *field(c) < leastMemory {
			return errors.New("a container needs at least 6MiB")
		}
		return err
	}
}

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"B", 1},
	{"", 1},
}

// parseSize parses a size such as 50MB or 512MiB.
func parseSize(value string) (int64, error) {
	for _, unit := range units {
		digits, ok := strings.CutSuffix(value, unit.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 1 || n > math.MaxInt64/unit.bytes {
			break
		}
		return n * unit.bytes, nil
	}
	return 0, errors.New("not a size; write one like 50MB or 512MiB")
}

func setDiskFloor(c *Config, value string) error {
	if value == "0" {
		return nil
	}
	return size(func(c *Config) *int64 { return &c.DiskFloor })(c, value)
}

// optional leaves a field at zero for an empty value.
func optional(set func(*Config, string) error) func(*Config, string) error {
	return func(c *Config, value string) error {
		if value == "" {
			return nil
		}
		return set(c, value)
	}
}

func setBaseURL(c *Config, value string) error {
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return errors.New("not an address; write one like https://berth.example.com")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return errors.New("only scheme, host and port belong here, as in https://berth.example.com")
	}
	c.BaseURL = &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}
	return nil
}

// domainPattern matches a host name of letters, digits and hyphens.
var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

func setAppsDomain(c *Config, value string) error {
	c.AppsDomain = strings.ToLower(value)
	if value != "" && !domainPattern.MatchString(c.AppsDomain) {
		return errors.New("not a domain; write one like apps.example.net, without scheme and port")
	}
	return nil
}

// prefixes parses CIDRs separated by commas.
func prefixes(field func(*Config) *[]netip.Prefix) func(*Config, string) error {
	return func(c *Config, value string) error {
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			prefix, err := parsePrefix(part)
			if err != nil {
				return err
			}
			*field(c) = append(*field(c), prefix)
		}
		return nil
	}
}

// parsePrefix parses a CIDR, or a single address as the range of just that address.
func parsePrefix(value string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(value); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(value)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR; write one like 10.0.0.0/8", value)
	}
	return prefix.Masked(), nil
}

func setCPUs(c *Config, value string) error {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || n <= 0 || math.IsInf(n, 0) {
		return errors.New("not a number of cores; write one like 1.5")
	}
	c.ServiceCPUs = n
	return nil
}

func setPids(c *Config, value string) error {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < 1 {
		return errors.New("not a whole number above 0")
	}
	c.ServicePids = n
	return nil
}

func setPool(c *Config, value string) error {
	prefix, err := netip.ParsePrefix(value)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 28 || prefix.Bits() < 8 {
		return errors.New("not an IPv4 range between /8 and /28; write one like 10.213.0.0/16")
	}
	c.NetworkPool = prefix.Masked()
	return nil
}
