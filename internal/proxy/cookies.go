package proxy

import "strings"

// ownCookie reports whether a cookie is the host's own, by its prefix. Tenants neither
// see nor set those.
func ownCookie(pair string) bool {
	return strings.HasPrefix(pair, "__Host-berth_") || strings.HasPrefix(pair, "berth_")
}

// tenantCookies returns a Cookie header for a tenant: one line, without the dashboard's
// cookies.
func tenantCookies(values []string) string {
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

// refusedCookie reports whether to drop a Set-Cookie header of a tenant, because the
// cookie has one of the host's own names or reaches beyond the tenant, to others or to the
// dashboard.
func refusedCookie(value string, of tenant) bool {
	return ownCookie(strings.TrimLeft(value, " \t=")) || widensCookie(value, of)
}

// widensCookie reports whether the Domain of a Set-Cookie header reaches beyond the host,
// or for a domain of an owner's names anything but it. If there are several, browsers use
// the last one; here each must be valid.
func widensCookie(value string, of tenant) bool {
	_, attributes, _ := strings.Cut(value, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, domain, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			continue
		}
		domain = strings.ToLower(strings.Trim(strings.TrimSpace(domain), "."))
		if domain != "" && domain != of.host && (of.domain || strings.HasSuffix(of.host, "."+domain)) {
			return true
		}
	}
	return false
}
