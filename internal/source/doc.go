// Package source turns an upload into something that can be built: an unpacked
// tree on disk and a complete stack.Manifest.
//
// An archive is a stranger's: every name, size and link in it is a claim.
// Unpack writes through an os.Root, charges what a header announces before it
// reads what follows, keeps its own picture of the tree so that nothing is ever
// written through a link, and leaves an empty folder behind when it refuses.
// Root finds the project in what was unpacked; Resolve reads its manifest and
// detects what the manifest leaves open; WriteTar sends the tree on to a build.
//
// A refusal is a *stack.Error that names the entry or the field, and says what
// would be right. Any other error is the server's own trouble.
package source
