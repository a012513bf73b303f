package runtimes

import (
	"encoding/json"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

var denoSettings = regexp.MustCompile(`^(DENO_\w+|NPM_\w+|npm_\w+)$`)

// denoInputs collects what deno install reads: the configurations and lock files of the
// folder, those of the folders above it, and in a workspace those of all its members.
// With an entry point it reads the program.
func denoInputs(in *inputs) {
	if strings.Contains(in.command, "--entrypoint") {
		in.doubt("the program imports packages by their addresses")
	}
	top := ""
	for dir := range in.upward() {
		in.addDeno(dir)
		if in.denoFields(dir)["workspace"] != nil || readManifest(in, dir).fields["workspaces"] != nil {
			top = dir
		}
	}
	folders := []string{in.dir}
	if top != "" {
		folders = in.below(top, "deno.json", "deno.jsonc", "package.json")
	}
	for _, dir := range folders {
		in.addDeno(dir)
		in.checkDeno(dir)
		in.checkPackage(dir, false)
	}
	in.checkManagers()
}

func (in *inputs) addDeno(dir string) {
	in.add(dir, "deno.json", "deno.jsonc", "deno.lock", "package.json", ".npmrc")
	in.forbid(dir, "node_modules")
}

func (in *inputs) denoFields(dir string) map[string]json.RawMessage {
	var fields map[string]json.RawMessage
	for _, name := range []string{"deno.json", "deno.jsonc"} {
		data, ok := read(in.src, path.Join(dir, name))
		if ok && fields == nil && json.Unmarshal(plainJSON(data), &fields) != nil {
			in.doubt("%s cannot be read", in.relative(path.Join(dir, name)))
		}
	}
	return fields
}

// checkDeno doubts if a configuration names other files to read.
func (in *inputs) checkDeno(dir string) {
	fields := in.denoFields(dir)
	for _, name := range []string{"importMap", "scopes", "links", "patch", "lock", "vendor"} {
		if fields[name] != nil && string(fields[name]) != "false" && string(fields[name]) != "true" {
			in.doubt("%s sets %s", in.relative(path.Join(dir, "deno.json")), name)
		}
	}
	if string(fields["vendor"]) == "true" {
		in.forbid(dir, "vendor")
	}
	var imports map[string]string
	if json.Unmarshal(fields["imports"], &imports) != nil && fields["imports"] != nil {
		in.doubt("%s cannot be read", in.relative(path.Join(dir, "deno.json")))
	}
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if to := imports[name]; !remoteImport.MatchString(to) && !strings.HasSuffix(to, "/") {
			in.doubt("%s imports a file", in.relative(path.Join(dir, "deno.json")))
		}
	}
}

var remoteImport = regexp.MustCompile(`^(?:jsr|npm|node|https?):`)
