package engine

import (
	"context"
	"io"
	"time"

	"github.com/berth-host/berth/internal/disk"
)

// Driver does in an engine what the supervisor and the builder decide. It has the objects
// of one installation, and no others.
//
// This is the contract. Package enginetest tests it on every driver:
//
//   - All methods may be called at the same time, by many goroutines, also for the same
//     object. A call that finds another one at work waits for it, or does the rest of it.
//   - Every call may be repeated. A call that makes something finds what an earlier call
//     made, or puts a new one in its place; a call that removes or stops something
//     succeeds when it is already gone. So a caller who does not know whether the engine
//     did what it was asked, because an answer was lost or the server died, asks again.
//   - A driver itself asks again where that is safe when an answer was lost: for a moment,
//     or for half a minute where something is removed, stopped or unpaused.
//   - ErrNotFound means that the engine answered and has no such object. A call that stops
//     or removes something never returns it.
//   - ErrUnreachable means that nobody answered: the engine may or may not have done what
//     it was asked. ErrNoSpace and ErrHost are faults of its machine.
//   - When ctx ends, a call returns soon with an error. What the engine has begun may go
//     on. But a call finishes a step that must not be left half done, and may then succeed:
//     making a network, a volume, a container or its image, giving a container other names
//     (Promote, Restart), renaming a snapshot whose data is back (Restore), and removing a
//     container that was in the way or has done its work, or a volume whose container
//     could not be made. So no call leaves an object that a later Inventory could miss.
//     Only if the engine hangs does a call give up such a step: with an error, five
//     minutes after ctx ended.
type Driver interface {
	// Place makes the network of a generation if there is none, on a free subnet of the
	// installation's pool: the first one counted from a place that follows from the number
	// of the stack. With a key of Builds it makes that of the generation's builds. That of a
	// key of Shared leads to nothing outside. ErrNoNetwork means that no subnet is free.
	Place(ctx context.Context, key Key, stackNumber int64) error

	// Run makes a container with its volumes, copies spec.Files in, waits for spec.Await and
	// starts it, in place of one of the same name, which it stops as Stop does. An id that
	// comes with an error is that of a container that may not have started. A missing image
	// or network is ErrNotFound. An error of spec.Files or spec.Await is returned as it is,
	// and leaves no container.
	Run(ctx context.Context, spec Spec) (id string, err error)

	// Restart starts a container that has ended and leaves one that runs as it is. It does
	// not run a command a second time because an answer was lost. Afterwards the container
	// is on its network, even if a Promote that failed had left it off. The other
	// containers there find it as before, or under the aliases if it had to be put back on
	// the network.
	Restart(ctx context.Context, id string, aliases ...string) error

	// Promote gives a container other names on its network, in place of the names it has;
	// without names, the others cannot find it. For a moment nothing reaches it, but it
	// keeps its address and its connections, even if an answer is lost meanwhile.
	// ErrAddressTaken means that another container got the address within that moment:
	// this one has another address and the new names, and its connections are cut. The
	// names of a container that is not started take effect when it starts.
	Promote(ctx context.Context, id string, aliases ...string) error

	// Promotes reports whether Promote works on a container that runs.
	Promotes() bool

	// Look returns what the engine knows of a container, by id or name.
	Look(ctx context.Context, id string) (Container, error)

	// Stop sends its StopSignal to the process of a container, kills it once the container's
	// StopTimeout is over, and returns when it has ended. When ctx ends before that, the
	// process may still run.
	Stop(ctx context.Context, id string) error

	// Pause keeps everything in a container from running until Unpause. Nothing of it ends:
	// files, memory and connections stay, and whoever connects waits. Pause succeeds if the
	// container is paused already, and returns ErrNotRunning if it does not run, and
	// ErrNotFrozen if the kernel does not stop it in time. After any other error it may be
	// paused.
	Pause(ctx context.Context, id string) error

	// Unpause lets a container run that Pause has stopped. It succeeds if the container is
	// not paused or is gone. A Stop or a Remove that comes first does the same.
	Unpause(ctx context.Context, id string) error

	// Remove kills the process of a container and removes the container.
	Remove(ctx context.Context, id string) error

	// Follow calls line for each line that the process of a container writes after a
	// time, without its newline and valid only during the call. It returns once the
	// process has ended and line has got everything that it wrote. The error is
	// ErrNotFound when the container is gone.
	Follow(ctx context.Context, id string, after time.Time, line func(at time.Time, line []byte)) error

	// Sockets returns the addresses, as host:port, on which something in a container
	// accepts connections, in the order of their ports.
	Sockets(ctx context.Context, id string) ([]string, error)

	// Ended sends the ends of containers, from this call on. When the stream breaks or ctx
	// ends, the second channel gets one error and nothing more arrives. Ends after that are
	// not repeated: call Ended again, and then look at the containers.
	Ended(ctx context.Context) (<-chan End, <-chan error)

	// Accepts returns an error unless the engine takes a new connection and answers on it
	// before ctx ends. An engine that shuts down takes none while it ends the containers,
	// so Accepts shows whether the end of a container was the engine's doing.
	Accepts(ctx context.Context) error

	// Containers, Volumes and Networks return the objects of a key, or of the whole
	// installation for the zero Key.
	Containers(ctx context.Context, key Key) ([]Container, error)
	Volumes(ctx context.Context, key Key) ([]Volume, error)
	Networks(ctx context.Context, key Key) ([]Network, error)

	// Inventory returns all objects by the id of the stack: those of one stack, or of the
	// whole installation for stack "". It also returns what it found with an error.
	Inventory(ctx context.Context, stack string) (map[string]Objects, error)

	// Discard removes objects, containers first as they hold the rest. A volume that
	// another container has stays, which is an error; an image that another container was
	// made from stays until it is discarded again. Discard goes on after an error, to
	// leave as little as possible.
	Discard(ctx context.Context, objects Objects) error

	// Snapshot makes the snapshot image of a service from its data volume and removes the
	// volume, which stays when there is an error. It keeps a snapshot that exists as it
	// is. When there is neither a volume nor a snapshot, it makes none, as that would hide
	// that the data is gone: ErrNotFound. ErrNoRoom means that the snapshot would leave
	// less than the floor, with the other snapshots and images that are being made.
	Snapshot(ctx context.Context, key Key, spec SnapshotSpec) error

	// Restore fills a new data volume from a service's snapshot, if there is one, and
	// calls the snapshot restored, which makes it a leftover. It removes a container of
	// the name process, which may have the volume, and a volume that is there beside a
	// snapshot, as it may have a part of the data only. ErrHost means that another
	// container has that volume, perhaps one that the engine is still making for an
	// earlier call.
	Restore(ctx context.Context, key Key, process string) error

	// HasData reports whether there is anything in a service's data volume, through a
	// container that has it, by id. If that is "", HasData makes one from the image, of which
	// no program runs. A missing volume has nothing.
	HasData(ctx context.Context, key Key, container, image string) (bool, error)

	// Probe runs a container to its end. The error is ErrExit if it ran and exited with
	// another code than 0.
	Probe(ctx context.Context, spec Spec) error

	// HasImage reports whether the engine has an image, by reference. One without files, of
	// which nothing can be run or built, counts as missing.
	HasImage(ctx context.Context, ref string) (bool, error)

	// ImageUser returns the uid that containers of an image run as; 0 for root.
	ImageUser(ctx context.Context, id string) (int, error)

	// Room returns what is free where the engine keeps what it stores.
	Room() (disk.Space, error)

	Builds
	Carrier
	Measures
}

