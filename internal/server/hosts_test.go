package server

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-host/berth/internal/registry"
)

func TestBuildHosts_AreThoseThatBuildsAreTold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "env")
	text := "# a mirror each\nREGISTRY=https://user:secret@Registry.internal/npm/\nGOPROXY=http://10.0.0.7:3000|https://go.internal,direct\n" +
		"GOSUMDB=sums.internal\nAGAIN=https://go.internal:443/x\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{BuildEnvFile: path}
	got, err := c.buildHosts()
	want := []string{"10.0.0.7:3000", "go.internal:443", "registry.internal:443"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("build hosts = %v, %v, want %v", got, err, want)
	}
	got, err = c.packageHosts()
	want = []string{"AGAIN: go.internal", "GOPROXY: 10.0.0.7:3000, go.internal", "REGISTRY: registry.internal"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("package hosts = %v, %v, want %v", got, err, want)
	}
}

func TestShutHosts_AreTheInstallationsOwn(t *testing.T) {
	address, err := registry.ParseAddress("registry.internal/berth")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		c    Config
		want []string
	}{
		{Config{DatabaseURL: "sqlite:///var/berth.db", RedisURL: "embedded"}, nil},
		{
			Config{Registry: address, DatabaseURL: "postgres://berth:a@b@pg1.internal,pg2.internal:5433/berth?sslmode=verify-full", RedisURL: "rediss://:x@redis.internal"},
			[]string{"registry.internal:443", "pg1.internal:5432", "pg2.internal:5433", "redis.internal:6379"},
		},
		{Config{DatabaseURL: "postgresql:///berth?host=/run/postgresql", RedisURL: "redis://10.0.0.4:6380/1"}, []string{"10.0.0.4:6380"}},
	} {
		if got := tt.c.shutHosts(); !slices.Equal(got, tt.want) {
			t.Errorf("shut hosts = %v, want %v", got, tt.want)
		}
	}
}
