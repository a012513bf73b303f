// Package docker is the engine.Driver of one Docker engine. An Engine is the connection, a
// Driver what package engine asks for. It knows the names and labels of stacks' objects,
// but no stack's status, no row and no route.
//
// Three rules hold everywhere. Removing what is not there succeeds. Errors name the
// operation and the object, and have a class, which callers test with errors.Is: one of
// package engine, errConflict or errSubnetTaken. Every container is hardened: see unit.
package docker
