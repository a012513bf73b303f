package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestOpenHosts_AreThoseOfTheSettingAndOfWhatBuildsAreTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	text := "# a mirror each\nREGISTRY=https://user:secret@Registry.internal/npm/\nGOPROXY=http://10.0.0.7:3000|https://go.internal,direct\n" +
		"GOSUMDB=sums.internal\nAGAIN=https://go.internal:443/x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{BuildEnvFile: path, NetworkAllow: []string{"dns.internal:53"}}
	got, err := c.openHosts()
	want := []string{"dns.internal:53", "10.0.0.7:3000", "go.internal:443", "registry.internal:443"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("open hosts = %v, %v, want %v", got, err, want)
	}
	got, err = c.packageHosts()
	want = []string{"AGAIN: go.internal", "GOPROXY: 10.0.0.7:3000, go.internal", "REGISTRY: registry.internal"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("package hosts = %v, %v, want %v", got, err, want)
	}
}
