package builder

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-host/berth/internal/archive"
	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/failpoint"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// The layout inside build and run containers.
const (
	AppDir = "/app"

	sourcePrefix = "app" // AppDir in a tar
	home         = "/home/app"
	cacheDir     = "/cache"
	caFile       = "/.berth-ca.pem"
	caStore      = "/.berth-ca.jks" // the same certificates for Java
)

// lastBytes is how much of a command's output its error contains.
const lastBytes = 3000

// fileMax is how long a file may be that a command writes, in bytes. Holes cost nothing:
// without a limit, the sum of a few lengths would not fit into 64 bits.
const fileMax = 64 << 30

// box is a container of one build.
type box struct {
	cfg   *Config
	job   Job
	name  string    // of the container
	base  string    // image of the runtime
	image string    // to start from
	bare  bool      // the image does not have the stack's user yet
	files selection // of the source, to copy in
	runs  bool      // commands are to run in it
	id    string
	lacks bool // the next command is to bring the source
}

// open makes the container with the source in it, and starts it if commands are to run; or
// takes the one that is ready.
func (x *box) open(ctx context.Context) error {
	if id := x.job.Ready.take(ctx, x); id != "" {
		x.id, x.lacks = id, true
		return nil
	}
	spec := engine.Spec{
		Key:     x.job.key().WithoutGeneration(),
		Name:    x.name,
		Image:   x.image,
		User:    x.user(),
		Dir:     x.dir(),
		Cmd:     []string{"sleep", "infinity"},
		Memory:  x.cfg.Memory,
		FileMax: fileMax,
		Pids:    x.cfg.Pids,
		LogMax:  1 << 20,
		// Half of what a running service gets when both want the processor.
		CPUShares: 512,
	}
	if x.runs {
		spec.Network = x.job.key().Builds().Network()
		spec.Volumes = map[string]string{cacheDir: x.job.key().Cache(x.job.Stack.CachesDropped)}
	}
	if !x.runs {
		return x.prepare(ctx, spec)
	}
	var parts errgroup.Group // without a context of its own: what one service makes is for the others too
	parts.Go(func() error { return x.job.Network(ctx) })
	parts.Go(func() error { return x.prepare(ctx, spec) })
	if err := parts.Wait(); err != nil {
		return err
	}
	return x.cfg.Engine.Start(ctx, x.id)
}

// prepare makes the container with the source in it.
func (x *box) prepare(ctx context.Context, spec engine.Spec) (err error) {
	x.id, err = x.cfg.Engine.Prepare(ctx, spec)
	failpoint.Here("build-container-made")
	if err != nil {
		return err
	}
	return x.fill(ctx)
}

// fill copies the source into the container, and what the host adds.
func (x *box) fill(ctx context.Context) error {
	return engine.Stream(ctx, x.writeTree, func(tar io.Reader) error { return x.cfg.Engine.CopyIn(ctx, x.id, tar) })
}

// writeTree writes what is copied into the container: the source, and what the host adds.
func (x *box) writeTree(ctx context.Context, w io.Writer) error {
	tw := tar.NewWriter(w)
	entries, err := x.entries()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := e.write(tw); err != nil {
			return err
		}
	}
	uid := x.job.Stack.UID()
	if err := archive.WritePart(ctx, tw, source.Tree(x.job.Source), sourcePrefix, uid, uid, x.files); err != nil {
		return err
	}
	return tw.Close()
}

// exec runs a command in the container, with the source.
func (x *box) exec(ctx context.Context, cmd engine.Cmd, out io.Writer) (int, error) {
	if x.lacks {
		x.lacks = false
		c := Copy{Dir: x.job.Source, UID: x.job.Stack.UID()}
		files := func(ctx context.Context, w io.Writer) error { return c.writeTree(ctx, w, x.files) }
		if begun := x.job.Ready.command(cmd); begun != nil {
			return begun.finish(ctx, files, out)
		}
		cmd.Files = files
	}
	return x.cfg.Engine.Exec(ctx, x.id, cmd, out, out)
}

// entries returns what the host adds: the stack's user, and what commands need.
func (x *box) entries() (entries []entry, err error) {
	uid := x.job.Stack.UID()
	if x.bare {
		accounts := fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\napp:x:%[1]d:%[1]d:app:%[2]s:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n", uid, home)
		groups := fmt.Sprintf("root:x:0:\napp:x:%d:\nnogroup:x:65534:\n", uid)
		entries = []entry{
			{name: "etc/passwd", data: []byte(accounts)},
			{name: "etc/group", data: []byte(groups)},
			{name: "home/app/", uid: uid},
			{name: "data/", uid: uid},
		}
	}
	if !x.runs {
		return entries, nil
	}
	entries = append(entries, entry{name: "cache/", uid: uid})
	if len(x.cfg.CA) > 0 {
		store, err := truststore(x.cfg.CA)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: "cache" + caFile, data: x.cfg.CA}, entry{name: "cache" + caStore, data: store})
	}
	return entries, nil
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

