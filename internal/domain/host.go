package domain

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// mostHost is how long a host may be, so that the name of its record is a name, too.
const mostHost = 253 - len(recordPrefix)

// ascii turns a host that a person wrote into its form at the DNS: lower-case punycode.
var ascii = idna.New(
	idna.MapForLookup(), idna.Transitional(false), idna.BidiRule(),
	idna.StrictDomainName(true), idna.CheckHyphens(false), idna.VerifyDNSLength(true),
)

// Host returns a host as names are compared, in lower-case punycode without a final dot. It
// is Unprocessable if it cannot be a domain of a stack.
func (d *Domains) Host(typed string) (string, error) {
	host, fault := d.parse(strings.TrimSpace(typed))
	if fault != "" {
		return "", stack.NewError(stack.Unprocessable, fmt.Sprintf("%s %s; write a name such as www.example.com", safetext.Name(typed), fault))
	}
	return host, nil
}

// parse is Host with what is wrong with the host, "" for nothing.
func (d *Domains) parse(typed string) (host, fault string) {
	if _, err := netip.ParseAddr(strings.Trim(typed, "[]")); err == nil {
		return "", "is an address, not a name"
	}
	switch {
	case typed == "":
		return "", "is not a name"
	case strings.Contains(typed, "/"):
		return "", "has a scheme or a path, and a domain is only the name of a host"
	case strings.Contains(typed, ":"):
		return "", "has a port, and a domain leads to its service at the port of this server"
	case strings.Contains(typed, "*"):
		return "", "is a wildcard, and each domain is added by its full name"
	}
	host, err := ascii.ToASCII(strings.TrimSuffix(typed, "."))
	hyphen := strings.Contains("."+host, ".-") || strings.Contains(host+".", "-.")
	if err != nil || hyphen || len(host) > mostHost {
		return "", "is not the name of a host"
	}
	return host, d.refused(host)
}

// refused returns why nobody may have a host as a domain; "" if somebody may.
func (d *Domains) refused(host string) string {
	last := host[strings.LastIndexByte(host, '.')+1:]
	suffix, _ := publicsuffix.PublicSuffix(host)
	switch {
	case d.own(host):
		return "belongs to this server"
	case d.above(host):
		return "is above a name of this server, so it belongs to its operator"
	case last == host:
		return "is a single label, and a domain has at least two"
	case strings.Trim(last, "0123456789") == "":
		return "is an address, not a name"
	case suffix == host:
		return "is a public suffix, under which anybody may have a name"
	}
	return ""
}

// own reports whether a host is one of this server's names, or below one.
func (d *Domains) own(host string) bool { return d.public(host) || within(host, "localhost") }

// public is like own, but does not take localhost for a name of this server unless the base
// URL or the services have it.
func (d *Domains) public(host string) bool { return within(host, d.base) || within(host, d.apps) }

// above reports whether a name of this server is below a host.
func (d *Domains) above(host string) bool { return within(d.base, host) || within(d.apps, host) }

// within reports whether a host is a domain, or below it.
func within(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }
