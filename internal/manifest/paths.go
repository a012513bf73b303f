package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// paths returns which paths lead to other services; nil if it is left out or wrong.
func (d *decoder) paths() map[string]stack.Path {
	n := d.value("paths", kindMapping, "paths: {/api: api}")
	if n == nil {
		return nil
	}
	if len(n.fields) > stack.MaxPaths {
		d.faultf("paths has %d entries; a service has at most %d", len(n.fields), stack.MaxPaths)
		return nil
	}
	paths := map[string]stack.Path{}
	for _, field := range n.fields {
		prefix, err := stack.CleanPath(field.key)
		if err != nil {
			d.faultf("path %s %v", safetext.Quote(field.key), err)
			continue
		}
		if _, twice := paths[prefix]; twice {
			d.faultf("path %s is given twice", safetext.Quote(prefix))
			continue
		}
		paths[prefix] = d.path(prefix, field.value)
	}
	return paths
}

// path returns where a path leads: a name of a service, or a mapping with it. Without a
// valid name the service is "".
func (d *decoder) path(prefix string, n *node) stack.Path {
	switch n.kind {
	case kindText:
		if n.text == "" {
			d.faultf("path %s names no service; write one, as in paths: {%s: api}", safetext.Quote(prefix), prefix)
		}
		return stack.Path{Service: n.text}
	case kindMapping:
		inner := newDecoder(n, fmt.Sprintf("%spath %s: ", d.label, safetext.Quote(prefix)), pathFields, pathAliases, d.faults)
		p := stack.Path{Strip: inner.strip()}
		if inner.fields["service"].missing() {
			inner.faultf("it names no service; write one, as in {service: api, strip: true}")
		} else if service := inner.text("service", "service: api"); service != nil {
			p.Service = *service
			if p.Service == "" {
				inner.faultf("it names no service; write one, as in {service: api, strip: true}")
			}
		}
		return p
	}
	d.faultf("path %s is %s but must be the name of a service, as in paths: {%s: api} or paths: {%s: {service: api, strip: true}}",
		safetext.Quote(prefix), n.kind, prefix, prefix)
	return stack.Path{}
}

// strip returns whether the path is removed; false if it is left out or wrong.
func (d *decoder) strip() bool {
	n := d.value("strip", kindBool, "strip: true")
	return n != nil && n.text == "true"
}

// checkPaths faults paths that lead to unknown services, to databases, or to the service
// itself.
func checkPaths(services []draftService, f *faults) {
	var names, databases []string
	for _, s := range services {
		if s.name == "" {
			return // it is unknown which service is meant
		}
		names = append(names, s.name)
		if def, _, ok := s.definition(); ok && def.Database != nil {
			databases = append(databases, s.name)
		}
	}
	for _, s := range services {
		for _, prefix := range slices.Sorted(maps.Keys(s.paths)) {
			switch to := s.paths[prefix].Service; {
			case to == "": // faulted already
			case to == s.name:
				f.addf("%s: path %s leads to the service itself, which has it already; leave it out", s.label, safetext.Quote(prefix))
			case !slices.Contains(names, to):
				f.addf("%s: path %s leads to %s, but there is no such service; the services are %s",
					s.label, safetext.Quote(prefix), safetext.Quote(to), strings.Join(safetext.Names(names), ", "))
			case slices.Contains(databases, to):
				f.addf("%s: path %s leads to %s, a database, which does not speak HTTP; lead it to the service that uses the database", s.label, safetext.Quote(prefix), safetext.Name(to))
			}
		}
	}
}
