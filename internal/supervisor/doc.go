// Package supervisor brings stacks to life and keeps them there. One goroutine owns each
// stack (loop.go): it runs the stack's long jobs one at a time, keeps its deadlines, and
// decides what is served. Others ask it by messages, and never wait for a job.
//
// Code in this package may touch the rows of stacks, through a Store, which records a
// change together with its events; the engine, through an engine.Driver and the builder;
// routes; the stacks' folders, through datadir.Dir, with the logs and sites in them; the
// gate of package admission; and processes, by their health checks. It does not import
// os. It knows no request, no page and no particular engine, and package stack decides
// what a state allows. A job, and what goes on beside it, may wait for the engine, a
// program or the database. The loop waits only for its own changes of the row, and not
// for long.
//
// Each step towards the engine can be repeated: names are derived from the stack, a
// container that is in the way is one of an earlier attempt, and what is gone already
// counts as removed. So a server that died in the middle of anything is followed by one
// that reads the rows, takes an inventory of the engine, and makes the second agree with
// the first. What no row knows may be another database's, and goes later (orphans.go).
//
// Two ends of a process do not count as crashes: one that comes with an absence of the
// engine (absence.go), and one that the supervisor brings about itself.
package supervisor