// Carrier is the part of a Driver that carries what a stack has between engines, by itself
// or by way of a registry. What streams is never asked again when an answer is lost: the
// caller begins again.
type Carrier interface {
	// ReadData writes a service's data to w, as a tar in which all names begin with
	// DataFolder: through a container that has the data volume, by id. If that is "",
	// ReadData makes one from the image, of which no program runs, for the data volume or
	// for the snapshot if there is one; ErrNotFound means that there is neither. The tar is
	// as the data was, unless something writes to the volume meanwhile. Files have their
	// owners, modes, links and times in seconds; sockets are left out.
	ReadData(ctx context.Context, key Key, container, image string, w io.Writer) error

	// DataState returns what a service's data volume is like, by a walk over its files in a
	// container that it makes from the image, which has sh and find.
	DataState(ctx context.Context, key Key, image string) (DataState, error)

	// FillData makes a service's data volume from what ReadData wrote, in place of the one
	// that is there. It removes a container of the name process, which may have that. No
	// program of the image runs. When there is an error, no volume is left; ErrHost means
	// that another container has the volume that is there. When a server dies meanwhile, a
	// part of the data is left.
	FillData(ctx context.Context, key Key, image, process string, data io.Reader) error

	// UnpackData makes a service's data volume from data that anybody may have made, in
	// place of the one that is there. A container without a network and without
	// capabilities unpacks it, as u says; a command runs under the runtime of processes. An
	// error of data is returned as it is, ErrData means that it cannot be unpacked or that a
	// symlink in it leads out of the volume, and ErrHost that another container has the volume
	// that is there. When there is an error, no volume is left. When a server dies meanwhile, a
	// part of the data is.
	UnpackData(ctx context.Context, key Key, u Unpacking, data func(context.Context, io.Writer) error) error

	// Push puts an image into a registry under the reference remote. Layers that are there
	// are not sent.
	Push(ctx context.Context, ref, remote string, login Login) error

	// Fetch pulls the image with the reference remote from a registry and gives it the
	// reference ref here. ErrNotFound means that the registry does not have it.
	Fetch(ctx context.Context, remote, ref string, login Login) error
}

