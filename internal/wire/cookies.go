package wire

import "strings"

// ownCookie reports whether a cookie is the host's own, by its prefix. Tenants neither
// see nor set those.
func ownCookie(pair string) bool {
	return strings.HasPrefix(pair, "__Host-berth_") || strings.HasPrefix(pair, "berth_")
}

// TenantCookies returns a Cookie header for a tenant: one line, without the dashboard's
// cookies.
func TenantCookies(values []string) string {
	joined := strings.Join(values, "; ")
	if !strings.Contains(joined, "berth") {
		return joined
	}
	var kept []string
	for pair := range strings.SplitSeq(joined, ";") {
		if pair = strings.TrimSpace(pair); pair != "" && !ownCookie(pair) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "; ")
}

// RefusedCookie reports whether to drop a Set-Cookie header of a tenant at a host, because
// the cookie has one of the names of Berth's own or reaches beyond the tenant, to others or
// to the dashboard. A domain is a host of the tenant's owner.
func RefusedCookie(value, host string, domain bool) bool {
	return ownCookie(strings.TrimLeft(value, " \t=")) || widensCookie(value, host, domain)
}

// widensCookie reports whether the Domain of a Set-Cookie header reaches beyond the host,
// or for a domain of an owner's names anything but it. If there are several, browsers use
// the last one; here each must be valid.
func widensCookie(value, host string, ofOwner bool) bool {
	_, attributes, _ := strings.Cut(value, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, domain, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			continue
		}
		domain = strings.ToLower(strings.Trim(strings.TrimSpace(domain), "."))
		if domain != "" && domain != host && (ofOwner || strings.HasSuffix(host, "."+domain)) {
			return true
		}
	}
	return false
}
