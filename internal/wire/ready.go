package wire

import "os"

// Ready is the answer to a request that needs nothing but to be sent.
type Ready struct {
	Status  int
	Head    []byte   // its fields as lines, but for Content-Length; it must not be changed
	NoIndex bool     // search engines are to leave it out
	Length  int64    // of the body, for Content-Length; -1 for none
	Body    []byte   // nil if none is sent, and if it is File
	File    *os.File // the body; whoever sends it closes it
}
