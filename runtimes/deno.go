package runtimes

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"path"
	"regexp"
	"strings"
)

var deno = Definition{
	Name:     "deno",
	Shows:    "`deno.json`, `deno.jsonc` or `deno.lock`, or a file such as `main.ts` that calls `Deno.serve` or imports from `jsr:`, `npm:` or `https://`",
	Versions: []string{"2"},
	Default:  "2",
	Aliases:  []string{"denoland", "fresh"},
	Example:  "deno run -A main.ts",
	inputs:   denoInputs,
	settings: denoSettings,
	programs: []string{"deno"},
	Env: map[string]string{
		"DENO_NO_PROMPT":       "1",
		"DENO_NO_UPDATE_CHECK": "1",
	},
	// Packages stay in Deno's own folder in $HOME, which is part of the
	// service's image: programs load them from there.
	buildEnv: map[string]string{
		"DENO_NO_PROMPT":       "1",
		"DENO_NO_UPDATE_CHECK": "1",
		"DENO_TLS_CA_STORE":    "mozilla,system",
		"NO_COLOR":             "1",
	},
}

// denoEntries are the files in which programs begin, the most telling first.
var denoEntries = []string{
	"main.ts", "main.tsx", "server.ts", "mod.ts", "index.ts", "app.ts", "main.js", "server.js", "index.js",
	"src/main.ts", "src/server.ts", "src/index.ts", "src/app.ts",
}

func detectDeno(src fs.FS) (Plan, bool) {
	s := readDeno(src)
	var p Plan
	p.Version, p.VersionFrom = deno.firstVersion(
		source{firstLine(src, ".dvmrc"), ".dvmrc"},
		source{firstLine(src, ".deno-version"), ".deno-version"},
		source{toolVersion(src, "deno"), ".tool-versions"},
	)
	if s.name != "" {
		p.Name = path.Base(s.name)
	}
	p.Install = s.install()
	if line, from := s.task("build"); line != "" {
		p.Build = Command{"deno task build", from}
	}
	p.Start = s.startCommand()
	if p.Start.Line == "" {
		p.Hint = "it has no task start and no " + strings.Join(denoEntries[:3], ", ") + " or other usual file"
		p.Static = p.Build.Line != ""
	}
	p.From = cmp.Or(s.file, firstFile(src, "deno.lock"))
	if p.From == "" {
		p.From = s.entry
		return p, strings.Contains(s.text, "Deno.serve(") || strings.Contains(s.text, "Deno.listen(") || s.importsByAddress()
	}
	// Beside a package.json that starts something, a deno.json without a start
	// holds the settings of a tool.
	return p, s.tasks["start"] != nil || !startsNode(src)
}

// denoSource holds the relevant parts of a Deno project's files.
type denoSource struct {
	src   fs.FS
	pkg   packageJSON
	entry string // the file that the program begins in, as far as it is known
	text  string // of entry

	file    string // deno.json or deno.jsonc; "" for none
	name    string // this and the rest as the file has it; a field of another type counts as absent
	imports map[string]string
	tasks   map[string]json.RawMessage
}

func readDeno(src fs.FS) denoSource {
	s := denoSource{src: src, file: firstFile(src, "deno.json", "deno.jsonc")}
	data, _ := read(src, s.file)
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(plainJSON(data), &fields) // Deno itself reports what is wrong with it
	for name, to := range map[string]any{"name": &s.name, "imports": &s.imports, "tasks": &s.tasks} {
		_ = json.Unmarshal(fields[name], to)
	}
	s.pkg, _ = readPackage(src)
	s.entry = firstFile(src, denoEntries...)
	line, _ := s.task("start")
	for word := range strings.FieldsSeq(line) {
		if isScript(word) && isFile(src, path.Clean(word)) {
			s.entry = path.Clean(word)
		}
	}
	s.text = readHead(src, s.entry)
	return s
}

// task returns a task's command and where it is defined: in the configuration, or else
// in package.json's scripts, which deno task runs as well.
func (s denoSource) task(name string) (string, string) {
	raw := s.tasks[name]
	if raw == nil {
		return s.pkg.Scripts[name], "package.json scripts." + name
	}
	var line string
	if json.Unmarshal(raw, &line) == nil {
		return line, s.file + " tasks." + name
	}
	var task struct{ Command string }
	_ = json.Unmarshal(raw, &task)
	return cmp.Or(task.Command, "deno task "+name), s.file + " tasks." + name
}

// remote matches imports of packages that no configuration names.
var remote = regexp.MustCompile(`["'](?:npm|jsr|https?):`)

func (s denoSource) install() Command {
	c := Command{"deno install", cmp.Or(s.file, s.entry)}
	switch {
	case isFile(s.src, "deno.lock"):
		c = Command{"deno install --frozen", "deno.lock"}
	case len(s.imports) == 0 && !s.pkg.installs() && !remote.MatchString(s.text):
		return Command{}
	}
	if remote.MatchString(s.text) {
		c.Line += " --entrypoint " + word(s.entry)
	}
	return c
}

// addressed matches an import that Node.js does not accept.
var addressed = regexp.MustCompile(`(?m)^\s*(?:import|(?:import|export)\b[^"';=]*\bfrom)\s*["'](?:jsr:|npm:|https?://)`)

// importsByAddress reports whether a program without a package.json imports as Deno
// does. Browsers do so too, in the script of a page.
func (s denoSource) importsByAddress() bool {
	return addressed.MatchString(s.text) && firstFile(s.src, "package.json", indexPage) == ""
}

// startCommand runs the task start, else the usual file. The container limits what the
// program may do, so it gets all of Deno's permissions.
func (s denoSource) startCommand() Command {
	line, from := s.task("start")
	switch {
	case line != "" && s.direct(line):
		return Command{s.listen(line), from}
	case line != "":
		return Command{s.listen("deno task start", line), from}
	case s.entry == "":
		return Command{}
	case exportsFetch.MatchString(s.text):
		return Command{s.listen("deno serve -A " + word(s.entry)), s.entry}
	default:
		return Command{s.listen("deno run -A " + word(s.entry)), s.entry}
	}
}

// exportsFetch matches a file for deno serve.
var exportsFetch = regexp.MustCompile(`(?m)^export default \{[^}]*\bfetch\b`)

// direct reports whether the task start is a single command of deno, to be run by
// itself so that signals reach the program.
func (s denoSource) direct(line string) bool {
	plain := strings.HasPrefix(line, "deno ") && !strings.ContainsAny(line, "&|;<>$`*\n")
	task := s.tasks["start"]
	return plain && (task == nil || task[0] == '"')
}

// listen gives Deno's server the address to listen on, unless the program or what line
// runs reads PORT.
func (s denoSource) listen(line string, runs ...string) string {
	if readsPort.MatchString(s.text + " " + line + " " + strings.Join(runs, " ")) {
		return line
	}
	return "env DENO_SERVE_ADDRESS=tcp:0.0.0.0:$PORT " + line
}
