package docker

import (
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

func TestMaskedPaths_HaveTheHeatOfEveryProcessor(t *testing.T) {
	cpus := t.TempDir()
	for _, dir := range []string{"cpu0/thermal_throttle", "cpu1/cache", "cpu17/thermal_throttle", "cpufreq/thermal_throttle"} {
		require.NoError(t, os.MkdirAll(filepath.Join(cpus, dir), 0o700))
	}
	assert.Equal(t, []string{cpus + "/cpu0/thermal_throttle", cpus + "/cpu17/thermal_throttle"}, throttles(cpus))
	assert.Subset(t, maskedPaths(), throttles("/sys/devices/system/cpu"), "this machine's own")
}

// making is an engine that makes a container for somebody who no longer waits: its name is
// taken, and there is no such container.
type making struct{}

func (making) RoundTrip(r *http.Request) (*http.Response, error) {
	code := http.StatusNotFound
	if strings.HasSuffix(r.URL.Path, "/containers/create") {
		code = http.StatusConflict
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(`{"message":"no"}`)), Request: r}, nil
}

func TestPrepare_ANameThatTheEngineStillHoldsIsAFaultThatPasses(t *testing.T) {
	api, err := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: making{}}), client.WithVersion("1.44"))
	require.NoError(t, err)
	d := NewDriver(&Engine{api: api, log: slog.New(slog.DiscardHandler)}, Info{}, DriverOptions{Instance: "own"})
	_, err = d.Prepare(t.Context(), engine.Spec{Name: "name", Key: key})
	require.ErrorIs(t, err, engine.ErrHost)
}
