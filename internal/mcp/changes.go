package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/client"
)

// newChanges returns what a redeploy uploads, and a note about it for the result: changes
// of the source that the stack serves, or a whole source.
func (t *tools) newChanges(ctx context.Context, api *client.Client, in arguments) (u client.Upload, note string, err error) {
	whole := in.Whole || in.Folder != ""
	switch {
	case whole && (len(in.Delete) > 0 || in.Base > 0):
		return u, "", errors.New("delete and base are for changes: leave them out with a whole source")
	case whole:
		u, err = t.newUpload(ctx, in)
		return u, "", err
	case in.takesKept():
		return client.Upload{Manifest: in.manifest(), Base: in.Base}, "", nil
	case !in.inline() && len(in.Delete) == 0:
		return u, "", t.nothing(in)
	}
	if in.inline() {
		if u, err = t.newUpload(ctx, in); err != nil {
			return u, "", err
		}
	}
	u.Manifest, u.Base, u.Delete = in.manifest(), in.Base, in.Delete
	if u.Base > 0 {
		return u, "", nil
	}
	return t.overServed(ctx, api, in, u)
}

// nothing returns the error for a redeploy that changes nothing.
func (t *tools) nothing(in arguments) error {
	if in.Base > 0 {
		return errors.New("base says which generation your changes are for, and there are none: pass files, delete or manifest, or fresh to build the same source again")
	}
	folder := ""
	if t.cfg.Pack != nil {
		folder = "folder, "
	}
	return fmt.Errorf("there is nothing to deploy: pass %sfiles, delete or manifest, or fresh to build the same source again", folder)
}

// overServed makes an upload one of changes of the source that the stack serves. Files
// for a stack without a kept source are a whole one.
func (t *tools) overServed(ctx context.Context, api *client.Client, in arguments, u client.Upload) (client.Upload, string, error) {
	s, err := api.Stack(ctx, in.Stack, false)
	if err != nil {
		return u, "", err
	}
	digest, err := api.SourceDigest(ctx, in.Stack)
	switch {
	case client.IsStatus(err, http.StatusNotFound, http.StatusConflict) && len(u.Delete) == 0:
		return u, "note: no source of this stack was kept, so the files sent are taken as the whole source.\n", nil
	case err != nil:
		return u, "", err
	}
	u.Base, u.Digest = s.Generation, digest
	return u, "", nil
}

// Limits of what read_source returns: bytes of a file, and files of a listing.
const (
	maxFile   = 60_000
	maxListed = 1_000
)

func (t *tools) readSource(ctx context.Context, api *client.Client, in arguments) (string, error) {
	if slices.Contains(strings.Split(in.Path, "/"), "..") { // the path of another endpoint
		return "", fmt.Errorf("there is no %.200s in the source\nnext: call read_source without path to list what there is", in.Path)
	}
	if strings.Trim(in.Path, "/.") == "" {
		listing, err := api.Source(ctx, in.Stack)
		if err != nil {
			return "", err
		}
		return reportSource(listing), nil
	}
	content, text, folder, err := api.SourceFile(ctx, in.Stack, strings.TrimPrefix(in.Path, "./"), maxFile+1)
	switch {
	case err != nil:
		return "", err
	case folder != nil:
		return reportSource(folder), nil
	case !text:
		return in.Path + " is not text.", nil
	case len(content) > maxFile:
		return cutText(content[:maxFile]) + fmt.Sprintf("\n[only the first %d bytes are shown]", maxFile), nil
	}
	return string(content), nil
}

// cutText returns text that may have been cut within a character.
func cutText(text []byte) string {
	for n := len(text); n > len(text)-utf8.UTFMax && n > 0; n-- {
		if utf8.Valid(text[:n]) {
			return string(text[:n])
		}
	}
	return strings.ToValidUTF8(string(text), "")
}

// reportSource lists the files of a source, a line each.
func reportSource(s *client.Source) string {
	var b strings.Builder
	fmt.Fprintf(&b, "generation: %d\n", s.Generation)
	for i, f := range s.Files {
		if i == maxListed {
			fmt.Fprintf(&b, "[%d more files; pass path, a folder, to list it]\n", len(s.Files)-maxListed)
			break
		}
		switch {
		case f.Target != "":
			fmt.Fprintf(&b, "%s -> %s\n", f.Path, f.Target)
		case f.Mode == "0755":
			fmt.Fprintf(&b, "%s (%d bytes, executable)\n", f.Path, f.Size)
		default:
			fmt.Fprintf(&b, "%s (%d bytes)\n", f.Path, f.Size)
		}
	}
	return b.String() + "next: call read_source with path to read a file, or redeploy with the files that you change."
}
