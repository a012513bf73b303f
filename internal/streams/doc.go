// Package streams carries many connections between two programs over one, which costs a
// busy pair of nodes far fewer writes, wakes and packets than a connection each.
//
// A Session is one connection with the streams on it; the client's side opens them and
// the server's accepts them. A Conn is one end of a stream, with what net.Conn promises
// and what TCP has beside that: either direction ends by itself (CloseWrite), and a Conn
// that is closed before it has sent its end, or has seen that of the other side, breaks
// the stream off, which the other side never takes for an end. If the connection breaks,
// so do all its streams.
//
// Frames are a head of 8 bytes (kind, size, id of the stream) and up to 16 KiB of data. A
// stream has credit for 256 KiB that the other side has not read yet, so one that nobody
// reads holds up no other, and costs no more memory than that. Whatever the streams write
// while the connection is busy or others are about to write goes out in one write. There
// is no timer in it: a single stream's bytes leave at once.
//
// Code in this package touches the connection that it is given, and knows nothing of what
// the streams carry.
package streams