// DataState says what data is like, without reading it.
type DataState struct {
	// Digest is another one once a file has been written, made, removed, renamed or given
	// other metadata. It is of the names, sizes and inode numbers of all files and of the
	// times of their last changes, which the kernel keeps and no program can set.
	Digest string

	// Quiet means that nothing had changed for DataQuiet. Otherwise the next change may not
	// show in the Digest: it may be within the same tick of the clock, or in memory that is
	// mapped from a file, whose times the kernel sets when it writes that to the disk.
	Quiet bool
}

// DataQuiet is longer than Linux keeps what was written to mapped memory from the disk.
const DataQuiet = time.Minute

// Measures is the part of a Driver that says what programs use. It asks little or nothing of
// the engine, since it is called often.
type Measures interface {
	// Measure returns a function that reads what a container's processes use. When they have
	// ended, it fails; after a Restart it may go on, and CPU begins anew. ErrNotRunning means
	// that the container does not run, and ErrHidden that the machine does not show it.
	Measure(ctx context.Context, id string) (read func() (Usage, error), err error)

	// VolumeSize returns how many bytes the files of a volume, by name, take on the disk. Those
	// that change meanwhile may or may not count. It calls step for each file, and ends with its
	// error. ErrNotFound means that there is no volume, or that the machine does not show it.
	VolumeSize(volume string, step func() error) (bytes int64, err error)

	// LayerSize returns a function that adds up, as VolumeSize does, what the files take that a
	// container has written beside its volumes. It goes on after a Restart. ErrHidden means that
	// the machine does not show it.
	LayerSize(ctx context.Context, id string) (size func(step func() error) (bytes int64, err error), err error)

	// ImagesSize returns how many bytes images, by reference, take beside those that belong to
	// no stack. What several have in common counts once, and one that is missing takes nothing.
	ImagesSize(ctx context.Context, refs []string) (bytes int64, err error)
}

// Usage is what the processes of a container use.
type Usage struct {
	CPU    time.Duration // of processors, since the container started
	Memory int64         // bytes, without what the kernel gives back when it is needed
}

// DataFolder is the folder of a tar that has a service's data.
const DataFolder = "data"

