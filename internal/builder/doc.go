// Package builder turns one service of an unpacked source tree into what can be
// served: an image of its generation, or the folder of a static site.
//
// A build is one container of the runtime's base image. The source is copied
// in before anything of the tenant's has run, each command is an exec with its
// own limit, and one commit makes the image. A service without commands never
// starts a container, a static one without commands never meets the engine, and
// one in which nothing changed since the served generation is not built again.
package builder
