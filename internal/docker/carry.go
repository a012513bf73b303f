package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"

	"github.com/berth-host/berth/internal/engine"
	"github.com/berth-host/berth/internal/lastlines"
)

// ReadData implements engine.Driver.
func (d *Driver) ReadData(ctx context.Context, key engine.Key, container, image string, w io.Writer) error {
	if container != "" {
		return d.writeFolder(ctx, container, dataDir, w)
	}
	return d.making.alone(ctx, key.Data(), func() error {
		helper := engine.Spec{
			Name: key.SnapshotCopy(), Key: key.WithoutGeneration(), Image: image, User: "0:0",
			Cmd: []string{"true"}, Volumes: map[string]string{dataDir: key.Data()},
		}
		folder := dataDir
		there, err := d.HasImage(ctx, key.Snapshot())
		if err != nil {
			return err
		}
		if there {
			helper.Image, helper.Volumes, folder = key.Snapshot(), nil, snapshotDir
		}
		id, err := d.replace(ctx, d.helper(&helper), d.stopAndRemove)
		if err != nil {
			return err
		}
		defer d.removeHelper(key, id)
		return d.writeFolder(ctx, id, folder, w)
	})
}

// writeFolder writes a folder of a container as ReadData does.
func (d *Driver) writeFolder(ctx context.Context, id, folder string, w io.Writer) error {
	return d.readFolder(ctx, id, folder, func(files io.Reader) error {
		return carryTar(w, files, folder[1:], engine.DataFolder, nil)
	})
}

// readFolder calls read with a tar of a folder of a container, in which names begin with the
// folder's own.
func (d *Driver) readFolder(ctx context.Context, id, folder string, read func(io.Reader) error) error {
	files, _, err := d.api.CopyFromContainer(ctx, id, folder)
	if err != nil {
		return wrap(err, "read %s of container %s", folder, id)
	}
	defer files.Close() // only read
	return wrap(read(files), "read %s of container %s", folder, id)
}

// FillData implements engine.Driver.
func (d *Driver) FillData(ctx context.Context, key engine.Key, image, process string, data io.Reader) error {
	return d.making.alone(ctx, key.Data(), func() error {
		if err := d.Remove(ctx, process); err != nil {
			return err
		}
		if err := d.removeData(ctx, key); err != nil {
			return err
		}
		id, err := d.create(ctx, d.helper(&engine.Spec{
			Name: key.RestoreCopy(), Key: key.WithoutGeneration(), Image: image, User: "0:0",
			Cmd: []string{"true"}, Volumes: map[string]string{dataDir: key.Data()},
		}), d.stopAndRemove)
		if err != nil {
			return err
		}
		err = engine.Stream(ctx, func(_ context.Context, w io.Writer) error {
			return carryTar(w, data, engine.DataFolder, dataDir[1:], nil)
		}, func(files io.Reader) error { return d.CopyIn(ctx, id, files) })
		longer := context.WithoutCancel(ctx)
		if err != nil {
			return errors.Join(err, d.removeData(longer, key))
		}
		return d.Remove(longer, id)
	})
}

// unpackData is a command that makes tar unpack its standard input, as it is, and then follows
// the symlinks that are there by then: one may lead out of the data only through others. It takes
// some thousands of links at a time, and gives up on them after 5 seconds of processor time or
// with 256 MiB of memory, since links through links can take any number of steps.
var unpackData = []string{"sh", "-c", `
tar -xpf - -C "$1" || exit
{ find "$1" -type l -print0 || kill $$; } | xargs -0r sh -c '
	data=$0
	where() { realpath -m --relative-base="$data" -- "$@"; } # relative paths are inside
	ulimit -t 5
	ulimit -v 262144
	all=$(where "$@") || { echo "its symlinks lead through too many others" >&3; exit 255; }
	case $all in
	/*|*"
"/*) ;;
	*) exit 0 ;;
	esac
	for link do
		case $(where "$link") in
		/*) echo "the entry ${link#"$data"/} is a symlink that leads out of the data; leave it out, or put a copy in its place" >&3; exit 255 ;;
		esac
	done' "$1" 3>&2 2>/dev/null`, "sh", dataDir}

// UnpackData implements engine.Driver.
func (d *Driver) UnpackData(ctx context.Context, key engine.Key, u engine.Unpacking, data func(context.Context, io.Writer) error) error {
	return d.making.alone(ctx, key.Data(), func() error {
		if err := d.removeData(ctx, key); err != nil {
			return err
		}
		err := d.unpackNew(ctx, key, u, data)
		longer := context.WithoutCancel(ctx)
		if err != nil {
			return errors.Join(err, d.removeData(longer, key))
		}
		return d.Remove(longer, key.RestoreCopy())
	})
}

