// Package stack is Berth's domain. It defines stacks, services, generations and events,
// the state changes that exist and the rules that guard them, the variables that a
// process gets, and how durations are read and written.
//
// Code in this package does no I/O, and only Now reads the clock. Callers pass the
// time, so every rule can be tested as arithmetic.
package stack
