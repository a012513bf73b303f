// Package source keeps the trees of files that generations are built from, and lays
// uploads of what changed over them.
//
// A source is a folder with two things in it: tree, the project's files, and listing,
// which names each of them with its mode, size and hash, and contains the manifest as
// the request gave it. The digest of a source is the hash of its listing's entries: two
// trees with the same digest have the same names, kinds, modes, links and contents.
//
// A source is never written again once it is saved. Overlay makes a new one, in which
// files that did not change are hard links to those of the base, so that they are
// neither written nor hashed again. Before a file is linked its kind, mode, size and
// time are compared with the listing. A difference is an error of kind Conflict, whose
// text asks for the whole source: no tree is ever mixed from what is not certain.
//
// Code in this package touches folders on disk and the archive's bytes. It knows
// neither which stack a source belongs to nor which generation.
package source
