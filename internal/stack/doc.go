// Package stack is Berth's domain: what a stack, a service, a generation and an
// event are, which changes of state exist, which rules guard them, which
// variables a process gets, and how a duration is read and written.
//
// Code in this package does no I/O, and only Now reads the clock: whoever calls
// passes the time, so every rule can be tested as arithmetic.
package stack
