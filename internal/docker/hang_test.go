package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/docker/docker/api/types/volume"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// hanging is an engine that takes all requests and never answers those whose path has a
// part.
type hanging struct{ part string }

func (h hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, h.part) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	answer := func(code int, body io.Reader) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(body), Request: r}, nil
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/networks"):
		return answer(http.StatusOK, strings.NewReader("[]"))
	case r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/volumes/"):
		found, err := json.Marshal(volume.Volume{Labels: key.WithoutGeneration().Labels("own")})
		if err != nil {
			return nil, err
		}
		return answer(http.StatusOK, bytes.NewReader(found))
	case strings.HasSuffix(r.URL.Path, "/volumes/create"):
		return answer(http.StatusCreated, r.Body) // the volume as it was asked for
	}
	return answer(http.StatusOK, strings.NewReader(`{"Size":1,"State":{"Running":true},"HostConfig":{"NetworkMode":"net"},"Config":{},"NetworkSettings":{}}`))
}

// changes are the calls of a driver that change something.
var changes = map[string]func(context.Context, *Driver) error{
	"Place":   func(ctx context.Context, d *Driver) error { return d.Place(ctx, key, 1) },
	"Run":     func(ctx context.Context, d *Driver) error { _, err := d.Run(ctx, withVolume); return err },
	"Prepare": func(ctx context.Context, d *Driver) error { _, err := d.Prepare(ctx, withVolume); return err },
	"Probe":   func(ctx context.Context, d *Driver) error { return d.Probe(ctx, withVolume) },
	"Start":   func(ctx context.Context, d *Driver) error { return d.Start(ctx, "id") },
	"Restart": func(ctx context.Context, d *Driver) error { return d.Restart(ctx, "id") },
	"Promote": func(ctx context.Context, d *Driver) error { return d.Promote(ctx, "id") },
	"Stop":    func(ctx context.Context, d *Driver) error { return d.Stop(ctx, "id") },
	"Remove":  func(ctx context.Context, d *Driver) error { return d.Remove(ctx, "id") },
	"Commit": func(ctx context.Context, d *Driver) error {
		return d.Commit(ctx, "id", "ref", key, engine.ImageConfig{})
	},
	"Tag":      func(ctx context.Context, d *Driver) error { return d.Tag(ctx, "ref", "another") },
	"Snapshot": func(ctx context.Context, d *Driver) error { return d.Snapshot(ctx, key, engine.SnapshotSpec{}) },
	"Restore":  func(ctx context.Context, d *Driver) error { return d.Restore(ctx, key, key.Process(0)) },
	"HasData": func(ctx context.Context, d *Driver) error {
		_, err := d.HasData(ctx, key, "", "image")
		return err
	},
	"CopyIn": func(ctx context.Context, d *Driver) error { return d.CopyIn(ctx, "id", &bytes.Buffer{}) },
	"Discard": func(ctx context.Context, d *Driver) error {
		return d.Discard(ctx, engine.Objects{Volumes: []engine.Volume{{Name: "volume"}}})
	},
}

var withVolume = engine.Spec{Name: "name", Key: key, Volumes: map[string]string{"/data": "volume"}}

func TestDriver_EndsWithItsContextWhenTheEngineHangs(t *testing.T) {
	for verb, call := range changes {
		t.Run(verb, func(t *testing.T) {
			took, err := askHanging(t, "", call)
			require.Error(t, err)
			assert.Less(t, took, finishTime+removal)
		})
	}
}

func TestDriver_FinishesAStepButNotForever(t *testing.T) {
	for verb, part := range map[string]string{
		"Place": "/networks/create", "Run": "/containers/create", "Prepare": "/containers/create", "Probe": "/containers/create",
		"Restart": "/connect", "Promote": "/connect", "Commit": "/commit", "Restore": "/containers/create",
	} {
		t.Run(verb, func(t *testing.T) {
			took, err := askHanging(t, part, changes[verb])
			require.ErrorIs(t, err, context.Canceled)
			assert.InDelta(t, finishTime, took, float64(time.Second))
		})
	}
}

// askHanging makes a call to an engine that hangs. Its context ends after a second.
func askHanging(t *testing.T, part string, call func(context.Context, *Driver) error) (took time.Duration, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api, openErr := client.NewClientWithOpts(client.WithHTTPClient(&http.Client{Transport: hanging{part}}), client.WithVersion("1.44"))
		require.NoError(t, openErr)
		e := &Engine{api: api, log: slog.New(slog.DiscardHandler)}
		d := NewDriver(e, Info{}, DriverOptions{Instance: "own", Pool: netip.MustParsePrefix("10.9.9.0/24")})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err = call(ctx, d)
		took = time.Since(began) - time.Second
	})
	return took, err
}
