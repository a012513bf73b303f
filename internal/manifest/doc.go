// Package manifest turns a project into a complete stack.Manifest: Resolve reads
// the manifest that the request or the project brings, checks every field, and
// detects what it leaves open; Check does the same for somebody who only asks,
// and Plan is the answer.
//
// Code in this package reads the project through an fs.FS, and writes to no disk.
// It starts nothing and knows no row of the database.
//
// A refusal is a *stack.Error that names each field that is wrong and says what
// would be right. Any other error is the server's own trouble.
package manifest
