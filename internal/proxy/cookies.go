package proxy

import "strings"

// ownCookie reports whether a cookie is the host's own, by how it begins: tenants
// neither see nor set those.
func ownCookie(pair string) bool {
	return strings.HasPrefix(pair, "__Host-berth_") || strings.HasPrefix(pair, "berth_")
}

// tenantCookies is a Cookie header as a tenant may see it: one line, without
// the dashboard's cookies.
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

// refusedCookie reports whether a Set-Cookie header of a tenant at host stays
// here: it is named like the host's own, or reaches beyond the tenant, to others
// or to the dashboard.
func refusedCookie(value, host string) bool {
	return ownCookie(strings.TrimLeft(value, " \t=")) || widensCookie(value, host)
}

// widensCookie reports whether the Domain of a Set-Cookie header reaches beyond
// host. Of several the last one counts in browsers; here each has to be right.
func widensCookie(value, host string) bool {
	_, attributes, _ := strings.Cut(value, ";")
	for attribute := range strings.SplitSeq(attributes, ";") {
		name, domain, _ := strings.Cut(attribute, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "domain") {
			continue
		}
		domain = strings.ToLower(strings.Trim(strings.TrimSpace(domain), "."))
		if domain != "" && domain != host && strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}
