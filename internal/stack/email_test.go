package stack

import "testing"

func TestSameEmail_FoldsASCIILettersOnly(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"ana@example.com", "ANA@Example.COM", true},
		{"ana@example.com", "ana@example.org", false},
		{"kim@example.com", "\u212aim@example.com", false},      // the Kelvin sign
		{"sam@example.com", "\u017fam@example.com", false},      // a long s
		{"ana@ex\u00e4mple.com", "ana@ex\u00c4mple.com", false}, // ä and Ä
		{"\xff@example.com", "\xfe@example.com", false},
		{"ana[@example.com", "ana{@example.com", false},
	} {
		if got := SameEmail(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q are the same: %v", tt.a, tt.b, got)
		}
	}
}

func TestCheckEmail_TakesOneBareAddressWithAnASCIILocalPart(t *testing.T) {
	for email, want := range map[string]bool{
		"ana@example.com":         true,
		"ana+x@ex\u00e4mple.com":  true,
		"\u212aim@example.com":    false,
		"\u00e4na@example.com":    false,
		"Ana <ana@example.com>":   false,
		"ana@example.com ":        false,
		"":                        false,
		"\"a\u00e4\"@example.com": false,
	} {
		if err := CheckEmail(email); (err == nil) != want {
			t.Errorf("%q: %v", email, err)
		}
	}
}
