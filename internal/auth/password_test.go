package auth_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/berth-host/berth/internal/auth"
)

func hashed(t *testing.T, p *auth.Passwords, password string) string {
	t.Helper()
	hash, err := p.Hash(t.Context(), password)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestPasswords_VerifyKnowsTheRightOne(t *testing.T) {
	p := auth.NewPasswords(2)
	for _, password := range []string{"12345678", "correct horse battery staple", "pässwörter und 漢字", strings.Repeat("x", 256)} {
		hash := hashed(t, p, password)
		for candidate, want := range map[string]bool{
			password: true, password + "x": false, password[1:]: false, strings.ToUpper(password) + "!": false, "": false,
			strings.Repeat("x", 1<<20): false,
		} {
			got, err := p.Verify(t.Context(), hash, candidate)
			if err != nil || got != want {
				t.Errorf("Verify(%.20q, %.20q) = %v, %v, want %v", password, candidate, got, err, want)
			}
		}
	}
}

func TestPasswords_HashNamesItsParametersAndHasASaltOfItsOwn(t *testing.T) {
	p := auth.NewPasswords(1)
	first, second := hashed(t, p, "the same"), hashed(t, p, "the same")
	const head = "$argon2id$v=19$m=19456,t=2,p=1$"
	if !strings.HasPrefix(first, head) || first == second {
		t.Errorf("hashes %q and %q", first, second)
	}
	if strings.Contains(first, "the same") {
		t.Error("the password is in its hash")
	}
}

func TestPasswords_VerifyKnowsAHashOfAnEarlierVersion(t *testing.T) {
	const stored = "$argon2id$v=19$m=19456,t=2,p=1$mdKAz1OwGTUawKBbfHpSbQ$8zldr5oAHDOsJHD/iaPOEXKopbx+9+dxe0MqaQpoYuI"
	p := auth.NewPasswords(1)
	for password, want := range map[string]bool{"correct horse battery staple": true, "correct horse battery stapl": false} {
		if ok, err := p.Verify(t.Context(), stored, password); ok != want || err != nil {
			t.Errorf("Verify(%q) = %v, %v", password, ok, err)
		}
	}
}

func TestPasswords_VerifyWithoutAHashDoesTheWorkAndIsFalse(t *testing.T) {
	p := auth.NewPasswords(1)
	for _, password := range []string{"", "12345678", strings.Repeat("\x00", 32)} {
		if ok, err := p.Verify(t.Context(), "", password); ok || err != nil {
			t.Errorf("Verify(nothing, %q) = %v, %v", password, ok, err)
		}
	}
	// It waits for its turn like any other: an answer always costs a hash.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := auth.NewPasswords(0).Verify(ended, "", "12345678"); !errors.Is(err, context.Canceled) {
		t.Errorf("without a turn: %v", err)
	}
}

func TestPasswords_VerifyRefusesWhatIsNoHash(t *testing.T) {
	p := auth.NewPasswords(1)
	good := hashed(t, p, "12345678")
	for _, hash := range []string{
		"12345678", good[:len(good)-1], good + "A", strings.Replace(good, "m=19456", "m=8", 1),
		strings.Replace(good, "argon2id", "argon2i", 1), good[:strings.LastIndex(good, "$")], "$argon2id$v=19$m=19456,t=2,p=1$$",
	} {
		if ok, err := p.Verify(t.Context(), hash, "12345678"); ok || err == nil {
			t.Errorf("Verify(%q) = %v, %v, want an error", hash, ok, err)
		}
	}
}

func TestPasswords_WaitForATurnOnlyAsLongAsTheCaller(t *testing.T) {
	full := auth.NewPasswords(0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := full.Hash(ctx, "12345678"); !errors.Is(err, context.Canceled) {
		t.Errorf("Hash = %v, want the context's error", err)
	}
}

func TestPasswords_ManyAtOnceAllGetTheirTurn(t *testing.T) {
	p := auth.NewPasswords(2)
	hash := hashed(t, p, "12345678")
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if ok, err := p.Verify(t.Context(), hash, "12345678"); !ok || err != nil {
				t.Errorf("Verify = %v, %v", ok, err)
			}
		})
	}
	all.Wait()
}

func TestCheckPassword_CountsCharactersFromBelowAndBytesFromAbove(t *testing.T) {
	for password, text := range map[string]string{
		"":                       "too short; use 8 characters",
		"1234567":                "too short",
		"漢字漢字漢字漢":                "too short",
		"12345678":               "",
		"漢字漢字漢字漢字":               "",
		"        ":               "",
		strings.Repeat("x", 256): "",
		strings.Repeat("x", 257): "too long",
		strings.Repeat("ü", 129): "too long",
		"1234567\xff":            "not valid UTF-8",
	} {
		err := auth.CheckPassword(password)
		if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
			t.Errorf("CheckPassword(%.20q) = %v, want %q", password, err, text)
		}
	}
}

func TestKeyHint_IsTheEnd(t *testing.T) {
	key := auth.NewAPIKey()
	if hint := auth.KeyHint(key); len(hint) != 4 || !strings.HasSuffix(key, hint) {
		t.Errorf("KeyHint(%q) = %q", key, hint)
	}
	if hint := auth.KeyHint("ab"); hint != "ab" {
		t.Errorf("of a short one: %q", hint)
	}
}
