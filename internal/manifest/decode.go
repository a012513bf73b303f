package manifest

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// decoder reads one mapping of the manifest into a draft and collects faults.
type decoder struct {
	label  string // how a message begins: "", "notify: " or "service web: "
	fields map[string]*node
	faults *faults
}

// newDecoder checks the keys of a mapping: it faults unknown and repeated ones.
func newDecoder(n *node, label string, known []string, a aliases, f *faults) *decoder {
	d := &decoder{label: label, fields: map[string]*node{}, faults: f}
	for _, field := range n.fields {
		switch {
		case d.fields[field.key] != nil:
			d.faultf("%s is given twice", safetext.Quote(field.key))
		case !slices.Contains(known, field.key):
			d.faultUnknown(field.key, known, a)
		default:
			d.fields[field.key] = field.value
		}
	}
	return d
}

// faultUnknown faults a field that does not exist. It looks for what was meant only
// while there is room to say it.
func (d *decoder) faultUnknown(key string, known []string, a aliases) {
	if len(d.faults.lines) == maxFaults {
		d.faults.more++
		return
	}
	d.faultf("%s", unknown(key, known, a))
}

func (d *decoder) faultf(format string, args ...any) {
	d.faults.addf("%s%s", d.label, fmt.Sprintf(format, args...))
}

// value returns a field of the given kind, or faults it; nil if it is left out or
// wrong.
func (d *decoder) value(name string, want kind, example string) *node {
	n := d.fields[name]
	if n.missing() {
		return nil
	}
	if n.kind != want {
		d.faultf("%s is %s but must be %s, as in %s", name, n.kind, want, example)
		return nil
	}
	return n
}

// text returns a text field; nil if it is left out or wrong.
func (d *decoder) text(name, example string) *string {
	n := d.value(name, kindText, example)
	if n == nil {
		return nil
	}
	if hasControl(n.text) {
		d.faultf("%s holds a control character", name)
		return nil
	}
	return &n.text
}

// decodeManifest reads the whole tree.
func decodeManifest(tree *node, f *faults) *draft {
	top := newDecoder(tree, "", manifestFields, manifestAliases, f)
	d := &draft{}
	if s := top.text("name", "name: guestbook"); s != nil {
		d.manifest.Name = checkName(*s, f)
	}
	if s := top.text("ttl", "ttl: 2h"); s != nil {
		d.manifest.TTL = checkTTL(*s, f)
	}
	if s := top.text("claim_email", "claim_email: ana@example.com"); s != nil {
		d.manifest.ClaimEmail = checkEmail(*s, f)
	}
	if n := top.value("notify", kindMapping, "notify: {webhook: https://example.com/hooks}"); n != nil {
		notify := newDecoder(n, "notify: ", notifyFields, notifyAliases, f)
		if s := notify.text("webhook", "webhook: https://example.com/hooks"); s != nil {
			d.manifest.Webhook = checkWebhook(*s, f)
		}
	}
	d.services, d.broken = decodeServices(top)
	return d
}

// decodeServices reads every entry of services; broken means that it is unknown which
// services are meant.
func decodeServices(top *decoder) (services []draftService, broken bool) {
	n := top.fields["services"]
	switch {
	case n.missing():
		return nil, false
	case n.kind == kindMapping && len(n.fields) > 0:
		top.faultf("services is a mapping; write a list with the name in each entry, as in services: [{name: %s, runtime: node}]", safetext.Name(n.fields[0].key))
		n, broken = listed(n), true
	case n.kind != kindList:
		top.faultf("services is %s but must be a list of 1 to %d, as in services: [{name: web, runtime: node}]", n.kind, stack.MaxServices)
		return nil, true
	case len(n.items) > stack.MaxServices:
		top.faultf("services has %d entries; a stack has at most %d", len(n.items), stack.MaxServices)
		broken = true
	}
	for i, item := range n.items {
		services = append(services, decodeService(item, i, top.faults))
	}
	checkNames(services, top.faults)
	if !broken {
		checkDependencies(services, top.faults)
		checkPaths(services, top.faults)
	}
	return services, broken
}

// listed returns the list that a mapping from names to services stands for, so that the
// faults of each are reported too.
func listed(services *node) *node {
	list := &node{kind: kindList}
	for _, service := range services.fields {
		named := *service.value
		if !slices.ContainsFunc(named.fields, func(f field) bool { return f.key == "name" }) {
			name := field{"name", &node{kind: kindText, text: service.key}}
			named.fields = slices.Concat([]field{name}, named.fields)
		}
		list.items = append(list.items, &named)
	}
	return list
}

