package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// measured is what GET /v0/stacks/{id}/metrics says of a service.
type measured struct {
	Times    []int64
	Requests []*int
	Status2  []*int `json:"status_2xx"`
	Status5  []*int `json:"status_5xx"`
	Out      []*int `json:"bytes_out"`
	Crashes  []*int
	Restarts []*int
	P99      []*float64 `json:"p99_ms"`
	CPU      []*float64 `json:"cpu_cores"`
	Memory   []*float64 `json:"memory_bytes"`
	Data     []*float64 `json:"data_bytes"`
}

// metricsOf reads the last minutes of a stack's service.
func (h *Host) metricsOf(t *testing.T, st *Stack, service string) measured {
	t.Helper()
	var got struct {
		Step     int
		Services map[string]measured
	}
	r := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/metrics?since=10m")
	require.Equal(t, http.StatusOK, r.status, r.body)
	require.NoError(t, json.Unmarshal([]byte(r.body), &got))
	require.Equal(t, 15, got.Step)
	m := got.Services[service]
	require.Len(t, m.Times, 40)
	for _, list := range [][]*int{m.Requests, m.Status2, m.Status5, m.Out, m.Crashes, m.Restarts} {
		require.Len(t, list, 40)
	}
	for _, list := range [][]*float64{m.P99, m.CPU, m.Memory, m.Data} {
		require.Len(t, list, 40)
	}
	return m
}

// total adds up what was measured.
func total[N int | float64](list []*N) (sum N) {
	for _, n := range list {
		if n != nil {
			sum += *n
		}
	}
	return sum
}

// asks waits until a service answers n times, and returns how often it did.
func (h *Host) asks(t *testing.T, st *Stack, n int) (answers int) {
	t.Helper()
	eventually(t, "the service answers", func() error {
		for answers < n {
			if r := h.get(t, st.url("web", "/")); r.status != http.StatusOK {
				return fmt.Errorf("%s", r)
			}
			answers++
		}
		return nil
	})
	return answers
}

// known reports whether anything of a list was measured.
func known(list []*float64) bool {
	return slices.ContainsFunc(list, func(n *float64) bool { return n != nil })
}

func TestUsage_IsMeasuredAndSurvivesAPoliteStop(t *testing.T) {
	t.Parallel()
	h := start(t, quickly)
	st := h.live(t, program(t), manifest(programManifest))
	asked := h.asks(t, st, 20)
	h.stop(t)
	h.run(t)
	asked += h.asks(t, st, 20)
	require.NoError(t, h.killProcess(t, st, "web", "KILL"))
	var m measured
	eventually(t, "all of it was measured", func() error {
		m = h.metricsOf(t, st, "web")
		if n := total(m.Status2); n < asked {
			return fmt.Errorf("%d requests", n)
		}
		if total(m.CPU) == 0 || total(m.Memory) == 0 || !known(m.Data) || total(m.Crashes) == 0 || total(m.Restarts) == 0 {
			return errors.New("something is missing")
		}
		if m.Memory[len(m.Memory)-1] == nil {
			return errors.New("the last step is not written")
		}
		return nil
	})
	require.Equal(t, asked, total(m.Status2))
	require.Equal(t, total(m.Requests), total(m.Status2)+total(m.Status5))
	require.Positive(t, total(m.Out))
	require.Positive(t, total(m.P99))
	require.Equal(t, 1, total(m.Crashes))
	require.Less(t, *m.Memory[len(m.Memory)-1], 1e9)
	require.Nil(t, m.Requests[0], "before the stack was there")
}

func TestUsage_LossHarmsNothingElse(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	h.kill(t)
	file := filepath.Join(h.dir, "metrics.db")
	require.NoError(t, os.Remove(file+"-wal"))
	require.NoError(t, os.WriteFile(file, make([]byte, 5000), 0o600))
	anHourAgo := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(file, anHourAgo, anHourAgo))
	h.run(t)
	h.asks(t, st, 1)
	eventually(t, "it measures again", func() error {
		if total(h.metricsOf(t, st, "web").Requests) == 0 {
			return errors.New("no request was measured")
		}
		return nil
	})
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.WithinRange(t, info.ModTime(), anHourAgo.Add(time.Minute), time.Now().Add(time.Minute), "it is the old file")
}
