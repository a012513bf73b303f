package stack

import (
	"net"
	"net/url"
)

// URLs builds the public addresses of services (docs/api.md, "Public URLs").
type URLs struct {
	Base       *url.URL // {base_url}
	AppsDomain string   // domain under which services get their names
}

// Hostname returns the host name of a service, without a port. Its first label is
// <service>-<12 hex of the stack's id>.
func (u URLs) Hostname(s *Stack, service string) string {
	return service + "-" + s.Hex() + "." + u.AppsDomain
}

// Host returns Hostname with the port of the base URL, if it has one.
func (u URLs) Host(s *Stack, service string) string {
	return u.withPort(u.Hostname(s, service))
}

// withPort returns a host with the port of the base URL, if it has one.
func (u URLs) withPort(host string) string {
	if port := u.Base.Port(); port != "" {
		return net.JoinHostPort(host, port)
	}
	return host
}

// Service returns the public URL of a service. It stays the same for the life of the
// stack.
func (u URLs) Service(s *Stack, service string) string {
	return u.Base.Scheme + "://" + u.Host(s, service)
}

// OfHost returns the URL of a domain.
func (u URLs) OfHost(host string) string { return u.Base.Scheme + "://" + u.withPort(host) }

// All returns the public URLs of the stack's services by name.
func (u URLs) All(s *Stack) map[string]string {
	urls := make(map[string]string, len(s.Generation.Services))
	for _, name := range s.ServiceNames() {
		urls[name] = u.Service(s, name)
	}
	return urls
}

// Claim returns the URL of the page where a person claims with the given code; with "",
// of the page that asks for the code.
func (u URLs) Claim(code string) string {
	if code == "" {
		return u.Base.JoinPath("claim").String()
	}
	return u.Base.JoinPath("claim", code).String()
}
