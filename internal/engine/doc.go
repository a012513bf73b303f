// Package engine says what the supervisor and the builder ask of a container engine,
// and how its objects are called. A driver does it: package docker for one Docker
// engine, package enginetest in memory for tests. Nothing in here knows a particular
// engine or asks one, and no driver knows the database, a stack's status or a route.
package engine