func decodeService(n *node, i int, f *faults) draftService {
	s := draftService{label: fmt.Sprintf("service %d", i+1)}
	if n.kind != kindMapping {
		f.addf("%s is %s but must be a mapping, as in {name: web, runtime: node}", s.label, n.kind)
		s.broken = true
		return s
	}
	for _, field := range n.fields {
		if field.key == "name" && field.value.kind == kindText && field.value.text != "" {
			s.label = "service " + safetext.Name(field.value.text)
			break
		}
	}
	d := newDecoder(n, s.label+": ", serviceFields, serviceAliases, f)
	s.given = d.fields
	s.name = d.serviceName()
	s.runtime = d.text("runtime", "runtime: node")
	s.root = d.text("root", "root: web")
	s.install = d.text("install", `install: npm ci (or "" for none)`)
	s.build = d.text("build", `build: npm run build (or "" for none)`)
	s.release = d.text("release", "release: ./migrate")
	s.start = d.text("start", "start: node server.js")
	s.publish = d.text("publish", "publish: dist")
	s.port = d.port()
	s.health = d.health()
	s.env = d.env()
	s.dependsOn = d.names("depends_on")
	s.strategy = d.strategy()
	s.stopTimeout = d.stopTimeout()
	s.spa = d.spa()
	s.paths = d.paths()
	return s
}

// port returns the port; 0 if it is left out or wrong.
func (d *decoder) port() int {
	n := d.value("port", kindNumber, "port: 3000")
	if n == nil {
		return 0
	}
	port, err := strconv.Atoi(n.text)
	if err != nil || port < 1 || port > 65535 {
		d.faultf("port %s is not a whole number from 1 to 65535", safetext.Name(n.text))
		return 0
	}
	return port
}

// names returns a list of texts.
func (d *decoder) names(name string) []string {
	n := d.value(name, kindList, name+": [api]")
	if n == nil {
		return nil
	}
	var names []string
	for _, item := range n.items {
		if item.kind != kindText {
			d.faultf("%s holds %s but must hold names of services, as in %s: [api]", name, item.kind, name)
			continue
		}
		if !slices.Contains(names, item.text) {
			names = append(names, item.text)
		}
	}
	return names
}

// env returns the variables: text, numbers and booleans as they are written, and
// {generate: true}.
func (d *decoder) env() map[string]stack.Env {
	n := d.value("env", kindMapping, "env: {LOG_LEVEL: info}")
	if n == nil {
		return nil
	}
	env := map[string]stack.Env{}
	for _, field := range n.fields {
		if _, twice := env[field.key]; twice {
			d.faultf("env %s is given twice", safetext.Name(field.key))
			continue
		}
		env[field.key] = d.envValue(safetext.Name(field.key), field.value)
		if fault := stack.EnvFault(field.key, env[field.key]); fault != "" {
			d.faultf("env %s", fault)
		}
	}
	if fault := stack.EnvsFault(env); fault != "" {
		d.faultf("env has %s", fault)
	}
	return env
}

func (d *decoder) envValue(name string, n *node) stack.Env {
	switch n.kind {
	case kindText, kindNumber, kindBool:
		return stack.Env{Value: n.text}
	case kindNull:
		d.faultf(`env %s has no value; write %s: "" for an empty one`, name, name)
	case kindMapping:
		inner := newDecoder(n, fmt.Sprintf("%senv %s: ", d.label, name), envFields, envAliases, d.faults)
		if g := inner.fields["generate"]; g != nil && (g.kind != kindBool || g.text != "true") {
			inner.faultf("generate can only be true, for a secret that is made once and kept")
		} else if len(n.fields) == 0 {
			inner.faultf("it is an empty mapping; write text, or {generate: true}")
		}
	default:
		d.faultf("env %s is %s but must be text, a number, true, false or {generate: true}", name, n.kind)
	}
	return stack.Env{Generate: true}
}

func (d *decoder) strategy() stack.Strategy {
	s := d.text("strategy", "strategy: recreate")
	if s == nil {
		return ""
	}
	if v := stack.Strategy(*s); v == stack.Overlap || v == stack.Recreate {
		return v
	}
	d.faultf("strategy %s is neither overlap (the new process starts beside the old) nor recreate (the old one stops first)", safetext.Quote(*s))
	return ""
}

// spa returns whether index.html answers for other paths, written as a text or
// as a YAML boolean.
func (d *decoder) spa() stack.SPA {
	n := d.fields["spa"]
	if n.missing() {
		return ""
	}
	if n.kind == kindText || n.kind == kindBool {
		if v := stack.SPA(n.text); v == stack.SPAAuto || v == stack.SPAOn || v == stack.SPAOff {
			return v
		}
	}
	d.faultf("spa must be true, false or auto, as in spa: auto")
	return ""
}
