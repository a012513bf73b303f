package builder

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/source"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// plan says how the install command of a job is done.
type plan struct {
	inputs runtimes.Inputs
	layer  stack.Layer // what install leaves, or has left; without inputs if that is not kept
	taken  bool        // the layer is one of before: install does not run
}

// isLayered reports whether install runs in a separate container, which has only
// those files of the source that it reads.
func (p *plan) isLayered() bool { return p.layer.Image != "" && p.inputs.Whole == "" }

// seeWhole makes install run with the whole source, which its inputs did not tell. That is
// recorded for as long as they stay the same.
func (p *plan) seeWhole(why string) {
	p.inputs.Whole = why
	p.layer.Image, p.layer.Whole = "", why
}

// plan decides how the install command is done, and says so in the log.
func (b *Builder) plan(ctx context.Context, job Job, base string) (plan, error) {
	p := plan{inputs: job.installInputs()}
	if job.Spec.IsStatic() && job.Spec.Build == "" {
		p.inputs = runtimes.Inputs{Whole: "there is no build command"}
	}
	if job.keepsLayer(&p.inputs) {
		inputs, err := b.hashInputs(job, base, &p.inputs)
		if err != nil {
			return plan{}, err
		}
		p.layer = stack.Layer{Image: job.layerImage(&p.inputs), Generation: job.Generation, Inputs: inputs}
	}
	if p.inputs.Unlisted && job.Layer.Whole != "" && job.difference(p.layer.Inputs, "") == "" {
		p.seeWhole(job.Layer.Whole)
	}
	changed, err := b.compare(ctx, job, &p)
	if err != nil {
		return plan{}, err
	}
	if p.taken = p.layer.Inputs != nil && changed == ""; p.taken {
		p.layer = job.Layer
	}
	if job.Spec.Install != "" {
		fmt.Fprintln(job.Log, p.describe(job, changed))
	}
	return p, nil
}

// compare says why the layer of before cannot be taken over; "" if it can.
func (b *Builder) compare(ctx context.Context, job Job, p *plan) (string, error) {
	changed := cmp.Or(job.difference(p.layer.Inputs, p.inputs.Lock), job.Layer.Whole)
	switch {
	case changed == "" && job.Layer.Image == "" && p.layer.Image != "":
		return fmt.Sprintf("what generation %d installed is in the build cache alone", job.Layer.Generation), nil
	case changed != "" || job.Layer.Image == "":
		return changed, nil // what is no longer in the build cache is fetched again
	}
	there, err := b.cfg.Engine.HasImage(ctx, job.Layer.Image)
	if !there {
		changed = fmt.Sprintf("what generation %d installed is gone", job.Layer.Generation)
	}
	return changed, err
}

// freshBuild is why install runs in a fresh build.
const freshBuild = "a fresh build was asked for"

// describe returns the line of the log on how install is done.
func (p *plan) describe(job Job, changed string) string {
	same := "nothing that it reads"
	if p.inputs.Whole != "" {
		same = "the source"
	} else if p.inputs.Lock != "" {
		same = job.relative(p.inputs.Lock)
	}
	switch {
	case p.taken:
		return fmt.Sprintf("install: taken over from generation %d (%s unchanged)", p.layer.Generation, same)
	case p.inputs.Whole != "" && job.Stack.LastDeploy.Fresh:
		return fmt.Sprintf("install: run with the whole source (%s; %s)", freshBuild, p.inputs.Whole)
	case p.inputs.Whole != "":
		return fmt.Sprintf("install: run with the whole source (%s)", p.inputs.Whole)
	}
	return fmt.Sprintf("install: run (%s)", changed)
}

// installInputs returns what the install command reads; nothing without a command.
func (j *Job) installInputs() runtimes.Inputs {
	if j.Spec.Install == "" {
		return runtimes.Inputs{}
	}
	def, ok := runtimes.Lookup(j.Spec.Base().Name)
	root, err := os.OpenRoot(source.Tree(j.Source))
	if !ok || err != nil {
		return runtimes.Inputs{Whole: "its source cannot be read"}
	}
	defer root.Close()
	return def.InstallInputs(root.FS(), j.Spec.Root, j.Spec.Install, j.Spec.Build, j.Env)
}

