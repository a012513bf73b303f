package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/stretchr/testify/require"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

func TestImage_ServesFromAContainerAndHandsOver(t *testing.T) {
	h := install(t)
	server := h.runImage(t)
	web := h.live(t, page("from a container"), nil)
	app := h.live(t, program(t), manifest(programManifest))
	require.Equal(t, "from a container", h.get(t, web.url("web", "/")).body)
	require.Equal(t, "hello from web", h.get(t, app.url("web", "/")).body)
	require.Equal(t, 200, h.get(t, app.url("web", "/log?from=0&to=10")).status)
	h.logged(t, app, "", "line 9\n")
	before := h.inspect(t, app, "web")
	code, _, err := server.Exec(t.Context(), []string{"sh", "-c", "kill -HUP 1"})
	require.NoError(t, err)
	require.Zero(t, code)
	eventually(t, "a reload is refused", func() error {
		out, err := server.Logs(t.Context())
		if err != nil {
			return err
		}
		defer out.Close()
		if text, err := io.ReadAll(out); err != nil || !strings.Contains(string(text), "this is the first process of a container") {
			return fmt.Errorf("the log is %s %w", text, err)
		}
		return nil
	})
	require.Equal(t, "hello from web", h.get(t, app.url("web", "/")).body)

	stop := 30 * time.Second
	require.NoError(t, server.Stop(t.Context(), &stop))
	state, err := server.State(t.Context())
	require.NoError(t, err)
	require.Zero(t, state.ExitCode, "the server did not end well on SIGTERM")

	// The next server is a process on the host, with the same data.
	h.run(t)
	require.Equal(t, before.State.Pid, h.inspect(t, app, "web").State.Pid)
	require.Equal(t, "from a container", h.get(t, web.url("web", "/")).body)
	require.Equal(t, "hello from web", h.get(t, app.url("web", "/")).body)
	require.Equal(t, "### web (run)\nweb starts\n"+lines(0, 10), h.logs(t, app, ""))
}

// runImage runs the installation's server from the image that the Dockerfile
// makes, until the test ends.
func (h *Host) runImage(t *testing.T) *testcontainers.DockerContainer {
	t.Helper()
	var log bytes.Buffer
	env := map[string]string{"BERTH_DATA_DIR": "/data"}
	for _, name := range []string{"BERTH_LISTEN", "BERTH_BASE_URL", "BERTH_REDIS_URL", "BERTH_UNCLAIMED_PER_IP", "BERTH_CREATES_PER_HOUR"} {
		env[name] = h.env[name]
	}
	server, err := testcontainers.Run(t.Context(), "",
		testcontainers.WithDockerfile(testcontainers.FromDockerfile{
			ContextArchive: bytes.NewReader(serverContext(t)),
			Repo:           "berth-test-berthd",
			Tag:            h.instance,
			BuildArgs:      buildArgs(),
			BuildLogWriter: &log,
		}),
		testcontainers.WithEnv(env),
		// Not the label of the stacks' objects, which are counted.
		testcontainers.WithLabels(map[string]string{labelInstance: instanceName(0)}),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.NetworkMode = "host"
			c.CapAdd = []string{"NET_ADMIN"}
			c.Binds = []string{h.dir + ":/data", "/var/run/docker.sock:/var/run/docker.sock"}
		}),
		testcontainers.WithWaitStrategy(wait.ForLog(`"msg":"serving"`).WithStartupTimeout(patience)),
	)
	t.Cleanup(func() {
		if server != nil {
			require.NoError(t, server.Terminate(context.Background()))
		}
	})
	require.NoError(t, err, "%s", log.String())
	return server
}

// serverContext is the context that make image gives the Dockerfile.
func serverContext(t *testing.T) []byte {
	t.Helper()
	files, err := installFiles()
	require.NoError(t, err)
	files["Dockerfile"], err = os.ReadFile("../Dockerfile")
	require.NoError(t, err)
	path, err := buildShipped()
	require.NoError(t, err)
	files["berthd"], err = os.ReadFile(path)
	require.NoError(t, err)
	packed, err := packContext(files)
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = b.ReadFrom(packed)
	require.NoError(t, err)
	return b.Bytes()
}
