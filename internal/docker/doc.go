// Package docker is the engine.Driver of one Docker engine. An Engine makes its
// requests: images, containers, commands inside them, networks, volumes, logs and
// exits. The Driver makes of them what package engine asks for, and knows the names
// and labels of stacks' objects, but no stack's status, no row and no route.
//
// Three rules hold everywhere. Removing what is not there is success. Errors
// name the operation and the object, and are classified by the
// errors of package engine, ErrConflict and ErrSubnetTaken, never by their text. Every container is
// hardened: see ContainerSpec.
package docker
