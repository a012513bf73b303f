package manifest

import (
	"cmp"
	"time"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/runtimes"
)

// databaseStop is the shortest stop_timeout of a database, and its default: it must be able
// to write all that it has in memory.
const databaseStop = 30 * time.Second

// databaseFields are the fields that a database must not have, and why.
var databaseFields = []struct{ name, why string }{
	{"root", "it has no source"},
	{"install", "it has no source"},
	{"build", "it has no source"},
	{"release", "it runs no commands; give the service that uses it a release"},
	{"start", "the host starts it"},
	{"port", "it always listens on its usual port"},
	{"health", "the host asks it in its own protocol"},
	{"env", "the host sets it up; the services that use it get its address and password"},
	{"strategy", "it is always recreate, and only when something of the database itself changes"},
	{"paths", "it does not speak HTTP"},
	{"publish", "that is for a static service"},
	{"spa", "that is for a static service"},
}

// checkDatabase faults what a database must not have.
func (t *detector) checkDatabase(d *draftService, db *runtimes.Database) {
	for _, field := range databaseFields {
		if d.has(field.name) {
			t.faultf(d, "it is a database, %s, and must not have %s: %s; it takes name, runtime, depends_on and stop_timeout", db.Title, field.name, field.why)
		}
	}
	if d.stopTimeout != 0 && d.stopTimeout < databaseStop {
		t.faultf(d, "stop_timeout is too short for a database, which writes what it has in memory before it ends; write at least 30s, or leave it out")
	}
}

// fillDatabase completes a service that is a database.
func (t *detector) fillDatabase(d *draftService, s *stack.Spec, def *runtimes.Definition, version string) {
	s.Label, s.Env = *d.runtime, nil
	s.Runtime = stack.Runtime{Name: def.Name, Version: cmp.Or(version, def.Default)}
	s.Origin["runtime"] = t.manifest
	if version == "" {
		s.Origin["version"] = "default"
	}
	s.Start, s.Port = def.Database.Start, def.Database.Port
	s.Strategy, s.StopTimeout = stack.Recreate, cmp.Or(d.stopTimeout, databaseStop)
	t.noteGiven(d, s, "stop_timeout")
}
