package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/berth-host/berth/internal/stackid"
)

// Labels are the labels of an object of the engine: values by key. An object is selected
// by Labels if it has all of them; an empty set selects everything.
type Labels = map[string]string

// The labels of Berth's objects in the engine.
const (
	labelInstance   = "berth.instance"
	labelStack      = "berth.stack"
	labelService    = "berth.service"
	labelGeneration = "berth.generation"
)

// shared stands for an installation in the labels of base images, which all installations
// use. So an operator keeps them by pruning only what lacks the label.
const shared = "shared"

// SharedLabels returns the labels of objects that all installations on an engine share.
func SharedLabels() Labels { return Key{}.Labels(shared) }

// Key says to whom an object of the engine belongs.
type Key struct {
	Stack      string // id of the stack; "" for the whole installation
	Service    string // "" for what the stack's services share
	Generation int    // 0 for what outlives its generation

	// Volume is the number of the service's data volume, which counts how often its data was
	// replaced by a new volume. It is in no label: what an engine lists has 0.
	Volume int

	// Building reports whether a network is that of the generation's builds instead of its
	// services. It is in no label either.
	Building bool
}

// Labels returns the labels of the key's objects in the installation with the id instance.
// They also select these objects.
func (k Key) Labels(instance string) Labels {
	labels := Labels{labelInstance: instance}
	if k.Stack != "" {
		labels[labelStack] = k.Stack
	}
	if k.Service != "" {
		labels[labelService] = k.Service
	}
	if k.Generation != 0 {
		labels[labelGeneration] = strconv.Itoa(k.Generation)
	}
	return labels
}

// KeyOf returns the key of an object with these labels. Data has no generation, and neither
// has what a build or a restore left.
func KeyOf(labels Labels) Key {
	number, _ := strconv.Atoi(labels[labelGeneration])
	return Key{Stack: labels[labelStack], Service: labels[labelService], Generation: number}
}

// WithoutGeneration returns the key of objects that outlive the generation.
func (k Key) WithoutGeneration() Key {
	return Key{Stack: k.Stack, Service: k.Service, Volume: k.Volume}
}

// Shared returns the key of what the generations of a stack have in common: a network
// beside their own, without a way out, for the processes that outlive them.
func (k Key) Shared() Key { return Key{Stack: k.Stack} }

// Builds returns the key of the network that the builds of a generation have in common.
func (k Key) Builds() Key { return Key{Stack: k.Stack, Generation: k.Generation, Building: true} }

// Process returns the name of the container of a service's process after it was replaced
// so many times. Each replacement has a name of its own, so that no container is ever
// renamed: an engine that renames a container while another one joins or leaves its network
// may lose count of them, and then never removes that network.
func (k Key) Process(replaced int) string {
	name := k.container() + k.suffix("-g")
	if replaced > 0 {
		name += "-r" + strconv.Itoa(replaced)
	}
	return name
}

// Release returns the name of the container of a service's release command.
func (k Key) Release() string { return k.Process(0) + "-release" }

// Install returns the name of the container in which the dependencies of a service are
// installed.
func (k Key) Install() string { return "berth-install-" + k.hex() + "-" + k.Service }

// SourceCopy returns the name of the container that copies the source into its layer.
func (k Key) SourceCopy() string { return "berth-source-" + k.hex() + "-" + k.Service }

// Build returns the name of the container in which a service is built.
func (k Key) Build() string { return "berth-build-" + k.hex() + "-" + k.Service }

// SnapshotCopy returns the name of the container that copies a service's data into its
// snapshot.
func (k Key) SnapshotCopy() string { return k.container() + "-snapshot" }

// RestoreCopy returns the name of the container that brings a service's data back from its
// snapshot.
func (k Key) RestoreCopy() string { return k.container() + "-restore" }

// DataLook returns the name of the container that shows whether a service has data.
func (k Key) DataLook() string { return k.container() + "-look" }

// Probe returns the name of the container that shows whether the engine runs any.
func (k Key) Probe() string { return "berth-" + k.hex() + "-try" }

// Hostname returns the host name in a service's container. The engine resolves it too, so
// it is not the service's name.
func (k Key) Hostname() string { return k.Service + k.suffix("-g") }

// Image returns the reference of the image that an attempt to deploy built of a service.
func (k Key) Image(attempt int) string { return k.repository() + imageTag + strconv.Itoa(attempt) }

// Layer returns the reference of the image of what an attempt to deploy installed for a
// service.
func (k Key) Layer(attempt int) string { return k.repository() + layerTag + strconv.Itoa(attempt) }

// SourceLayer returns the reference of the image of a layer with the source of an attempt
// to deploy.
func (k Key) SourceLayer(attempt int) string {
	return k.repository() + sourceTag + strconv.Itoa(attempt)
}

