package builder

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/lastlines"
)

// The layout inside build and run containers.
const (
	AppDir   = "/app"
	home     = "/home/app"
	cacheDir = "/cache"
	caFile   = "/.berth-ca.pem"
	caStore  = "/.berth-ca.jks" // the same certificates for Java
)

// lastBytes is how much of a command's output its error contains.
const lastBytes = 3000

// box is the container of one build.
type box struct {
	cfg  *Config
	job  Job
	base string // image to start from
	id   string
}

// build runs the commands and keeps their results.
func (x *box) build(ctx context.Context) error {
	if err := x.prepare(ctx); err != nil {
		return err
	}
	for _, step := range x.job.steps() {
		if err := x.runStep(ctx, step); err != nil {
			return err
		}
		failpoint.Here("command-run")
	}
	if x.job.Spec.IsStatic() {
		return x.publish(ctx)
	}
	return x.commit(ctx)
}

// prepare creates the container with the source in it, and starts it if there is a
// command to run.
func (x *box) prepare(ctx context.Context) error {
	steps := len(x.job.steps()) > 0
	spec := engine.Spec{
		Key:    x.job.key().WithoutGeneration(),
		Name:   x.job.key().Build(),
		Image:  x.base,
		User:   x.user(),
		Dir:    x.dir(),
		Cmd:    []string{"sleep", "infinity"},
		Memory: x.cfg.Memory,
		Pids:   x.cfg.Pids,
		LogMax: 1 << 20,
		// Half of what a running service gets when both want the processor.
		CPUShares: 512,
	}
	if steps {
		spec.Network = x.job.key().Network()
		spec.Volumes = map[string]string{cacheDir: x.job.key().Cache()}
	}
	var err error
	x.id, err = x.cfg.Engine.Prepare(ctx, spec)
	failpoint.Here("build-container-made")
	if err != nil {
		return err
	}
	if err := x.copySource(ctx, steps); err != nil || !steps {
		return err
	}
	if err := x.job.Network(ctx); err != nil {
		return err
	}
	return x.cfg.Engine.Start(ctx, x.id)
}

// copySource streams the source tree and the stack's user into the container.
func (x *box) copySource(ctx context.Context, withCache bool) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(x.writeTree(ctx, w, withCache)) }()
	err := x.cfg.Engine.CopyIn(ctx, x.id, r)
	r.CloseWithError(err) // ends the writer if the engine stopped reading
	return err
}

func (x *box) writeTree(ctx context.Context, w io.Writer, withCache bool) error {
	uid := x.job.Stack.UID()
	tw := tar.NewWriter(w)
	accounts := fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\napp:x:%[1]d:%[1]d:app:%[2]s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", uid, home)
	groups := fmt.Sprintf("root:x:0:\napp:x:%d:\nnogroup:x:65534:\n", uid)
	entries := []entry{
		{name: "etc/passwd", data: []byte(accounts)},
		{name: "etc/group", data: []byte(groups)},
		{name: "home/app/", uid: uid},
		{name: "data/", uid: uid},
	}
	if withCache {
		entries = append(entries, entry{name: "cache/", uid: uid})
		if len(x.cfg.CA) > 0 {
			store, err := truststore(x.cfg.CA)
			if err != nil {
				return err
			}
			entries = append(entries, entry{name: "cache" + caFile, data: x.cfg.CA}, entry{name: "cache" + caStore, data: store})
		}
	}
	for _, e := range entries {
		if err := e.write(tw); err != nil {
			return err
		}
	}
	if err := archive.WriteTar(ctx, tw, x.job.Source, "app", uid, uid); err != nil {
		return err
	}
	return tw.Close()
}

// entry is a folder (its name ends in a slash) or a small file that the host adds to
// the container.
type entry struct {
	name string
	uid  int
	data []byte
}

func (e entry) write(tw *tar.Writer) error {
	h := &tar.Header{Name: e.name, Uid: e.uid, Gid: e.uid, Mode: 0o644, Size: int64(len(e.data)), ModTime: time.Now()}
	if strings.HasSuffix(e.name, "/") {
		h.Typeflag, h.Mode = tar.TypeDir, 0o755
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(e.data)
	return err
}

// runStep executes one command and writes its output to the build log.
func (x *box) runStep(ctx context.Context, s step) error {
	fmt.Fprintf(x.job.Log, "$ %s\n", s.command)
	limited, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	last := lastlines.OfOutput(lastBytes)
	out := io.MultiWriter(x.job.Log, last)
	code, err := x.cfg.Engine.Exec(limited, x.id, engine.Cmd{
		// One pipe for both outputs keeps their lines in order.
		Args: []string{"sh", "-c", "exec 2>&1\n" + s.command},
		Env:  x.commandEnv(),
		User: x.user(),
		Dir:  x.dir(),
	}, out, out)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fault(x.job, "%s ran longer than %s and was killed: %s%s", s.name, x.cfg.Timeout, s.command, last.Phrase())
	case err != nil:
		return err
	case code != 0:
		return fault(x.job, "%s failed: %q exited with code %d%s", s.name, s.command, code, last.Phrase())
	}
	return nil
}

// commandEnv returns the environment of a build command: the runtime's, the operator's
// package hosts, then the job's own; later ones win.
func (x *box) commandEnv() []string {
	env := BaseEnv(x.job.Spec.Base(), x.job.Spec.Root, true)
	maps.Copy(env, x.cfg.Env)
	if len(x.cfg.CA) > 0 {
		for _, name := range caVariables {
			env[name] = cacheDir + caFile
		}
		env["JAVA_TOOL_OPTIONS"] = strings.TrimSpace(env["JAVA_TOOL_OPTIONS"] + " -Djavax.net.ssl.trustStore=" + cacheDir + caStore)
	}
	maps.Copy(env, x.job.Env)
	return EnvList(env)
}

// caVariables are the names in which common clients look for a bundle.
var caVariables = []string{
	"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE", "CURL_CA_BUNDLE",
	"REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
}

// commit creates the image of the generation.
func (x *box) commit(ctx context.Context) error {
	err := x.cfg.Engine.Commit(ctx, x.id, x.job.key(), engine.ImageConfig{
		User: x.user(),
		Dir:  x.dir(),
		Env:  []string{"HOME=" + home},
	})
	failpoint.Here("image-committed")
	return err
}

// removeContainer removes the container, with whatever still runs in it.
func (x *box) removeContainer() {
	if x.id == "" {
		return // it was never created
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := x.cfg.Engine.Remove(ctx, x.id); err != nil {
		x.cfg.Log.Error("build container not removed; the next sweep tries again", "stack", x.job.Stack.ID, "service", x.job.Spec.Name, "error", err)
	}
}

func (x *box) dir() string { return path.Join(AppDir, x.job.Spec.Root) }

func (x *box) user() string {
	uid := strconv.Itoa(x.job.Stack.UID())
	return uid + ":" + uid
}
