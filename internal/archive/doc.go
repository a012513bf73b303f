// Package archive unpacks the archives that strangers upload, and packs what it
// unpacked for a build.
//
// Every name, size and link in an archive is only a claim. Unpack writes through an
// os.Root, counts what a header announces before it reads what follows, keeps its own
// copy of the tree in memory so that it never writes through a link, and leaves an
// empty folder if it refuses the archive. Root finds the project in the unpacked tree;
// WriteTar sends the tree to a build.
//
// UnpackListed and UnpackChanges also return what they made, for package source.
//
// Code in this package touches one folder on disk and the archive's bytes. It does not
// interpret the files; package manifest does.
//
// A refusal is a *stack.Error that names the entry and says what would be right. Any
// other error is a fault of the server.
package archive
