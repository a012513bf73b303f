package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"slices"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/pack"
)

// overlay is a folder on its way to a stack, laid over the source that the stack serves.
type overlay struct {
	from  origin
	tree  *pack.Tree
	files map[string]pack.File // of the folder
	base  *seen                // the source that is served; nil if it is not known
	all   bool                 // send what is unchanged as well
	alone bool                 // the server refuses to lay anything over the base
}

// overlay finds out what a folder changes in the source that a stack serves. It returns
// nil if that source is not known.
func (a *app) overlay(ctx context.Context, o origin, t *target) (*overlay, error) {
	base := a.served(ctx, t)
	if base == nil {
		return nil, nil
	}
	tree, err := pack.Scan(ctx, o.path, o.include)
	if err != nil {
		return nil, err
	}
	files, err := tree.Files(ctx)
	if err != nil {
		return nil, err
	}
	return &overlay{from: o, tree: tree, files: files, base: base}, nil
}

// upload redeploys a stack from a folder or an archive. The caller closes the spool.
func (a *app) upload(ctx context.Context, d *deployment, t *target) (since int64, s *spool, err error) {
	var o *overlay
	if info, err := os.Stat(d.from.path); err == nil && info.IsDir() {
		if o, err = a.overlay(ctx, d.from, t); err != nil {
			return 0, nil, err
		}
	}
	for {
		if s, err = a.packOver(ctx, d.from, o); err != nil {
			return 0, nil, err
		}
		since, err = a.redeploy(ctx, d, t, s.form)
		if s.form.Base == 0 || !isOutdated(err) {
			break
		}
		s.Close()
		o.renew(ctx, a.ui, t)
	}
	if err == nil && o != nil {
		o.sayRemoved(a.ui)
	}
	if err == nil && s.dropsManifest(t) {
		a.ui.sayf("all of the source was replaced: a manifest that was given beside it before no longer counts; pass --manifest to give it again")
	}
	return since, s, err
}

// dropsManifest reports whether a folder was sent in such a way that a manifest that was
// given beside the served source no longer counts: without a base and a manifest.
func (s *spool) dropsManifest(t *target) bool {
	return s.form.Base == 0 && s.form.Manifest == nil && s.files != nil && manifestAmong(s.files) == "" && t.stack.Status == client.Live
}

// isOutdated reports whether a server refused changes because they are not for the source
// that it has. A build that is running is another conflict.
func isOutdated(err error) bool {
	refusal, ok := errors.AsType[*client.Error](err)
	return ok && refusal.RetryAfter == 0 && (refusal.Status == http.StatusConflict || refusal.Status == http.StatusPreconditionFailed)
}

// renew reads which source is served after the server has refused changes of the base,
// so that everything is laid over that one; or over none if the refused one is it.
func (o *overlay) renew(ctx context.Context, u *ui, t *target) {
	refused := o.base
	o.all = true
	if now := listed(ctx, t); now != nil {
		o.base = now
	}
	if o.base.Generation == refused.Generation && o.base.Digest == refused.Digest {
		o.alone = true
		u.sayf("the server cannot change the source that it keeps; sending everything")
		return
	}
	u.sayf("the stack has another source by now; sending everything")
}

// Limits of the paths that a deploy can delete.
const (
	mostDeletions    = 10_000
	mostDeletedBytes = 1 << 20
)

// packOver packs what is to be sent of a folder: what it changes in the base, or all of it
// if that is more than half of its files. Both are laid over the base, so that the same
// manifest counts. It packs the whole source without a base if nothing can be laid over
// one.
func (a *app) packOver(ctx context.Context, from origin, o *overlay) (*spool, error) {
	if o == nil || o.alone || len(o.files) == 0 {
		return a.archive(ctx, from)
	}
	diff := pack.NewDiff(o.base.Files, o.files)
	deleted := 0
	for _, name := range diff.Remove {
		deleted += len(name)
	}
	if len(diff.Remove) > mostDeletions || deleted > mostDeletedBytes {
		return a.archive(ctx, from)
	}
	s, err := newSpool(from)
	if err != nil {
		return nil, err
	}
	names := withManifest(diff.Send, o.files)
	if o.all || 2*len(diff.Send) > len(o.files) {
		names = slices.Sorted(maps.Keys(o.files))
	}
	if err := s.packSome(ctx, a.ui, o, names); err != nil {
		s.Close()
		return nil, err
	}
	s.form.Base, s.form.Digest, s.form.Delete = o.base.Generation, o.base.Digest, diff.Remove
	return s, nil
}

// withManifest adds the folder's manifest to the files to send, so that it counts as in a
// whole upload.
func withManifest(send []string, files map[string]pack.File) []string {
	if name := manifestAmong(files); name != "" && !slices.Contains(send, name) {
		return append(send, name)
	}
	return send
}

// manifestAmong returns the name of a folder's manifest, "" if it has none.
func manifestAmong(files map[string]pack.File) string {
	for _, name := range manifest.Files {
		if _, there := files[name]; there {
			return name
		}
	}
	return ""
}

// packSome packs some of a folder's files.
func (s *spool) packSome(ctx context.Context, u *ui, o *overlay, names []string) error {
	sum, err := o.tree.WriteSome(ctx, names, s.file)
	if err != nil {
		return err
	}
	maps.Copy(o.files, sum.Packed) // they may have changed meanwhile
	s.leftOut, s.files = o.tree.LeftOut, o.files
	if len(sum.Packed) < len(o.files) {
		u.sayf("packed what changed: %d of %s", len(sum.Packed), counted(len(o.files)))
	} else {
		s.sayPacked(u, sum)
	}
	return s.fillForm()
}

func counted(files int) string {
	if files == 1 {
		return "1 file"
	}
	return fmt.Sprintf("%d files", files)
}

// sayRemoved names the files of the served source that the deployed one does not have:
// the ones missing from the folder, and the ones that the rules exclude.
func (o *overlay) sayRemoved(u *ui) {
	leftOut := map[string]bool{} // and whether it contains a removed file
	for _, name := range o.tree.LeftOut {
		leftOut[name] = false
	}
	gone, excluded := map[string]pack.File{}, 0
	for name, file := range o.base.Files {
		if _, there := o.files[name]; there {
			continue
		}
		if rule := within(leftOut, name); rule != "" {
			leftOut[rule] = true
			excluded++
			continue
		}
		gone[name] = file
	}
	if len(gone) > 0 {
		u.sayf("removed %s: %s", counted(len(gone)), few(pack.NewDiff(gone, o.files).Remove))
	}
	if excluded > 0 {
		maps.DeleteFunc(leftOut, func(_ string, removed bool) bool { return !removed })
		u.sayf("removed %s left out here: %s; pass --include PATTERN to keep what it matches", counted(excluded), few(slices.Sorted(maps.Keys(leftOut))))
	}
}

// within returns the path among some that is the given one or a folder above it; "" for
// none.
func within(some map[string]bool, name string) string {
	for ; name != "."; name = path.Dir(name) {
		if _, there := some[name]; there {
			return name
		}
	}
	return ""
}
