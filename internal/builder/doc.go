// Package builder turns one service of an unpacked source tree into something that can
// be served: an image of its generation, or the folder of a static site.
//
// A build is a container of the runtime's base image. The source is copied in before any
// of the tenant's code runs, each command is an exec with its own time limit, and one
// commit creates the image. What the install command leaves is a separate image, a
// layer (layer.go): it is made in a container that has only what that command reads, and
// later builds begin with it. A service without a build command needs no other image: its
// source is copied into each container (CopySource). A static service without commands
// does not use the engine: its site is a link into the source, which is served itself. Any
// other service that has not changed since the served generation is not built again.
//
// Code in this package touches the engine, through an engine.Driver, and the folders
// that a Job names. Where no registry answers, it also runs the script that makes the
// Debian image on this machine (base.go). It reads the stack's row without changing it,
// knows no route, and decides nothing about what is served.
package builder
