package auth_test

import (
	"strings"
	"testing"

	"github.com/berth-host/berth/internal/auth"
)

func TestNormalizeClaimCode_ReadsACodeAsPeopleWriteIt(t *testing.T) {
	for typed, want := range map[string]string{
		"CLM-7K3M-9QXA-2BCD":         "CLM-7K3M-9QXA-2BCD",
		"clm-7k3m-9qxa-2bcd":         "CLM-7K3M-9QXA-2BCD",
		"CLM7K3M9QXA2BCD":            "CLM-7K3M-9QXA-2BCD",
		"7k3m9qxa2bcd":               "CLM-7K3M-9QXA-2BCD",
		"7K3M-9QXA-2BCD":             "CLM-7K3M-9QXA-2BCD",
		"  clm 7k3m 9qxa 2bcd \n":    "CLM-7K3M-9QXA-2BCD",
		"CLM–7K3M—9QXA‑2BCD":         "CLM-7K3M-9QXA-2BCD", // dashes of a word processor
		"c-l-m-7-k3m9qx-a2bcd--":     "CLM-7K3M-9QXA-2BCD",
		"CLM-oOiI-lL01-0000":         "CLM-0011-1101-0000",
		"CLM-CLM7-K3M9-QXA2":         "CLM-C1M7-K3M9-QXA2", // a body that begins like the prefix,
		"CLM7-K3M9-QXA2":             "CLM-C1M7-K3M9-QXA2", // without the prefix,
		"C1M-C1MC-1MC1-MC1M":         "CLM-C1MC-1MC1-MC1M", // with a prefix copied from a screen,
		"C1MC-1MC1-MC1M":             "CLM-C1MC-1MC1-MC1M", // and of nothing else
		"\tCLM-ZZZZ-ZZZZ-ZZZZ\u00a0": "CLM-ZZZZ-ZZZZ-ZZZZ",
	} {
		if got, ok := auth.NormalizeClaimCode(typed); !ok || got != want {
			t.Errorf("NormalizeClaimCode(%q) = %q, %v, want %q", typed, got, ok, want)
		}
	}
}

func TestNormalizeClaimCode_RefusesWhatCannotBeACode(t *testing.T) {
	for _, typed := range []string{
		"", "CLM", "CLM-", "----", "CLM-7K3M-9QXA-2BC", "CLM-7K3M-9QXA-2BCDE", "7K3M-9QXA-2BCDE",
		"ABC-7K3M-9QXA-2BCD", "CLM-7K3M-9QXA-2BCU", "CLM-7K3M-9QXA-2BC!", "CLM_7K3M_9QXA_2BCD",
		"CLM-7K3M-9QXA-2BCD-CLM", "ſſſſſſſſſſſſ", "CLM-7K3M-9QXA-2BC\x00", "\xff\xfe",
		strings.Repeat("0", 1<<20),
	} {
		if got, ok := auth.NormalizeClaimCode(typed); ok || got != "" {
			t.Errorf("NormalizeClaimCode(%.40q) = %q, %v, want nothing", typed, got, ok)
		}
	}
}

func TestNormalizeClaimCode_KeepsANewCode(t *testing.T) {
	for range 1000 {
		code := auth.NewClaimCode()
		bare := strings.ReplaceAll(code, "-", "")
		for _, typed := range []string{code, strings.ToLower(code), bare, strings.TrimPrefix(bare, "CLM")} {
			if got, ok := auth.NormalizeClaimCode(typed); !ok || got != code {
				t.Fatalf("NormalizeClaimCode(%q) = %q, %v, want %q", typed, got, ok, code)
			}
		}
	}
}

func FuzzNormalizeClaimCode(f *testing.F) {
	for _, seed := range []string{"CLM-7K3M-9QXA-2BCD", "clm7k3m9qxa2bcd", "CLM7-K3M9-QXA2", "C1MC1MC1MC1MC1M", " o0iIlL-", "é\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		code, ok := auth.NormalizeClaimCode(typed)
		if !ok {
			if code != "" {
				t.Fatalf("a refused code gives %q", code)
			}
			return
		}
		if len(code) != len("CLM-XXXX-XXXX-XXXX") || !strings.HasPrefix(code, "CLM-") || strings.ContainsAny(code[4:], "ILOU") {
			t.Fatalf("NormalizeClaimCode(%q) = %q", typed, code)
		}
		for _, same := range []string{code, strings.ToLower(typed), strings.ToLower(code[4:]), strings.ReplaceAll(code, "-", " ")} {
			if again, ok := auth.NormalizeClaimCode(same); !ok || again != code {
				t.Fatalf("NormalizeClaimCode(%q) = %q, %v, and of %q %q", same, again, ok, typed, code)
			}
		}
	})
}
