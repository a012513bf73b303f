// Package archive unpacks the archives that strangers upload, and packs what it
// unpacked for a build.
//
// Every name, size and link in an archive is a claim. Unpack writes through an
// os.Root, charges what a header announces before it reads what follows, keeps
// its own picture of the tree so that nothing is ever written through a link,
// and leaves an empty folder behind when it refuses. Root finds the project in
// what was unpacked; WriteTar sends the tree on to a build.
//
// Code in this package touches one folder on disk and the archive's bytes. It
// reads no content: what a file means is for package manifest.
//
// A refusal is a *stack.Error that names the entry and says what would be right.
// Any other error is the server's own trouble.
package archive