// Login is what a registry knows the engine by; the zero Login is for one that asks nobody.
type Login struct {
	User, Password string
	Token          string // in place of both
}

// Builds is the part of a Driver that the builder needs.
type Builds interface {
	// MakeImage builds an image that all installations share, and writes the log to out
	// as plain text. The error of a step that fails ends with the last lines of the log.
	MakeImage(ctx context.Context, spec ImageSpec, out io.Writer) error

	// Pull fetches an image from its registry and writes the steps to out.
	Pull(ctx context.Context, ref string, out io.Writer) error

	// Import makes an image of one layer from a tar of a file system. Changes are
	// Dockerfile instructions for its configuration, as in `WORKDIR /app`.
	Import(ctx context.Context, ref string, tar io.Reader, changes []string) error

	// Prepare makes a container with its volumes, without starting it, in place of one of
	// the same name, which it kills.
	Prepare(ctx context.Context, spec Spec) (id string, err error)

	// CopyIn unpacks a tar into the root of a container that was never started, or runs if
	// TakesFiles. Files and directories get the owner and mode of the tar's headers,
	// directories that exist already too. Files below a volume's path go to the volume. Never
	// use it on a container in which a tenant's code ran.
	CopyIn(ctx context.Context, id string, tar io.Reader) error

	// TakesFiles reports whether a container that runs sees what CopyIn puts there.
	TakesFiles() bool

	// Start starts a container that Prepare made. A missing network is ErrNotFound.
	Start(ctx context.Context, id string) error

	// Commit makes an image of a service, with a reference, from a container's file
	// system, without its volumes. A container that runs is paused or killed first and stays so, even
	// after an error, for the caller to remove. A *NoRoomError means that the image would
	// leave less than the floor, with the snapshots and other images that are being made:
	// the holes of files count, since it has them in full.
	Commit(ctx context.Context, id, ref string, key Key, config ImageConfig) error

	// Tag gives an image one more reference.
	Tag(ctx context.Context, ref, another string) error

	Commands
}

// Commands is the part of a Driver that runs commands in running containers.
type Commands interface {
	// Exec runs a command, writes its output to stdout and stderr, and returns its exit
	// code: 126 or 127 when there is no such command. It writes nothing after it has
	// returned. When ctx ends, the command goes on until the container is removed.
	Exec(ctx context.Context, id string, cmd Cmd, stdout, stderr io.Writer) (code int, err error)

	// Command runs a command in a process group of its own, in a container whose image has
	// sh and sleep. It writes what the command prints to out, in the order in which it was
	// printed to standard output and error, and returns the exit code as Exec does. When
	// ctx ends, so does the group: by SIGTERM, and by SIGKILL for what is left of it five
	// seconds later. The error is ctx's then, and ErrNotEnded too if something in the
	// container keeps the group from being ended. Command returns within CommandEnd of the
	// end of ctx, and writes nothing after that. A process that leaves the group, or that
	// the command leaves running, goes on until the container ends.
	//
	// ErrNotRunning means that the container does not run, ErrNotBegun that the engine could
	// not start the command in it, as where no process is free, and ErrEnded that the container
	// ended before the command did. ErrLost means that the command began and its end is not known.
	Command(ctx context.Context, id string, cmd Cmd, out io.Writer) (code int, err error)
}

// CommandEnd is how long Command may take to end a command's process group.
const CommandEnd = 20 * time.Second

