package wire

import "testing"

func TestCookies_OfTheDashboardStayFromTenants(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"a=1; b=2", "a=1; b=2"},
		{"a=1; __Host-berth_session=s; b=2", "a=1; b=2"},
		{"berth_session=s", ""},
		{"berth_visitor=s;a=1", "a=1"},
		{"__Host-berth_visitor=s; __Host-mine=1; berth_=x", "__Host-mine=1"},
		{"berths=mine; x=berth", "berths=mine; x=berth"},
	} {
		if got := TenantCookies([]string{c.in}); got != c.want {
			t.Errorf("%q passes as %q, want %q", c.in, got, c.want)
		}
	}
}

func TestCookies_OfATenantReachNobodyElse(t *testing.T) {
	const host = "web-0123456789ab.apps.example.com"
	for value, widens := range map[string]bool{
		"a=1":                                          false,
		"a=1; Path=/; HttpOnly":                        false,
		"a=1; Domain=" + host:                          false,
		"a=1; Domain=." + host:                         false,
		"a=1; Domain=apps.example.com":                 true,
		"a=1; domain=.Apps.Example.com":                true,
		"a=1; DOMAIN = example.com ; Secure":           true,
		"a=1; Domain=com":                              true,
		"a=1; Domain=example.com.":                     true,
		"a=1; Domain=" + host + "; Domain=example.com": true,
		"a=1; Domain=other.net":                        false, // browsers refuse it
		"a=Domain=example.com":                         false,
		"a=1; Domain=":                                 false,
	} {
		if got := widensCookie(value, host, false); got != widens {
			t.Errorf("%q: widens %t, want %t", value, got, widens)
		}
		if got := RefusedCookie(value, host, false); got != widens {
			t.Errorf("%q: refused %t, want %t", value, got, widens)
		}
	}
	for value, refused := range map[string]bool{
		"berth_session=x":                 true,
		"berth_session=x; Domain=" + host: true,
		" berth_visitor = x":              true,
		"__Host-berth_session=x; Secure":  true,
		"=berth_session=x":                true, // browsers send it back as berth_session=x
		"berth=x":                         false,
		"__Host-mine=x; Secure; Path=/":   false,
		"session=berth_session":           false,
	} {
		if got := RefusedCookie(value, host, false); got != refused {
			t.Errorf("%q: refused %t, want %t", value, got, refused)
		}
	}
}

func TestCookies_OfADomainNameThatHostOnly(t *testing.T) {
	for value, refused := range map[string]bool{
		"a=1":                              false,
		"a=1; Domain=www.example.com":      false,
		"a=1; Domain=.WWW.example.com":     false,
		"a=1; Domain=example.com":          true,
		"a=1; Domain=com":                  true,
		"a=1; Domain=a.www.example.com":    true,
		"a=1; Domain=berth.test":           true,
		"__Host-berth_session=x; Secure":   true,
		"a=1; Domain=www.example.com; B=c": false,
	} {
		if got := RefusedCookie(value, "www.example.com", true); got != refused {
			t.Errorf("%q: refused %t, want %t", value, got, refused)
		}
	}
}