// keepsLayer reports whether what install leaves is kept: where it is all that a process
// needs besides the source, or where the build command can go on from it.
func (j *Job) keepsLayer(inputs *runtimes.Inputs) bool {
	if j.Spec.Build == "" {
		return !j.Spec.IsStatic()
	}
	return inputs.Whole == ""
}

// layerImage returns the reference of the layer that the job makes; "" if the build command
// can go on from the base image, since all of it lies in the build cache.
func (j *Job) layerImage(inputs *runtimes.Inputs) string {
	switch {
	case inputs.Whole != "":
		return j.image()
	case j.Spec.Build != "" && (inputs.Cached || j.Spec.Install == ""):
		return ""
	}
	return j.key().Layer(j.Attempt)
}

// remarks are what the log says of inputs that are not files.
var remarks = []struct{ name, change string }{
	{"command", "the command changed"},
	{"base", "the base image changed"},
	{"environment", "its environment changed"},
	{"folder", "root changed"},
	{stack.WholeSource, "the source changed"},
}

// hashInputs returns the inputs of a layer: keyed hashes, since the environment and some
// files have secrets.
func (b *Builder) hashInputs(job Job, base string, inputs *runtimes.Inputs) (map[string]string, error) {
	src, err := source.Load(job.Source, job.Digest)
	if err != nil {
		return nil, fmt.Errorf("hash what install reads: %w", err)
	}
	hashes := map[string]string{}
	add := func(name string, parts ...string) {
		mac := hmac.New(sha256.New, b.cfg.LayerKey)
		fmt.Fprintf(mac, "%q %q %q", job.Stack.ID, name, parts)
		hashes[name] = hex.EncodeToString(mac.Sum(nil)[:16])
	}
	add("base", base)
	add("command", job.Spec.Install)
	add("folder", job.Spec.Root)
	if job.Spec.Install != "" {
		add("environment", b.cfg.commandEnv(&job, "GENERATION")...) // which is new each time
	}
	if inputs.Whole != "" {
		add(stack.WholeSource, job.Digest)
	}
	for _, name := range inputs.Files {
		e, _ := src.Find(name)
		add("/"+name, e.Mode.String(), hex.EncodeToString(e.Sum[:]))
	}
	return hashes, nil
}

// difference says how the inputs of a layer differ from those of the one before; "" if
// they do not. Of several files it names the lock file, if that is among them.
func (j *Job) difference(now map[string]string, lock string) string {
	before := j.Layer.Inputs
	switch {
	case before == nil && j.Stack.LastDeploy.Fresh:
		return freshBuild
	case before == nil && j.Stack.CachesDropped > 0:
		return "nothing of earlier builds is kept"
	case before == nil:
		return "for the first time"
	}
	for _, c := range remarks {
		if before[c.name] != now[c.name] {
			return c.change
		}
	}
	names := slices.Concat([]string{"/" + lock}, slices.Sorted(maps.Keys(now)), slices.Sorted(maps.Keys(before)))
	for _, name := range names {
		switch old, current := before[name], now[name]; {
		case old == current:
		case old == "":
			return j.relative(name[1:]) + " is new"
		case current == "":
			return j.relative(name[1:]) + " is gone"
		default:
			return j.relative(name[1:]) + " changed"
		}
	}
	return ""
}

// relative returns a path of the source as the service's folder sees it.
func (j *Job) relative(name string) string { return runtimes.Relative(j.Spec.Root, name) }

// selection selects entries of the source to copy, by their paths.
type selection func(name string, folder bool) bool

func everything(string, bool) bool { return true }

// only selects files, and the folders that they are in.
func only(files []string) selection {
	wanted := map[string]bool{}
	for _, name := range files {
		for ; !wanted[name] && name != "."; name = path.Dir(name) {
			wanted[name] = true
		}
	}
	return func(name string, _ bool) bool { return wanted[name] }
}

// without selects all but some files.
func without(files []string) selection {
	return func(name string, _ bool) bool {
		_, found := slices.BinarySearchFunc(files, name, strings.Compare)
		return !found
	}
}
