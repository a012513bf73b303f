// Command probe is what a hostile tenant might run. The isolation tests put it
// into a stack, as a service and into its build: it tries what it must not be
// able to do, and reports what became of each attempt.
//
//	probe try [NAME=ADDRESS…]   prints one line of JSON: attempts and outcomes
//	probe serve                 does so at /try?NAME=ADDRESS&…, and uses things up at /exhaust?what=…&for=…&least=…
//	probe fill                  takes memory; the probe's own child does
//
// An outcome is ok, the name of the error, or what was found.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("probe: name a command: try or serve")
	}
	switch os.Args[1] {
	case "try":
		targets := map[string]string{}
		for _, arg := range os.Args[2:] {
			name, address, _ := strings.Cut(arg, "=")
			targets[name] = address
		}
		report(os.Stdout, targets)
	case "serve":
		serve()
	case "fill":
		fill()
	default:
		log.Fatalf("probe: there is no command %q", os.Args[1])
	}
}

// report prints the outcome of every attempt by name.
func report(w interface{ Write([]byte) (int, error) }, targets map[string]string) {
	outcomes := map[string]string{}
	for _, group := range []map[string]func() string{calls(), privileges(), files(), others(targets)} {
		for name, attempt := range group {
			outcomes[name] = attempt()
		}
	}
	for name, outcome := range network(targets) {
		outcomes[name] = outcome
	}
	text, err := json.Marshal(outcomes)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(w, "probe %s\n", text)
}

func serve() {
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "probe") })
	http.HandleFunc("/try", func(w http.ResponseWriter, r *http.Request) {
		targets := map[string]string{}
		for name := range r.URL.Query() {
			targets[name] = r.URL.Query().Get(name)
		}
		report(w, targets)
	})
	http.HandleFunc("/network", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, dial(r.URL.Query().Get("to")))
	})
	http.HandleFunc("/flood", func(w http.ResponseWriter, r *http.Request) {
		times, err := strconv.Atoi(r.URL.Query().Get("times"))
		if err != nil {
			http.Error(w, "say to=… and times=…", http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, sendFromMany(r.URL.Query().Get("to"), times))
	})
	http.HandleFunc("/exhaust", func(w http.ResponseWriter, r *http.Request) {
		limit, err := time.ParseDuration(r.URL.Query().Get("for"))
		least, notNumber := strconv.Atoi(r.URL.Query().Get("least"))
		use, known := exhaustions[r.URL.Query().Get("what")]
		if err != nil || notNumber != nil || !known {
			http.Error(w, "say what=…, for=… and least=…", http.StatusBadRequest)
			return
		}
		got, end := use(least, func() time.Time {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			return time.Now().Add(limit)
		})
		fmt.Fprintln(w, got, end)
	})
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
