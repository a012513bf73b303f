package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Labels are the key and value pairs of an object of the engine. Where Labels
// select objects, all of them must match; an empty set selects everything.
type Labels = map[string]string

// The labels of Berth's objects in the engine.
const (
	labelInstance   = "berth.instance"
	labelStack      = "berth.stack"
	labelService    = "berth.service"
	labelGeneration = "berth.generation"
)

// shared is the installation that base images belong to, which no single one owns:
// an operator who prunes what lacks the label keeps them.
const shared = "shared"

// SharedLabels returns the labels of what all installations on an engine share.
func SharedLabels() Labels { return Key{}.Labels(shared) }

// Key says whose an object of the engine is.
type Key struct {
	Stack      string // id of the stack; "" for the whole installation
	Service    string // "" for what the stack's services share
	Generation int    // 0 for what outlives its generation
}

// Labels returns the labels of the key's objects, which also select them, in the
// installation with the id instance.
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

// KeyOf returns the key of an object with these labels. What a build or a restore
// left has no generation, and neither has data.
func KeyOf(labels Labels) Key {
	number, _ := strconv.Atoi(labels[labelGeneration])
	return Key{Stack: labels[labelStack], Service: labels[labelService], Generation: number}
}

// WithoutGeneration returns the key of what outlives the generation.
func (k Key) WithoutGeneration() Key { return Key{Stack: k.Stack, Service: k.Service} }

// Process is the name of the container of a service's process. The one that
// replaces it for the n-th time gets a name of its own, so that none is ever
// renamed: an engine that renames a container while another one of its network comes
// or goes may lose count of them, and never removes that network again.
func (k Key) Process(replaced int) string {
	name := k.container() + k.suffix("-g")
	if replaced > 0 {
		name += "-r" + strconv.Itoa(replaced)
	}
	return name
}

// Release is the name of the container of a service's release command.
func (k Key) Release() string { return k.Process(0) + "-release" }

// Build is the name of the container in which a service is built.
func (k Key) Build() string { return "berth-build-" + k.hex() + "-" + k.Service }

// SnapshotCopy is the name of the container that copies a service's data into its
// snapshot.
func (k Key) SnapshotCopy() string { return k.container() + "-snapshot" }

// RestoreCopy is the name of the container through which a service's data comes back
// from its snapshot.
func (k Key) RestoreCopy() string { return k.container() + "-restore" }

// Probe is the name of the container that shows that the engine runs any.
func (k Key) Probe() string { return "berth-" + k.hex() + "-try" }

// Hostname is what a service's process calls its machine. The engine resolves it
// too, so it is not the service's name.
func (k Key) Hostname() string { return k.Service + k.suffix("-g") }

// Image is the reference of the image of a service's generation.
func (k Key) Image() string { return k.repository() + k.suffix(generationTag) }

// Snapshot is the reference of the image that keeps a service's data while its stack
// is expired.
func (k Key) Snapshot() string { return k.repository() + ":data" }

// Restored is what a snapshot is called once its data is back in a volume.
func (k Key) Restored() string { return k.repository() + restoredTag }

const (
	generationTag = ":g"
	restoredTag   = ":restored"
)

// IsRestored reports whether a reference is that of a snapshot whose data is back.
func IsRestored(ref string) bool { return strings.HasSuffix(ref, restoredTag) }

// GenerationOf returns the generation whose image a reference names; false for the
// reference of anything else.
func GenerationOf(ref string) (int, bool) {
	_, text, _ := strings.Cut(ref, generationTag)
	number, err := strconv.Atoi(text)
	return number, err == nil
}

// Data is the name of the volume behind a service's $DATA_DIR.
func (k Key) Data() string { return k.container() + "-data" }

// Cache is the name of the volume with a service's package caches.
func (k Key) Cache() string { return k.container() + "-cache" }

// Network is the name of the network of a generation.
func (k Key) Network() string { return k.FormerNetwork() + k.suffix("-g") }

// FormerNetwork is the name of the network that all generations of a stack shared
// before each had one of its own. What runs on it stays there until the next
// redeploy.
func (k Key) FormerNetwork() string { return "berth-" + k.hex() }

// BridgePrefix begins the name of every interface of a stack's on the host. Linux
// allows 15 characters in all.
const BridgePrefix = "bth"

// bridgeChars is how much of an interface's name is left beside BridgePrefix.
const bridgeChars = 12

// Bridge is the name of a generation's interface on the host: the stack's number and
// the generation's, both to base 36. Another installation on the machine has the same
// numbers, and so has an earlier database of this one, whose networks may still be
// there. So a digest of the installation's id and the stack's fills the name.
func (k Key) Bridge(instance string, stackNumber int64) string {
	digest := sha256.Sum256([]byte(instance + k.Stack))
	name := strconv.FormatInt(stackNumber, 36) + "-" + strconv.FormatInt(int64(k.Generation), 36) + "-" + hex.EncodeToString(digest[:])
	return BridgePrefix + name[:bridgeChars]
}

// FormerBridge is the name of the interface of FormerNetwork.
func (k Key) FormerBridge() string { return BridgePrefix + k.hex() }

func (k Key) hex() string                 { return strings.TrimPrefix(k.Stack, "stk_") }
func (k Key) container() string           { return "berth-" + k.hex() + "-" + k.Service }
func (k Key) repository() string          { return "berth/" + k.hex() + "-" + k.Service }
func (k Key) suffix(before string) string { return before + strconv.Itoa(k.Generation) }
