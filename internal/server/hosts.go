package server

import (
	"cmp"
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// buildHosts returns the hosts, as host:port, that builds may reach wherever they are: those
// in the variables for builds.
func (c *Config) buildHosts() ([]string, error) {
	env, err := c.buildEnv()
	return urlHosts(env), err
}

// packageHosts returns each variable for builds that holds addresses, with their hosts:
// NPM_CONFIG_REGISTRY: npm.internal. The rest of an address may be secret.
func (c *Config) packageHosts() (lines []string, err error) {
	env, err := c.buildEnv()
	for _, name := range slices.Sorted(maps.Keys(env)) {
		var hosts []string
		for _, host := range urlHosts(map[string]string{name: env[name]}) {
			hosts = append(hosts, strings.TrimSuffix(host, ":443"))
		}
		if len(hosts) > 0 {
			lines = append(lines, name+": "+strings.Join(hosts, ", "))
		}
	}
	return lines, err
}

var (
	hostURL      = regexp.MustCompile(`\b(https?)://(?:[^/@\s]*@)?([A-Za-z0-9._-]+)(?::(\d+))?`)
	defaultPorts = map[string]string{"http": "80", "https": "443"}
)

// urlHosts returns the hosts of all http and https addresses in an environment. A value
// may contain several, as GOPROXY does.
func urlHosts(env map[string]string) []string {
	found := map[string]bool{}
	for _, value := range env {
		for _, m := range hostURL.FindAllStringSubmatch(value, -1) {
			found[net.JoinHostPort(strings.ToLower(m[2]), cmp.Or(m[3], defaultPorts[m[1]]))] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// parseHostPort returns host:port as it is.
func parseHostPort(value string) (string, error) {
	host, port, err := net.SplitHostPort(value)
	n, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || portErr != nil || host == "" || n == 0 {
		return "", errors.New("not a host and a port; write them like mirror.internal:443, separated by commas")
	}
	return value, nil
}

// shutHosts returns the hosts, as host:port, that are the installation's own, so that no
// stack may reach them: its registry, database and Redis.
func (c *Config) shutHosts() []string {
	var hosts []string
	if c.Registry.Host != "" {
		hosts = append(hosts, c.Registry.HostPort())
	}
	for _, address := range []struct{ url, scheme, port string }{
		{c.DatabaseURL, "postgres", "5432"},
		{c.DatabaseURL, "postgresql", "5432"},
		{c.RedisURL, "redis", "6379"},
		{c.RedisURL, "rediss", "6379"},
	} {
		hosts = append(hosts, servers(address.url, address.scheme, address.port)...)
	}
	return hosts
}

// servers returns the hosts, as host:port, of an address with a scheme, which may name
// several with commas between them; none if it has another scheme.
func servers(address, scheme, port string) []string {
	rest, ok := strings.CutPrefix(address, scheme+"://")
	if !ok {
		return nil
	}
	rest, _, _ = strings.Cut(rest, "?")
	if _, host, ok := cutLast(rest, "@"); ok {
		rest = host
	}
	rest, _, _ = strings.Cut(rest, "/")
	var hosts []string
	for host := range strings.SplitSeq(rest, ",") {
		if _, _, err := net.SplitHostPort(host); err != nil {
			host = net.JoinHostPort(strings.Trim(host, "[]"), port)
		}
		if !strings.HasPrefix(host, ":") {
			hosts = append(hosts, host)
		}
	}
	return hosts
}