// unpackNew makes the volume, which is the user's, and unpacks into it. The container
// stays.
func (d *Driver) unpackNew(ctx context.Context, key engine.Key, u engine.Unpacking, data func(context.Context, io.Writer) error) error {
	made := d.unit(&engine.Spec{
		Name: key.RestoreCopy(), Key: key.WithoutGeneration(), Image: u.Image, User: fmt.Sprintf("%d:%d", u.User, u.User),
		Cmd: []string{"sleep", "infinity"}, Volumes: map[string]string{dataDir: key.Data()}, Pids: unpackPids, Memory: u.Memory,
	})
	if u.Cmd == nil { // otherwise it runs what a tenant has written
		made.host.Runtime = ""
	}
	id, err := d.create(ctx, made, d.stopAndRemove)
	if err != nil {
		return err
	}
	err = engine.Stream(ctx, func(_ context.Context, w io.Writer) error { return ownFolder(w, u.User) },
		func(folder io.Reader) error { return d.CopyIn(ctx, id, folder) })
	if err == nil {
		err = d.Start(ctx, id)
	}
	if err != nil {
		return err
	}
	cmd := engine.Cmd{Args: u.Cmd, Env: u.Env, Files: data, Whole: true}
	if u.Cmd == nil {
		cmd.Args = unpackData
	}
	last := lastlines.OfOutput(failureTail)
	code, err := d.run(ctx, id, cmd, io.Discard, last)
	switch {
	case err != nil:
		return wrap(err, "unpack data in container %s", id)
	case strings.Contains(strings.ToLower(last.String()), syscall.ENOSPC.Error()):
		return fmt.Errorf("unpack data in container %s: %w", id, engine.ErrNoSpace)
	case code != 0:
		return fmt.Errorf("%w%s", engine.ErrData, last.Phrase())
	}
	return nil
}

// unpackPids is how many processes a container that unpacks may have.
const unpackPids = 64

// ownFolder writes a tar that gives the data folder to a user.
func ownFolder(w io.Writer, uid int) error {
	out := tar.NewWriter(w)
	if err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dataDir[1:] + "/", Mode: 0o755, Uid: uid, Gid: uid}); err != nil {
		return err
	}
	return out.Close()
}

// errCut means that a tar ends before its end.
var errCut = errors.New("the files end too early")

// carryTar copies a tar, in which all names begin with one folder, and puts another in its
// place. It calls note, unless that is nil, with the header of each entry, and with nil
// before it writes the end.
func carryTar(w io.Writer, r io.Reader, from, to string, note func(*tar.Header) error) error {
	end := &tarEnd{from: r}
	in, out := tar.NewReader(end), tar.NewWriter(w)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := rename(header, from, to); err != nil {
			return err
		}
		if note != nil {
			if err := note(header); err != nil {
				return err
			}
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(out, in); err != nil {
			return err
		}
	}
	if !end.seen() {
		return errCut
	}
	if note != nil {
		if err := note(nil); err != nil {
			return err
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, r) // whoever writes it ends well
	return err
}

// rename puts the folder to in place of from in the names of an entry.
func rename(header *tar.Header, from, to string) error {
	names := []*string{&header.Name}
	if header.Typeflag == tar.TypeLink {
		names = append(names, &header.Linkname)
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(*name, from)
		if !ok || rest != "" && rest[0] != '/' {
			return fmt.Errorf("%q is not in %s", *name, from)
		}
		*name = to + rest
	}
	return nil
}

// tarEnd knows whether a tar that was read had an end: two blocks of zeros. Without it, a tar
// may have been cut between two files.
type tarEnd struct {
	from io.Reader
	last []byte // that was read, at most two blocks
}

const tarBlock = 512

func (t *tarEnd) Read(p []byte) (int, error) {
	n, err := t.from.Read(p)
	t.last = append(t.last, p[max(0, n-2*tarBlock):n]...)
	t.last = t.last[max(0, len(t.last)-2*tarBlock):]
	return n, err
}

func (t *tarEnd) seen() bool {
	return len(t.last) == 2*tarBlock && bytes.Count(t.last, []byte{0}) == 2*tarBlock
}

// Push implements engine.Driver. The image has the other reference meanwhile.
func (d *Driver) Push(ctx context.Context, ref, remote string, login engine.Login) error {
	auth, err := encoded(login)
	if err != nil {
		return err
	}
	return d.making.alone(ctx, remote, func() error {
		if err := d.Tag(ctx, ref, remote); err != nil {
			return err
		}
		body, err := d.api.ImagePush(ctx, remote, image.PushOptions{RegistryAuth: auth})
		err = wrap(relay(io.Discard, body, err), "push image %s as %s", ref, remote)
		return errors.Join(err, d.removeImage(context.WithoutCancel(ctx), remote))
	})
}

// Fetch implements engine.Driver.
func (d *Driver) Fetch(ctx context.Context, remote, ref string, login engine.Login) error {
	auth, err := encoded(login)
	if err != nil {
		return err
	}
	return d.making.alone(ctx, remote, func() error {
		body, err := d.api.ImagePull(ctx, remote, image.PullOptions{RegistryAuth: auth})
		if err := wrap(relay(io.Discard, body, err), "pull image %s", remote); err != nil {
			return err
		}
		longer := context.WithoutCancel(ctx)
		return errors.Join(d.Tag(longer, remote, ref), d.removeImage(longer, remote))
	})
}

// encoded returns a login as the engine takes it.
func encoded(login engine.Login) (string, error) {
	text, err := json.Marshal(registry.AuthConfig{Username: login.User, Password: login.Password, IdentityToken: login.Token})
	return base64.URLEncoding.EncodeToString(text), err
}