// Spec describes a container. Whatever it says, the container has no capabilities and
// cannot gain privileges, runs under a filter of system calls, publishes no ports, and
// is never restarted by the engine.
type Spec struct {
	Name     string
	Key      Key
	Image    string
	User     string   // uid:gid
	Dir      string   // working directory; "" is the image's
	Hostname string   // "" lets the engine choose
	Cmd      []string // in place of the image's entrypoint and command
	Env      []string // KEY=value

	Network string   // "" means none at all
	Aliases []string // names on Network
	// Shared reports whether Run puts the container on the network of Key.Shared as well,
	// without a name there, before it starts.
	Shared bool

	// Volumes has the names of volumes by their paths in the container. A volume that is
	// missing is made, and removed again if the container cannot be made. The engine fills
	// an empty one with what the image has at that path, including the directory's owner
	// and mode.
	Volumes map[string]string

	Memory    int64 // bytes; 0 means no limit
	FileMax   int64 // bytes of one file, with its holes; 0 means no limit
	NanoCPUs  int64 // billionths of a CPU; 0 means no limit
	CPUShares int64 // weight against other containers; 0 is the engine's default, 1024
	Pids      int64 // processes and threads; 0 means no limit

	// Files writes a tar that Run copies into the container before it starts, as CopyIn
	// does; nil for none. It is called again if the answer to a request was lost.
	Files func(context.Context, io.Writer) error

	// Await returns once what the container needs to start is there, such as its network;
	// nil if all of it is.
	Await func(context.Context) error

	LogMax      int64         // bytes of log that the engine keeps; 0 is 10 MB
	StopSignal  string        // that Stop sends first; "" is SIGTERM
	StopTimeout time.Duration // between StopSignal and SIGKILL, rounded up to seconds; 0 is the engine's, 10 s
}

// SnapshotSpec says how to make a snapshot.
type SnapshotSpec struct {
	Image string // with sh and the usual programs, which no tenant could change
	Floor int64  // bytes that stay free
	Pids  int64  // processes and threads; 0 means no limit
}

// ImageSpec describes an image that all installations on an engine share.
type ImageSpec struct {
	Context io.Reader // tar with a Dockerfile in its root
	Ref     string
	Args    map[string]string
}

// ImageConfig says how to make an image of a container, and overrides the configuration
// that it has from there.
type ImageConfig struct {
	User string
	Dir  string
	Env  []string // KEY=value, on top of the container's

	Floor int64 // bytes that stay free
}

// Unpacking says how data becomes that of a new volume.
type Unpacking struct {
	Image string
	User  int // to whom everything then belongs
	// Cmd reads the data from its standard input, with Env in its environment; nil unpacks a
	// tar with names relative to the volume.
	Cmd    []string
	Env    []string
	Memory int64 // bytes that Cmd may use; 0 means no limit
}

// Cmd is a command in a running container.
type Cmd struct {
	Args []string
	Env  []string // KEY=value, on top of the container's
	User string   // "" is the container's
	Dir  string   // "" is the container's

	// Whole waits until the output has ended, however slowly it is read. Otherwise Exec
	// returns when the command has ended, even if its children keep the output open.
	Whole bool

	// Files writes a tar that Exec unpacks into the root of the container before the
	// command runs; nil for none. The image must have sh. As far as they can be, they are
	// written by the command's user, in less time than CopyIn takes. They may be long in
	// coming: the command waits for them until the context that Files is given ends.
	Files func(context.Context, io.Writer) error
}

// Container is what the engine knows of a container. Containers and Inventory do not set
// ExitCode, OOMKilled and Error.
type Container struct {
	ID      string
	Name    string
	Key     Key
	Image   string // as it was named when the container was made, or the id if that name is another's now
	Running bool   // also while it is paused
	Paused  bool   // not set by Look

	IP        string // on its network; "" while it does not run
	ExitCode  int
	OOMKilled bool
	Error     string // why the last start failed
}

// Image is an image of an inventory.
type Image struct {
	ID   string
	Key  Key
	Tags []string // references; empty for an image that lost its name
}

// Volume is a volume of an inventory.
type Volume struct {
	Name string
	Key  Key
}

// Network is a network of an inventory.
type Network struct {
	Name string
	Key  Key
}

// Objects are the engine's objects of one stack.
type Objects struct {
	Containers []Container
	Images     []Image
	Volumes    []Volume
	Networks   []Network
}

// End says that the process of a container may have ended; Look shows whether it has.
type End struct {
	ID  string // of the container
	Key Key
}
