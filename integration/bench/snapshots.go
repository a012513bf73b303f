package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/berth-host/berth/images"
)

// snapshots is how often each way is taken.
const snapshots = 5

const (
	fillScript = `for n in $(seq 200); do head -c 1000000 /dev/urandom >/data/file$n || exit 1; done`
	listScript = `list() { cd "$1"; find . \( -type d -printf '%p d %m %U %G\n' \) -o -printf '%p %y %m %U %G %s\n' | LC_ALL=C sort; }; `
	copyScript = listScript + `mkdir /snapshot && cp -a /data/. /snapshot/ && [ "$(list /data)" = "$(list /snapshot)" ]`
)

// measureSnapshots compares two ways to keep 200 MB of a volume in an image of the same
// engine, each with a check of the copy: a container that copies them and is committed, which
// is what Berth does, and the engine's archive of the volume, imported as an image.
func (b *bench) measureSnapshots(ctx context.Context) error {
	h, err := newByHand(ctx)
	if err != nil {
		return err
	}
	defer h.engine.Close()
	defer h.clean()
	if _, err := h.script(ctx, fillScript); err != nil {
		return err
	}
	var committed, imported []float64
	ways := []struct {
		take func(context.Context) error
		took *[]float64
	}{{h.commitCopy, &committed}, {h.importArchive, &imported}}
	for round := range snapshots {
		for i := range ways {
			w := ways[(i+round)%2]
			syscall.Sync() // both begin with nothing left to write
			begun := time.Now()
			if err := w.take(ctx); err != nil {
				return err
			}
			*w.took = append(*w.took, inMillis(time.Since(begun)))
			h.dropSnapshot(ctx)
		}
	}
	b.table.compare("snapshot of 200 MB on one machine: copy and commit", millis, committed, "archive and import", imported, 0)
	return nil
}

// dropSnapshot removes the container and the image of a snapshot, but not the data.
func (h *byHand) dropSnapshot(ctx context.Context) {
	h.engine.ContainerRemove(ctx, handCopy, container.RemoveOptions{Force: true})
	h.engine.ImageRemove(ctx, handImage, image.RemoveOptions{Force: true})
}

// startScript starts a script in a new container that has the volume at /data.
func (h *byHand) startScript(ctx context.Context, script string) error {
	h.engine.ContainerRemove(ctx, handCopy, container.RemoveOptions{Force: true})
	config := &container.Config{Image: images.Debian, Cmd: []string{"bash", "-c", script}}
	host := &container.HostConfig{NetworkMode: "none", Mounts: []mount.Mount{{Type: mount.TypeVolume, Source: handVolume, Target: "/data"}}}
	if _, err := h.engine.ContainerCreate(context.WithoutCancel(ctx), config, host, nil, nil, handCopy); err != nil {
		return fmt.Errorf("by hand: %w", err)
	}
	return h.engine.ContainerStart(ctx, handCopy, container.StartOptions{})
}

// script runs a script to its end, and returns its output.
func (h *byHand) script(ctx context.Context, script string) (string, error) {
	if err := h.startScript(ctx, script); err != nil {
		return "", err
	}
	return h.scriptEnd(ctx)
}

// scriptEnd waits for the end of a script.
func (h *byHand) scriptEnd(ctx context.Context) (string, error) {
	log, err := h.engine.ContainerLogs(ctx, handCopy, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	if err != nil {
		return "", err
	}
	defer log.Close()
	var text bytes.Buffer
	if _, err := stdcopy.StdCopy(&text, &text, log); err != nil {
		return "", err
	}
	ended, err := h.engine.ContainerInspect(ctx, handCopy)
	if err == nil && ended.State.ExitCode != 0 {
		err = fmt.Errorf("by hand: the script exited with code %d: %s", ended.State.ExitCode, text.String())
	}
	return text.String(), err
}

func (h *byHand) commitCopy(ctx context.Context) error {
	if _, err := h.script(ctx, copyScript); err != nil {
		return err
	}
	_, err := h.engine.ContainerCommit(ctx, handCopy, container.CommitOptions{Reference: handImage})
	return err
}

// importArchive lists the files in a container while the engine reads them.
func (h *byHand) importArchive(ctx context.Context) error {
	if err := h.startScript(ctx, listScript+"list /data"); err != nil {
		return err
	}
	files, _, err := h.engine.CopyFromContainer(ctx, handCopy, "/data")
	if err != nil {
		return err
	}
	defer files.Close()
	r, w := io.Pipe()
	var listed []string
	go func() { w.CloseWithError(renameArchive(w, files, func(line string) { listed = append(listed, line) })) }()
	body, err := h.engine.ImageImport(ctx, image.ImportSource{Source: r, SourceName: "-"}, handImage, image.ImportOptions{})
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, body)
	want, err1 := h.scriptEnd(ctx)
	slices.Sort(listed)
	if err = errors.Join(err, err1, body.Close()); err == nil && want != strings.Join(listed, "") {
		err = errors.New("by hand: the archive has other files than the volume")
	}
	return err
}

// renameArchive puts what is below data below snapshot, and lists it as listScript does.
func renameArchive(w io.Writer, r io.Reader, list func(line string)) error {
	in, out := tar.NewReader(r), tar.NewWriter(w)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out.Close()
		}
		if err != nil {
			return err
		}
		rest := strings.TrimSuffix(strings.TrimPrefix(h.Name, "data"), "/")
		h.Name = "snapshot" + rest
		line := fmt.Sprintf(".%s f %o %d %d %d\n", rest, h.Mode&0o7777, h.Uid, h.Gid, h.Size)
		if h.Typeflag == tar.TypeDir {
			line = fmt.Sprintf(".%s d %o %d %d\n", rest, h.Mode&0o7777, h.Uid, h.Gid)
		}
		list(line)
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
}
