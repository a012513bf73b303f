package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/disk"
	"github.com/berth-host/berth/internal/docker"
	"github.com/berth-host/berth/internal/doctor"
	"github.com/berth-host/berth/internal/store"
)

// hostWith is a host without an engine, whose public URL answers as ask does.
func hostWith(ask func(context.Context) error) doctor.Host {
	return doctor.Host{
		Engine:       func(context.Context) (doctor.Engine, error) { return doctor.Engine{}, errors.New("none") },
		Disks:        func() ([]disk.Space, error) { return nil, nil },
		Synchronized: func() (bool, error) { return true, nil },
		Database:     func(context.Context) (string, error) { return "", nil },
		PublicURL:    ask,
	}
}

// noEngine returns a configuration whose engine does not answer.
func noEngine(t *testing.T, env map[string]string) Config {
	t.Helper()
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	cfg, err := Load(func(string) (string, bool) { return "", false }, func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	})
	require.NoError(t, err)
	return cfg
}

func statuses(report doctor.Report) map[string]doctor.Status {
	found := map[string]doctor.Status{}
	for _, c := range report.Checks {
		found[c.Name] = c.Status
	}
	return found
}

func TestExamine_WorksWithoutAnEngineAndAServer(t *testing.T) {
	address := freeAddress(t)
	dir := filepath.Join(t.TempDir(), "data")
	report, err := Examine(t.Context(), noEngine(t, map[string]string{
		"BERTH_DATA_DIR": dir, "BERTH_LISTEN": address, "BERTH_BASE_URL": "http://" + address,
		"BERTH_REDIS_URL": "redis://" + freeAddress(t),
	}))
	require.NoError(t, err)
	require.False(t, report.OK)
	found := statuses(report)
	require.Len(t, found, 13)
	for name, want := range map[string]doctor.Status{
		"engine": doctor.Fail, "storage": doctor.Skip, "firewall": doctor.Skip, "dns": doctor.Skip, "images": doctor.Skip, "runc": doctor.Skip,
		"redis": doctor.Warn, "database": doctor.OK, "certificates": doctor.Skip, "public-url": doctor.OK,
	} {
		require.Equal(t, want, found[name], name)
	}
	require.NoDirExists(t, dir)
}

func TestExamine_HasTheChecksOfTheDocument(t *testing.T) {
	var names []string
	for _, c := range doctor.Examine(t.Context(), hostWith(nil)).Checks {
		names = append(names, c.Name)
	}
	require.Equal(t, names, named(readReference(t, "operating.md").section(t, "Doctor").rows()))
}

