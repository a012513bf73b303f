// Package docker speaks to one Docker engine: images, containers, commands
// inside them, networks, volumes, snapshots, logs and exits. It knows nothing
// of stacks: whoever calls names the objects and labels them, and finds them
// again by label.
//
// Three rules hold everywhere. Removing what is not there is success. Errors
// name the operation and the object, and are classified with engine.ErrNotFound,
// ErrConflict and ErrSubnetTaken, never by their text. Every container is
// hardened: see ContainerSpec.
package docker
