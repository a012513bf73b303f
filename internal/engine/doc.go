// Package engine defines what the supervisor and the builder ask of a container engine,
// and how its objects are named. Drivers do it: package docker with a Docker engine, and
// package enginetest in memory, for tests. This package knows no particular engine and
// asks none, and no driver knows the database, a stack's status or a route.
package engine
