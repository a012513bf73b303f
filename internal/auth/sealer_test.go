package auth_test

import (
	"bytes"
	"testing"

	"github.com/berth-host/berth/internal/auth"
)

func TestSealer_OpensWhatItSealed(t *testing.T) {
	s := auth.NewSealer(auth.Key{1})
	for _, plain := range [][]byte{{}, []byte("whsec_x"), bytes.Repeat([]byte("long "), 1<<18)} {
		sealed := s.Seal(plain, "stk_1", "secrets")
		if len(plain) > 0 && bytes.Contains(sealed, plain) {
			t.Error("the sealed value shows the plain one")
		}
		got, err := s.Open(sealed, "stk_1", "secrets")
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("Open = %d bytes, %v, want the %d sealed", len(got), err, len(plain))
		}
	}
}

func TestSealer_SealsTheSameValueDifferentlyEachTime(t *testing.T) {
	s := auth.NewSealer(auth.Key{1})
	if bytes.Equal(s.Seal([]byte("x"), "r", "c"), s.Seal([]byte("x"), "r", "c")) {
		t.Error("equal values look equal")
	}
}

func TestSealer_RefusesAValueOfAnotherPlaceOrKey(t *testing.T) {
	s := auth.NewSealer(auth.Key{1})
	sealed := s.Seal([]byte("secret"), "stk_1", "env")
	for name, open := range map[string]func() ([]byte, error){
		"another row":     func() ([]byte, error) { return s.Open(sealed, "stk_2", "env") },
		"another column":  func() ([]byte, error) { return s.Open(sealed, "stk_1", "secrets") },
		"a shifted place": func() ([]byte, error) { return s.Open(sealed, "stk_", "1env") },
		"another key":     func() ([]byte, error) { return auth.NewSealer(auth.Key{2}).Open(sealed, "stk_1", "env") },
	} {
		if plain, err := open(); err == nil {
			t.Errorf("%s opens it: %q", name, plain)
		}
	}
}

func TestSealer_RefusesAChangedValue(t *testing.T) {
	s := auth.NewSealer(auth.Key{1})
	sealed := s.Seal([]byte("secret"), "stk_1", "env")
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if plain, err := s.Open(changed, "stk_1", "env"); err == nil {
			t.Fatalf("with byte %d changed it opens as %q", i, plain)
		}
		if plain, err := s.Open(sealed[:i], "stk_1", "env"); err == nil {
			t.Fatalf("cut to %d bytes it opens as %q", i, plain)
		}
	}
}
