// Package builder turns one service of an unpacked source tree into something that can
// be served: an image of its generation, or the folder of a static site.
//
// A build is one container of the runtime's base image. The source is copied in before
// any of the tenant's code runs, each command is an exec with its own time limit, and
// one commit creates the image. A service without commands does not start a container,
// a static one without commands does not use the engine, and a service that has not
// changed since the served generation is not built again.
//
// Code in this package touches the engine, through an engine.Driver, and the folders
// that a Job names. Where no registry answers, it also runs the script that makes the
// Debian image on this machine (base.go). It reads the stack's row without changing it,
// knows no route, and decides nothing about what is served.
package builder
