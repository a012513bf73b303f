package peer

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	apiRoute = regexp.MustCompile(`\{fiber\.Method(\w+), (?:"([^"]+)"|healthPath),`)
	webRoute = regexp.MustCompile(`app\.(\w+)\("([^"]+)"`)
)

// routesIn returns the routes in a file, as METHOD /path. Each line with the mark has one.
func routesIn(t *testing.T, file, mark string, route *regexp.Regexp) (all []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(strings.TrimSpace(line), mark) {
			continue
		}
		m := route.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("%s: the route in %q is not understood", file, line)
		}
		if m[2] == "" {
			m[2] = "/healthz"
		}
		all = append(all, strings.ToUpper(m[1])+" "+m[2])
	}
	return all
}

// Any node would answer a route that is missing in the table, even a node that does not
// have the stack.
func TestRoutes_AreAllInTheTableOfWhichNodeAnswers(t *testing.T) {
	classified := map[string]bool{}
	for _, r := range routes {
		classified[r.Method+" "+r.Path] = true
	}
	there := routesIn(t, "../api/routes.go", "{fiber.", apiRoute)
	there = append(there, routesIn(t, "../web/routes.go", "app.", webRoute)...)
	if len(there) < 40 {
		t.Fatalf("only %d routes were found", len(there))
	}
	for _, route := range there {
		if !classified[route] {
			t.Errorf("%s is not in the table in routes.go: say which node answers it", route)
		}
		delete(classified, route)
	}
	for route := range classified {
		t.Errorf("%s is in the table in routes.go, but no longer a route", route)
	}
}
