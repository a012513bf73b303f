// Package hog is what the isolation tests and the bench share about a stack that uses
// up resources. Its program is integration/probe.
package hog

import (
	"fmt"
	"io"
)

// Manifest is the hog's; its archive has the program as probe.
const Manifest = `{name: hog, services: [{name: web, runtime: node@22, install: "", build: chmod +x probe, start: ./probe serve}]}`

// Ceilings are the settings of the server that runs the hog, as recommended for a
// public installation.
var Ceilings = []string{"BERTH_SERVICE_PIDS=256", "BERTH_SERVICE_MEMORY=512MiB", "BERTH_SERVICE_CPUS=0.5"}

// Exhaustion is one thing to use up.
type Exhaustion struct {
	What  string
	Least int    // how much of it the hog gets at the least
	End   string // what keeps it from more
}

// Exhaustions lists the resources that the hog uses up.
var Exhaustions = []Exhaustion{
	{"processes", 200, "EAGAIN"},
	{"memory", 1, "killed"},
	{"descriptors", 1000, "EMFILE"},
	{"inotify", 100, "EMFILE"},
	{"disk", 64, "time"},
	{"log", 1, "time"},
}

// Path is the path to request from the hog. The hog answers once it has begun,
// continues for a second or until it has the least amount, and then ends its answer.
func (e Exhaustion) Path() string {
	return fmt.Sprintf("/exhaust?what=%s&for=1s&least=%d", e.What, e.Least)
}

// Check reads the hog's answer to its end. It is an error if the hog got less than
// the least, or if something else kept it from more.
func (e Exhaustion) Check(answer io.Reader) error {
	var got int
	var end string
	if _, err := fmt.Fscan(answer, &got, &end); err != nil {
		return fmt.Errorf("using up %s: %w", e.What, err)
	}
	if got < e.Least || end != e.End {
		return fmt.Errorf("using up %s: the hog got %d until %s; want %d or more until %s", e.What, got, end, e.Least, e.End)
	}
	return nil
}