// Snapshot returns the reference of the image that keeps a service's data while its stack
// is expired.
func (k Key) Snapshot() string { return k.repository() + ":data" }

// Restored returns the reference of a snapshot whose data is back in a volume.
func (k Key) Restored() string { return k.repository() + restoredTag }

const (
	imageTag    = ":g"
	layerTag    = ":i"
	sourceTag   = ":s"
	restoredTag = ":restored"
)

// IsRestored reports whether a reference is that of a snapshot whose data is back.
func IsRestored(ref string) bool { return strings.HasSuffix(ref, restoredTag) }

// IsRemote reports whether a reference is of a registry. An image of a stack has one only while
// it is pushed or fetched.
func IsRemote(ref string) bool {
	host, _, ok := strings.Cut(ref, "/")
	return ok && (strings.ContainsAny(host, ".:") || host == "localhost")
}

// AttemptOf returns the attempt that made the image or a layer with a reference, and
// false for any other reference.
func AttemptOf(ref string) (int, bool) {
	for _, tag := range []string{imageTag, layerTag, sourceTag} {
		_, text, _ := strings.Cut(ref, tag)
		if number, err := strconv.Atoi(text); err == nil {
			return number, true
		}
	}
	return 0, false
}

// BaseImage returns the reference of a runtime's base image, such as
// berth/base-node:22-0123456789ab. The digest, in hex, is of its definition.
func BaseImage(runtime, version, digest string) string {
	return "berth/base-" + runtime + ":" + version + "-" + digest[:12]
}

// Data returns the name of the volume behind a service's $DATA_DIR.
func (k Key) Data() string {
	name := k.container() + "-data"
	if k.Volume > 0 {
		name += "-" + strconv.Itoa(k.Volume)
	}
	return name
}

// DataNumber returns the number of a data volume by its name, and false for any other
// volume of the key's service.
func (k Key) DataNumber(name string) (int, bool) {
	k.Volume = 0
	if name == k.Data() {
		return 0, true
	}
	text, numbered := strings.CutPrefix(name, k.Data()+"-")
	number, err := strconv.Atoi(text)
	return number, numbered && err == nil
}

// Cache returns the name of the volume with a service's build caches after those of its
// stack were dropped so many times.
func (k Key) Cache(dropped int) string {
	name := k.container() + "-cache"
	if dropped > 0 {
		name += "-" + strconv.Itoa(dropped)
	}
	return name
}

// CacheTrim returns the name of the container that removes what is too much from a
// service's build caches.
func (k Key) CacheTrim() string { return k.container() + "-trim" }

// Network returns the name of the network of a generation, with a key of Builds of its
// builds, or with a key of Shared of all generations.
func (k Key) Network() string {
	name := k.FormerNetwork() + k.suffix("-g")
	if k.Building {
		name += "-build"
	}
	return name
}

// FormerNetwork returns the name of the network that all generations of a stack shared
// before each had one of its own. Containers on it stay there until the next redeploy.
func (k Key) FormerNetwork() string { return "berth-" + k.hex() }

// BridgePrefix begins the names of the interfaces of stacks on the host, and
// BuildBridgePrefix those of their builds alone.
const (
	BridgePrefix      = "bth"
	BuildBridgePrefix = BridgePrefix + "_"
)

// bridgeChars is the length of an interface's name, the longest that Linux allows.
const bridgeChars = 15

// Bridge returns the name of a network's interface on the host: the numbers of the stack
// and the generation, both to base 36, and as much as fits of a digest of the ids of the
// installation and the stack. The digest is there because another installation on the
// machine has the same numbers, and so does an earlier database of this one, whose networks
// may still exist.
func (k Key) Bridge(instance string, stackNumber int64) string {
	digest := sha256.Sum256([]byte(instance + k.Stack))
	name := strconv.FormatInt(stackNumber, 36) + "-" + strconv.FormatInt(int64(k.Generation), 36) + "-" + hex.EncodeToString(digest[:])
	prefix := BridgePrefix
	if k.Building {
		prefix = BuildBridgePrefix
	}
	return (prefix + name)[:bridgeChars]
}

// FormerBridge returns the name of the interface of FormerNetwork.
func (k Key) FormerBridge() string { return BridgePrefix + k.hex() }

func (k Key) hex() string                 { return stackid.Hex(k.Stack) }
func (k Key) container() string           { return "berth-" + k.hex() + "-" + k.Service }
func (k Key) repository() string          { return "berth/" + k.hex() + "-" + k.Service }
func (k Key) suffix(before string) string { return before + strconv.Itoa(k.Generation) }
