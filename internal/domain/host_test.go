package domain

import (
	"net/url"
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/stack"
)

func namesOf(base, apps string) *Domains {
	return New(Config{URLs: stack.URLs{Base: &url.URL{Scheme: "https", Host: base}, AppsDomain: apps}})
}

func TestHost_IsWrittenAsNamesAreCompared(t *testing.T) {
	d := namesOf("berth.host.example:8443", "apps.example.net")
	for typed, want := range map[string]string{
		"www.example.com":                  "www.example.com",
		" WWW.Example.COM. ":               "www.example.com",
		"example.com":                      "example.com",
		"example.co.uk":                    "example.co.uk",
		"Bücher.example":                   "xn--bcher-kva.example",
		"faß.example":                      "xn--fa-hia.example",
		"xn--bcher-kva.example":            "xn--bcher-kva.example",
		"shop.internal":                    "shop.internal",
		"a--b.example.com":                 "a--b.example.com",
		"notapps.example.net":              "notapps.example.net",
		"123.example.com":                  "123.example.com",
		strings.Repeat("a", 63) + ".co.uk": strings.Repeat("a", 63) + ".co.uk",
	} {
		if got, err := d.Host(typed); err != nil || got != want {
			t.Errorf("%q is %q, %v, want %q", typed, got, err, want)
		}
	}
}

func TestHost_RefusesWhatNobodyMayHave(t *testing.T) {
	d := namesOf("berth.host.example:8443", "apps.example.net")
	for typed, why := range map[string]string{
		"":                                  "is not a name",
		"*.example.com":                     "is a wildcard",
		"192.0.2.7":                         "is an address",
		"2001:db8::1":                       "is an address",
		"[2001:db8::1]":                     "is an address",
		"127.1":                             "is an address",
		"2130706433":                        "is a single label",
		"intranet":                          "is a single label",
		"localhost":                         "belongs to this server",
		"www.localhost":                     "belongs to this server",
		"www.example.com:8080":              "has a port",
		"https://www.example.com":           "has a scheme",
		"www.example.com/x":                 "has a scheme or a path",
		"berth.host.example":                "belongs to this server",
		"BERTH.host.example.":               "belongs to this server",
		"x.berth.host.example":              "belongs to this server",
		"apps.example.net":                  "belongs to this server",
		"web-3f2a9c1b7d4e.apps.example.net": "belongs to this server",
		"host.example":                      "is above",
		"example.net":                       "is above",
		"net":                               "is above",
		"com":                               "is a single label",
		"co.uk":                             "is a public suffix",
		"github.io":                         "is a public suffix",
		"www..example.com":                  "is not the name of a host",
		"-www.example.com":                  "is not the name of a host",
		"www_1.example.com":                 "is not the name of a host",
		"www.exa mple.com":                  "is not the name of a host",
		"www.example.com\x00":               "is not the name of a host",
		"ana@example.com":                   "is not the name of a host",
		strings.Repeat("a", 64) + ".com":    "is not the name of a host",
		strings.Repeat("a.", 124) + "com":   "is not the name of a host",
	} {
		got, err := d.Host(typed)
		if stack.KindOf(err) != stack.Unprocessable || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is %q, %v, want a refusal: it %s", typed, got, err, why)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"www.example.com", "Bücher.example", "*.x", "1.2.3.4", "xn--", "a.b.c.d.", "ß.de", "\u202e.com"} {
		f.Add(s)
	}
	d := namesOf("berth.host.example", "apps.example.net")
	f.Fuzz(func(t *testing.T, typed string) {
		host, err := d.Host(typed)
		if err != nil {
			return
		}
		if again, err := d.Host(host); err != nil || again != host {
			t.Errorf("%q is %q, and that %q, %v", typed, host, again, err)
		}
		if len(host) > 247 || strings.ContainsFunc(host, func(r rune) bool { return r != '.' && r != '-' && (r < 'a' || r > 'z') && (r < '0' || r > '9') }) {
			t.Errorf("%q is %q", typed, host)
		}
	})
}
