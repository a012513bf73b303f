// Package manifest turns a project into a complete stack.Manifest: Resolve reads the
// manifest from the request or the project, checks every field, and detects what it
// leaves open. Check does the same without a deploy, and Plan is its answer.
//
// Code in this package reads the project through an fs.FS and does not write to disk.
// It starts nothing and does not use the database.
//
// A refusal is a *stack.Error that names each wrong field and says what would be right.
// Any other error is a fault of the server.
package manifest
