// Package supervisor brings stacks to life and keeps them there: one runner per
// stack owns its long jobs, one at a time, and every change of a stack's status
// goes through the store with the events it causes.
//
// Each step towards the engine can be repeated: names are derived from the
// stack, a container that is in the way is one of an earlier attempt, and what
// is gone already counts as removed. So a server that died in the middle of
// anything is followed by one that reads the rows, takes an inventory of the engine,
// and makes the second agree with the first.
//
// Two things are nobody's crash: what ends with the engine, whose absences are
// counted for that (absence.go), and what the supervisor ends itself.
package supervisor
