package stack

import (
	"net"
	"net/url"
)

// URLs makes the public addresses of stacks' services (docs/api.md, "Public
// URLs").
type URLs struct {
	Base       *url.URL // {base_url}
	AppsDomain string   // domain under which services get their names
}

// Hostname is the host name that a service is reached at, without a port. Its
// first label is <service>-<12 hex of the stack's id>.
func (u URLs) Hostname(s *Stack, service string) string {
	return service + "-" + s.Hex() + "." + u.AppsDomain
}

// Host is Hostname with the port, where the base URL has one.
func (u URLs) Host(s *Stack, service string) string {
	host := u.Hostname(s, service)
	if port := u.Base.Port(); port != "" {
		return net.JoinHostPort(host, port)
	}
	return host
}

// Service is the public URL of a service, the same for the life of the stack.
func (u URLs) Service(s *Stack, service string) string {
	return u.Base.Scheme + "://" + u.Host(s, service)
}

// All maps every service of the stack to its public URL.
func (u URLs) All(s *Stack) map[string]string {
	urls := make(map[string]string, len(s.Services))
	for _, name := range s.ServiceNames() {
		urls[name] = u.Service(s, name)
	}
	return urls
}

// Claim is the page where a human claims with the given code; the page that
// asks for the code when it is empty.
func (u URLs) Claim(code string) string {
	if code == "" {
		return u.Base.JoinPath("claim").String()
	}
	return u.Base.JoinPath("claim", code).String()
}
