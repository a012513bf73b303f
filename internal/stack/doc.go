// Package stack is Berth's domain: what a stack, a service, a generation and an
// event are, which changes of state exist, and which rules guard them. It does
// no I/O and reads no clock: whoever calls passes the time, so every rule can
// be tested as arithmetic.
package stack
