package runtimes

import (
	"io/fs"
	"regexp"
)

// Database is a server of data that the host runs as it is: the services of the stack use
// it, and none of it comes from a source. Its image has the commands. They find in their
// environment $DATA_DIR, where all that the server keeps is, $PORT, on which it listens, and
// what Own returns.
type Database struct {
	Title string // what people call it, as in PostgreSQL
	Usual string // name of a service with one, as hints propose it
	Port  int
	Start string // command that runs the server
	// Ready is a command that exits with 0 if the server answers in its protocol, with 1
	// if it does not yet since it loads or recovers its data, and with another code
	// otherwise. It prints why.
	Ready string
	// Dump is a command that writes all of the data to its standard output, as of one
	// moment, and Load one that makes data in an empty $DATA_DIR from that on its standard
	// input, while no server has it.
	Dump, Load string
	Dumped     string // extension of the name of a file with a dump
	Format     string // of a dump, in words
	Magic      string // with which a dump begins
	HowToDump  string // says that something is not such a dump, and how to make one
	// LoadFault finds in the output of Load what is wrong with a dump.
	LoadFault *regexp.Regexp
	Signal    string // that ends the server in peace

	// URL is the variable in which programs expect the connection string.
	URL string
	// Variables returns what programs use to connect, by name, URL included.
	Variables func(Login) map[string]string
	// Own returns what the server's own commands get.
	Own func(Login) map[string]string
	// Drivers are the packages with which programs connect, as lists of dependencies
	// name them.
	Drivers []string
}

// Login is how a service of a stack connects to a database.
type Login struct {
	Host     string
	Port     int
	Password string // of letters and digits
}

// database completes the definition of a database, which no folder shows.
func database(d Definition) *Definition {
	d.Shows = "nothing: name it in the manifest"
	d.Detect = func(fs.FS) (Plan, bool) { return Plan{}, false }
	return &d
}