func TestExamine_SaysWhatIsWrongWithTheDatabase(t *testing.T) {
	dir := t.TempDir()
	cfg := noEngine(t, map[string]string{"BERTH_DATA_DIR": dir})
	database, key := filepath.Join(dir, "berth.db"), filepath.Join(dir, "key")
	require.NoError(t, os.WriteFile(database, []byte("x"), 0o600))
	_, err := cfg.lookAtDatabase(t.Context())
	require.ErrorContains(t, err, database)
	require.NoError(t, os.Remove(database))
	opened, err := store.Open(t.Context(), store.Options{Path: database, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	_, err = cfg.lookAtDatabase(t.Context())
	require.ErrorContains(t, err, "key is missing")
	require.NoError(t, os.WriteFile(key, make([]byte, 32), 0o644))
	_, err = cfg.lookAtDatabase(t.Context())
	require.ErrorContains(t, err, "open to other users")
	require.NoError(t, os.Chmod(key, 0o600))
	detail, err := cfg.lookAtDatabase(t.Context())
	require.NoError(t, err)
	require.Contains(t, detail, database+" is whole")

	cfg.DatabaseURL = "postgres://berth:secret@127.0.0.1:1/berth"
	_, err = cfg.lookAtDatabase(t.Context())
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.NotContains(t, err.Error(), "secret")
}

func TestExamine_LooksAtTheKeyFileOfTheSettings(t *testing.T) {
	dir, key := t.TempDir(), filepath.Join(t.TempDir(), "key")
	cfg := noEngine(t, map[string]string{"BERTH_DATA_DIR": dir, "BERTH_KEY_FILE": key})
	opened, err := store.Open(t.Context(), store.Options{Path: filepath.Join(dir, "berth.db"), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	_, err = cfg.lookAtDatabase(t.Context())
	require.ErrorContains(t, err, key)
	require.NoFileExists(t, key)
	require.NoError(t, os.WriteFile(key, make([]byte, 32), 0o600))
	_, err = cfg.lookAtDatabase(t.Context())
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(dir, "key"))
}

func TestCertificates_AreThoseThatClientsGet(t *testing.T) {
	cfg := noEngine(t, map[string]string{"BERTH_DATA_DIR": t.TempDir()})
	look, none := cfg.certificates()
	require.Nil(t, look)
	require.Contains(t, none, "plain HTTP")

	proxy := httptest.NewUnstartedServer(http.NotFoundHandler())
	proxy.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	proxy.StartTLS()
	defer proxy.Close()
	var err error
	cfg.BaseURL, err = url.Parse(proxy.URL)
	require.NoError(t, err)
	look, _ = cfg.certificates()
	found, err := look(t.Context())
	require.NoError(t, err)
	require.Equal(t, proxy.Certificate().NotAfter, found[0].End)

	cfg.TLS, cfg.TLSCert, cfg.TLSKey = tlsFiles, "/none/cert.pem", "/none/key.pem"
	look, _ = cfg.certificates()
	_, err = look(t.Context())
	require.ErrorContains(t, err, "/none/cert.pem")

	cfg.TLS = tlsACME
	look, _ = cfg.certificates()
	found, err = look(t.Context())
	require.NoError(t, err)
	require.Empty(t, found)

	cfg.Cluster = clusterSwarm // its certificates are not in the data directory
	look, _ = cfg.certificates()
	found, err = look(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, proxy.Certificate().NotAfter, found[0].End)
}

func TestDNSName_IsThatOfAMirrorOrOfTheAuthority(t *testing.T) {
	cfg := noEngine(t, nil)
	require.Equal(t, "acme-v02.api.letsencrypt.org", cfg.dnsName())
	cfg.BuildEnvFile = filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(cfg.BuildEnvFile, []byte("A=http://192.0.2.1/\nB=https://user:secret@mirror.internal:8443/x\n"), 0o600))
	require.Equal(t, "mirror.internal", cfg.dnsName())
}

func TestResolveInside_DistinguishesAnEngineThatRunsNoContainer(t *testing.T) {
	s := engineAt(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/images/"):
			fmt.Fprint(w, `{"Size": 1}`)
		case strings.Contains(r.URL.Path, "/networks"):
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"message": "no bridge"}`)
		default:
			fmt.Fprint(w, "{}")
		}
	})
	require.NoError(t, s.awaitEngine(t.Context()))
	e := &examined{cfg: Config{NetworkPool: netip.MustParsePrefix("10.215.78.0/24")}, engine: s.engine}
	ran, err := e.resolveInside(t.Context(), "registry.test")
	require.False(t, ran)
	require.ErrorContains(t, err, "the engine ran no container: ")
	require.ErrorContains(t, err, "no bridge")
}

func TestResolveInside_BlamesALookUpThatRan(t *testing.T) {
	cfg, err := Load(func(string) (string, bool) { return "", false }, func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	opened, err := docker.Open(t.Context(), docker.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil && os.Getenv("BERTH_REQUIRE_ENGINE") != "1" {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, opened.Close()) })
	e := &examined{cfg: cfg, engine: opened}
	if _, err := anyImage(t.Context(), docker.NewDriver(opened, docker.Info{}, cfg.driverOptions(""))); err != nil {
		t.Skip(err)
	}
	ran, err := e.resolveInside(t.Context(), "none.invalid")
	require.True(t, ran, err)
	require.ErrorContains(t, err, "none.invalid does not resolve inside a container")
}

func TestNotReady_SaysThatTheServerWaitsForItsEngine(t *testing.T) {
	s := &Server{cfg: noEngine(t, map[string]string{"BERTH_DATA_DIR": t.TempDir()}), log: slog.New(slog.DiscardHandler)}
	w := httptest.NewRecorder()
	s.notReady("its Docker engine")(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	var report doctor.Report
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &report))
	require.False(t, report.OK)
	require.Equal(t, doctor.Fail, statuses(report)["engine"])
	require.Equal(t, doctor.Skip, statuses(report)["database"])
	require.Len(t, report.Checks, 13)
}
