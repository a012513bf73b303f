// Package engine defines what the supervisor and the builder ask of a container engine,
// and how its objects are named. Two drivers implement it: package docker with a Docker
// engine, and package enginetest in memory, for tests. This package knows no particular
// engine, and only Answer asks one, through a driver. Drivers do not know the database, a
// stack's status or a route.
package engine
