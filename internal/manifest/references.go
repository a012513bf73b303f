package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// Expand puts values in place of the references of an env value. vars gets
// what stands between the braces, "services.api.url" or "stack.id"; where it
// answers false the text stays. $${ becomes ${, and any other $ stays as it is.
func Expand(value string, vars func(ref string) (string, bool)) string {
	var b strings.Builder
	for rest := value; ; {
		before, ref, after, found := nextReference(rest)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if v, ok := vars(ref); ok {
			b.WriteString(v)
		} else {
			b.WriteString("${" + ref + "}")
		}
		rest = after
	}
}

// nextReference cuts s around its first reference: before has each $${ on the
// way already written as ${.
func nextReference(s string) (before, ref, after string, found bool) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 {
			b.WriteString(s)
			return b.String(), "", "", false
		}
		b.WriteString(s[:i])
		s = s[i:]
		if strings.HasPrefix(s, "$${") {
			b.WriteString("${")
			s = s[len("$${"):]
			continue
		}
		if end := strings.IndexByte(s, '}'); end > 0 && isReference(s[:end]) {
			return b.String(), s[len("${"):end], s[end+1:], true
		}
		b.WriteByte('$')
		s = s[1:]
	}
}

// isReference tells whether text that begins with $ is a reference of ours, so
// that a wrong one is a fault and not plain text.
func isReference(s string) bool {
	return strings.HasPrefix(s, "${services.") || strings.HasPrefix(s, "${stack.")
}

var (
	serviceProperties = []string{"url", "internal_url", "host", "port"}
	stackProperties   = []string{"id", "name"}
)

// checkReferences finds references to what is not there.
func checkReferences(services []stack.Spec, f *faults) {
	if slices.Contains(specNames(services), "") {
		return // who is meant cannot be told
	}
	for _, s := range services {
		for _, key := range slices.Sorted(maps.Keys(s.Env)) {
			Expand(s.Env[key].Value, func(ref string) (string, bool) {
				if fault := referenceFault(ref, services); fault != "" {
					f.addf("service %s: env %s: ${%s} %s", clipName(s.Name), clipName(key), clipName(ref), fault)
				}
				return "", true
			})
		}
	}
}

func referenceFault(ref string, services []stack.Spec) string {
	parts := strings.Split(ref, ".")
	if parts[0] == "stack" {
		if len(parts) != 2 || !slices.Contains(stackProperties, parts[1]) {
			return "names nothing; a stack has " + strings.Join(stackProperties, " and ")
		}
		return ""
	}
	i := slices.IndexFunc(services, func(s stack.Spec) bool { return s.Name == parts[1] })
	if i < 0 {
		return fmt.Sprintf("names a service that there is not; there are %s", strings.Join(clipNames(specNames(services)), ", "))
	}
	if len(parts) != 3 || !slices.Contains(serviceProperties, parts[2]) {
		return fmt.Sprintf("names nothing; a service has %s", strings.Join(serviceProperties, ", "))
	}
	if services[i].IsStatic() && parts[2] != "url" {
		return fmt.Sprintf("names nothing: a static service has no process inside the stack; use ${services.%s.url}", parts[1])
	}
	return ""
}

func specNames(services []stack.Spec) []string {
	names := make([]string, len(services))
	for i := range services {
		names[i] = services[i].Name
	}
	return names
}

// clipName shows a short name of the client's in a message without quotes.
func clipName(s string) string {
	if plainName(s) {
		return s
	}
	return safetext.Quote(s)
}

// clipNames is clipName for a list.
func clipNames(names []string) []string {
	clipped := make([]string, len(names))
	for i, name := range names {
		clipped[i] = clipName(name)
	}
	return clipped
}

func plainName(s string) bool {
	return s != "" && len(s) <= 60 && !strings.ContainsFunc(s, unprintableOrSpace)
}
