package auth_test

import (
	"bytes"
	"crypto/sha256"
	"regexp"
	"testing"

	"github.com/berth-host/berth/internal/auth"
)

func TestNew_GivesSecretsOfTheSpecifiedShapeAndNoneTwice(t *testing.T) {
	for name, kind := range map[string]struct {
		make  func() string
		shape string
	}{
		"manage token":   {auth.NewManageToken, `^ast_anon_[0-9A-Za-z]{32}$`},
		"API key":        {auth.NewAPIKey, `^as_live_[0-9A-Za-z]{32}$`},
		"webhook secret": {auth.NewWebhookSecret, `^whsec_[0-9A-Za-z]{32}$`},
		"session token":  {auth.NewSessionToken, `^ses_[0-9A-Za-z]{32}$`},
		"claim code":     {auth.NewClaimCode, `^CLM(-[0-9A-HJKMNP-TV-Z]{4}){3}$`},
	} {
		shape, seen := regexp.MustCompile(kind.shape), map[string]bool{}
		for range 1000 {
			secret := kind.make()
			if !shape.MatchString(secret) || seen[secret] {
				t.Fatalf("%s %q: seen before %v, or not %s", name, secret, seen[secret], shape)
			}
			seen[secret] = true
		}
	}
}

func TestNew_DrawsEveryCharacterAboutEquallyOften(t *testing.T) {
	const draws = 20_000
	count := map[byte]int{}
	for range draws {
		token := auth.NewManageToken()
		for i := len(auth.ManageTokenPrefix); i < len(token); i++ {
			count[token[i]]++
		}
	}
	// 10,322 of each are expected with a deviation of 101: eight of them never
	// happen by chance, and the bias of a plain modulo is 25.
	const mean, far = draws * 32 / 62, 800
	for c, n := range count {
		if n < mean-far || n > mean+far {
			t.Errorf("%c was drawn %d times, want about %d", c, n, mean)
		}
	}
	if len(count) != 62 {
		t.Errorf("%d different characters, want 62", len(count))
	}
}

func TestHash_IsSHA256(t *testing.T) {
	token := auth.NewManageToken()
	want := sha256.Sum256([]byte(token))
	if got := auth.Hash(token); !bytes.Equal(got, want[:]) {
		t.Errorf("Hash = %x, want %x", got, want)
	}
}
