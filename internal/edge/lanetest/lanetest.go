// Package lanetest runs the tests of a package through both lanes of the edge.
package lanetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
)

// variable tells a process that its tests use the first lane.
const variable = "BERTH_TEST_FAST_LANE"

// Fast reports whether the servers of tests are to serve plain requests in the first lane.
func Fast() bool { return os.Getenv(variable) != "" }

// Run is for TestMain. It runs the tests with net/http alone, and those of a second process
// with the first lane, and returns the exit code. Fuzzing and benchmarks are run once, as the
// environment says.
func Run(run func() int) int {
	if code := run(); code != 0 || Fast() || isSet("test.fuzz") || isSet("test.bench") || isSet("test.list") {
		return code
	}
	again := exec.Command(os.Args[0], os.Args[1:]...)
	again.Env = append(os.Environ(), variable+"=on")
	again.Stdout, again.Stderr = os.Stdout, os.Stderr
	err := again.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		fmt.Fprintln(os.Stderr, "with the first lane:", failed)
		return failed.ExitCode()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the tests were not run with the first lane:", err)
		return 1
	}
	return 0
}

// isSet reports whether a flag of the tests has a value.
func isSet(name string) bool {
	f := flag.Lookup(name)
	return f != nil && f.Value.String() != ""
}
