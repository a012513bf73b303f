package auth_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-host/berth/internal/auth"
)

func TestLoadKey_MakesTheKeyOnceForItsOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	first, err := auth.LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	if first == (auth.Key{}) {
		t.Error("the key is all zeros")
	}
	again, err := auth.LoadKey(path)
	if err != nil || again != first {
		t.Errorf("the second LoadKey = %x, %v, want the first key", again, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 || info.Size() != 32 {
		t.Errorf("key file: %v %v, want 32 bytes with mode 0600", info, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the folder holds %v, want the key alone", left)
	}
}

func TestLoadKey_GivesManyAtOnceTheSameKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	keys := make([]auth.Key, 20)
	var all sync.WaitGroup
	for i := range keys {
		all.Go(func() {
			var err error
			if keys[i], err = auth.LoadKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, key := range keys {
		if key != keys[0] {
			t.Fatal("two keys were made")
		}
	}
}

func TestLoadKey_RefusesAFileThatOthersMayOpen(t *testing.T) {
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660, 0o610, 0o666} {
		path := writeKey(t, len(auth.Key{}), mode)
		_, err := auth.LoadKey(path)
		if err == nil || !strings.Contains(err.Error(), "run chmod 600") || !strings.Contains(err.Error(), path) {
			t.Errorf("mode %v: %v, want a sentence with the file and what to do", mode, err)
		}
	}
}

func TestLoadKey_RefusesWhatIsNoKeyAndLeavesIt(t *testing.T) {
	for _, size := range []int{0, len(auth.Key{}) - 1, len(auth.Key{}) + 1} {
		path := writeKey(t, size, 0o600)
		if _, err := auth.LoadKey(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%d bytes: %v, want an error with the file", size, err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != int64(size) {
			t.Errorf("the file of %d bytes was changed: %v, %v", size, info, err)
		}
	}
	missing := filepath.Join(t.TempDir(), "none", "key")
	if _, err := auth.LoadKey(missing); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("no folder: %v, want an error with the file", err)
	}
}

func TestHashClaimCode_DependsOnTheCodeAndTheKey(t *testing.T) {
	a, b := auth.Key{1}, auth.Key{2}
	code := auth.NewClaimCode()
	hash := a.HashClaimCode(code)
	if len(hash) != 32 || !bytes.Equal(hash, a.HashClaimCode(code)) {
		t.Errorf("hash %x is not 32 bytes, or differs the second time", hash)
	}
	for name, other := range map[string][]byte{
		"another code": a.HashClaimCode(auth.NewClaimCode()),
		"another key":  b.HashClaimCode(code),
		"no key":       auth.Hash(code),
	} {
		if bytes.Equal(hash, other) {
			t.Errorf("%s gives the same hash", name)
		}
	}
}

func writeKey(t *testing.T, size int, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, bytes.Repeat([]byte{7}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}
