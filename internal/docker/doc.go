// Package docker is the engine.Driver of one Docker engine. An Engine is the connection; a
// Driver implements engine.Driver over it. It knows the names and labels of stacks'
// objects, but not a stack's status, a row or a route.
//
// Three rules hold everywhere. Removing what is not there succeeds. Errors name the
// operation and the object, and have a class, which callers test with errors.Is: one of
// package engine, errConflict or errSubnetTaken. Every container is hardened: see unit.
package docker
