package manifest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-host/berth/internal/stack"
)

// WritePlan writes how each service will be built and run, and where each value came
// from: a block of aligned lines for each service, with the names of its variables but
// not their values. It begins a build log.
func WritePlan(w io.Writer, services ...stack.Spec) error {
	blocks := make([]string, len(services))
	for i := range services {
		blocks[i] = planBlock(&services[i])
	}
	if _, err := io.WriteString(w, strings.Join(blocks, "\n")); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	return nil
}

// planRow is a line of a plan: a name, its value, and its origin.
type planRow struct{ name, value, from string }

func planBlock(s *stack.Spec) string {
	rows := planRows(s)
	width := 0
	for _, r := range rows {
		if n := utf8.RuneCountInString(r.value); r.from != "" && n <= maxPlanColumn {
			width = max(width, n)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "plan %s\n", s.Name)
	for _, r := range rows {
		line := fmt.Sprintf("  %-12s  %s", r.name, r.value)
		if r.from != "" {
			line = fmt.Sprintf("  %-12s  %-*s  # %s", r.name, width, r.value, r.from)
		}
		b.WriteString(line + "\n")
	}
	for _, hint := range hints(s) {
		b.WriteString("  " + strings.ReplaceAll(hint, "\n", "\n    ") + "\n")
	}
	return b.String()
}

// maxPlanColumn is how far long commands push the origins to the right, in characters.
const maxPlanColumn = 44

func planRows(s *stack.Spec) []planRow {
	rows := []planRow{{"runtime", s.Runtime.String(), runtimeOrigin(s)}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, planRow{name, stack.OneLine(value), s.Origin[name]})
		}
	}
	if s.IsStatic() && s.Builds() {
		rows = append(rows, planRow{"built with", s.Builder.String(), s.Origin["version"]})
	}
	if s.Database() != nil {
		rows = append(rows, planRow{"port", strconv.Itoa(s.Port), ""})
		add("stop_timeout", fmt.Sprintf("%ds", s.StopTimeout/time.Second))
		add("depends_on", strings.Join(s.DependsOn, ", "))
		return rows
	}
	add("root", s.Root)
	add("install", cmp.Or(s.Install, "none"))
	add("build", cmp.Or(s.Build, "none"))
	if s.IsStatic() {
		add("publish", cmp.Or(s.Publish, "found after the build"))
		add("spa", string(s.SPA))
	} else {
		add("release", s.Release)
		add("start", s.Start)
		rows = append(rows, portRow(s))
		add("health", s.Health)
		add("strategy", string(s.Strategy))
		add("stop_timeout", fmt.Sprintf("%ds", s.StopTimeout/time.Second))
	}
	add("depends_on", strings.Join(s.DependsOn, ", "))
	add("paths", strings.Join(pathLines(s.Paths), ", "))
	add("env", strings.Join(envNames(s.Env), ", "))
	for _, lost := range s.Lost {
		rows = append(rows, planRow{"left out", lost.Entry, lost.Reason})
	}
	return rows
}

// runtimeOrigin joins the origins of the runtime and its version. That of a static
// service belongs to what builds it.
func runtimeOrigin(s *stack.Spec) string {
	from := s.Origin["runtime"]
	if version := s.Origin["version"]; version != "" && !s.IsStatic() {
		from += "; version: " + version
	}
	return from
}

// pathLines says of each path where it leads.
func pathLines(paths map[string]stack.Path) []string {
	var lines []string
	for _, prefix := range slices.Sorted(maps.Keys(paths)) {
		line := prefix + " -> " + paths[prefix].Service
		if paths[prefix].Strip {
			line += " (stripped)"
		}
		lines = append(lines, line)
	}
	return lines
}

func portRow(s *stack.Spec) planRow {
	if s.Port == 0 {
		return planRow{"port", "$PORT", "chosen by the host"}
	}
	return planRow{"port", strconv.Itoa(s.Port), s.Origin["port"]}
}
