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

// into returns a function that sets a field to what parse makes of a value.
func into[T any](field *T, parse func(string) (T, error)) func(string) error {
	return func(value string) (err error) {
		*field, err = parse(value)
		return err
	}
}

// optional parses as parse does, and an empty value as zero.
func optional[T any](parse func(string) (T, error)) func(string) (T, error) {
	return func(value string) (zero T, err error) {
		if value == "" {
			return zero, nil
		}
		return parse(value)
	}
}

// list parses values separated by commas; there may be none.
func list[T any](parse func(string) (T, error)) func(string) ([]T, error) {
	return func(value string) ([]T, error) {
		var all []T
		for part := range strings.SplitSeq(value, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			one, err := parse(part)
			if err != nil {
				return nil, err
			}
			all = append(all, one)
		}
		return all, nil
	}
}

// parseSwitch reads on or off.
func parseSwitch(value string) (bool, error) {
	if value != "on" && value != "off" {
		return false, errors.New("write on or off")
	}
	return value == "on", nil
}

func parseText(value string) (string, error) { return value, nil }

// parseDurations parses durations separated by commas, at least one.
func parseDurations(value string) ([]time.Duration, error) {
	var all []time.Duration
	for part := range strings.SplitSeq(value, ",") {
		d, err := parseDuration(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is %w, with commas between them", part, err)
		}
		all = append(all, d)
	}
	return all, nil
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

func parseFlag(value string) (bool, error) {
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, errors.New("write true or false")
	}
	return on, nil
}

func parseCount[T int | int64](value string) (T, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, errors.New("not a whole number above 0")
	}
	return T(n), nil
}

// leastMemory is the lowest memory limit that an engine accepts, in bytes.
const leastMemory = 6 << 20

// parseMemory is like parseSize for the memory limit of a container.
func parseMemory(value string) (int64, error) {
	n, err := parseSize(value)
	if err == nil && n < leastMemory {
		return 0, errors.New("a container needs at least 6MiB")
	}
	return n, err
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

// parseFloor is like parseSize, and takes 0 too.
func parseFloor(value string) (int64, error) {
	if value == "0" {
		return 0, nil
	}
	return parseSize(value)
}

func parseBaseURL(value string) (*url.URL, error) {
	u, err := url.Parse(value)
	if err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("not an address; write one like https://berth.example.com")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errors.New("only scheme, host and port belong here, as in https://berth.example.com")
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// domainPattern matches a host name of letters, digits and hyphens.
var domainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// parseDomain parses a domain, which may be empty.
func parseDomain(value string) (string, error) {
	domain := strings.ToLower(value)
	if value != "" && !domainPattern.MatchString(domain) {
		return "", errors.New("not a domain; write one like apps.example.net, without scheme and port")
	}
	return domain, nil
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

func parseCores(value string) (float64, error) {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || n <= 0 || math.IsInf(n, 0) {
		return 0, errors.New("not a number of cores; write one like 1.5")
	}
	return n, nil
}

func parsePool(value string) (netip.Prefix, error) {
	prefix, err := netip.ParsePrefix(value)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() > 28 || prefix.Bits() < 8 {
		return netip.Prefix{}, errors.New("not an IPv4 range between /8 and /28; write one like 10.213.0.0/16")
	}
	return prefix.Masked(), nil
}