// runStep executes one command, unless it is "", and writes its output to the build log.
// Its name is that of the deploy's phase.
func (x *box) runStep(ctx context.Context, name stack.Phase, command string) error {
	if command == "" {
		return nil
	}
	x.job.Begin(name)
	fmt.Fprintf(x.job.Log, "$ %s\n", command)
	limited, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	last := lastlines.OfOutput(lastBytes)
	out := io.MultiWriter(x.job.Log, last)
	code, err := x.exec(limited, x.command(name, command), out)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return fault(x.job, "%s ran longer than %s and was killed: %s%s", name, x.cfg.Timeout, stack.CommandLine(command), last.Phrase())
	case err != nil:
		return err
	case code != 0:
		return fault(x.job, "%s failed: %q exited with code %d%s", name, stack.CommandLine(command), code, last.Phrase())
	}
	failpoint.Here("command-run")
	return nil
}

// command returns a command for the container.
func (x *box) command(name stack.Phase, command string) engine.Cmd {
	return engine.Cmd{
		Args: x.shell(name, command),
		Env:  x.cfg.commandEnv(&x.job),
		User: x.user(),
		Dir:  x.dir(),
	}
}

// shell returns what runs a command. One pipe for both outputs keeps their lines in order.
func (x *box) shell(name stack.Phase, command string) []string {
	def, ok := runtimes.Lookup(x.job.Spec.Base().Name)
	if name != stack.PhaseBuild || !ok || len(def.Caches) == 0 {
		return []string{"sh", "-c", "exec 2>&1\n" + command}
	}
	return compile(def, cacheDir, x.base, x.cfg.commandEnv(&x.job, "GENERATION"), command) // which is new each time
}

// maxSums limits what hasFiles passes to the container, in bytes: a program takes no
// longer argument.
const maxSums = 100 << 10

// hasFiles reports whether the container has files of the source as they were copied in,
// as far as that can be checked.
func (x *box) hasFiles(ctx context.Context, files []string) (bool, error) {
	src, err := source.Load(x.job.Source, x.job.Digest)
	if err != nil {
		return false, err
	}
	if len(files) == 0 {
		return true, nil
	}
	var sums strings.Builder
	for _, name := range files {
		e, _ := src.Find(name)
		fmt.Fprintf(&sums, "%x  %s\n", e.Sum, name)
	}
	if sums.Len() > maxSums {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	code, err := x.exec(limited, engine.Cmd{
		Args: []string{"sh", "-c", `printf %s "$1" | sha256sum -c --status`, "sh", sums.String()},
		User: x.user(),
		Dir:  AppDir,
	}, io.Discard)
	return code == 0, err
}

// findReader returns an installed dependency whose install script may have looked for files
// of the source; "" if there is none.
func (x *box) findReader(ctx context.Context) (string, error) {
	limited, cancel := context.WithTimeout(ctx, x.cfg.Timeout)
	defer cancel()
	var found bytes.Buffer
	_, err := x.cfg.Engine.Exec(limited, x.id, engine.Cmd{
		Args: []string{"sh", "-c", runtimes.FindScripts},
		User: x.user(),
		Dir:  AppDir,
	}, &found, io.Discard)
	return runtimes.Reader(found.String()), err
}

// commandEnv returns the environment of a job's commands, except some variables: the
// runtime's, the operator's package hosts, then the job's own; later ones win.
func (c *Config) commandEnv(job *Job, except ...string) []string {
	env := BaseEnv(job.Spec.Base(), job.Spec.Root, true)
	maps.Copy(env, c.Env)
	if len(c.CA) > 0 {
		for _, name := range caVariables {
			env[name] = cacheDir + caFile
		}
		env["JAVA_TOOL_OPTIONS"] = strings.TrimSpace(env["JAVA_TOOL_OPTIONS"] + " -Djavax.net.ssl.trustStore=" + cacheDir + caStore)
	}
	maps.Copy(env, job.Env)
	for _, name := range except {
		delete(env, name)
	}
	return EnvList(env)
}

// caVariables are the names in which common clients look for a bundle.
var caVariables = []string{
	"SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "NPM_CONFIG_CAFILE", "CURL_CA_BUNDLE",
	"REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO",
}

// commit creates an image of the container.
func (x *box) commit(ctx context.Context, ref string) error {
	err := x.cfg.Engine.Commit(ctx, x.id, ref, x.job.key(), engine.ImageConfig{
		User:  x.user(),
		Dir:   x.dir(),
		Env:   []string{"HOME=" + home},
		Floor: x.cfg.DiskFloor,
	})
	failpoint.Here("image-committed")
	if short, ok := errors.AsType[*engine.NoRoomError](err); ok && x.runs {
		return x.noRoom(ctx, short)
	}
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

func (x *box) user() string { return userOf(x.job.Stack) }

// userOf returns the user and group as which all of a stack runs.
func userOf(st *stack.Stack) string {
	uid := strconv.Itoa(st.UID())
	return uid + ":" + uid
}
