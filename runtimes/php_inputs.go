package runtimes

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
)

var phpSettings = regexp.MustCompile(`^(COMPOSER\w*|PHP\w*)$`)

// phpInputs collects what composer install reads: its two files and its credentials. It
// reads all of the project's classes to list them, and runs the project's scripts.
func phpInputs(in *inputs) {
	in.add(in.dir, "composer.json", "composer.lock", "auth.json", "symfony.lock")
	in.forbid(in.dir, "vendor")
	if strings.Contains(in.text(in.dir, "composer.json"), "symfony/") {
		in.add(in.dir, ".env")
	}
	for dir := range in.upward() {
		in.forbid(dir, ".git") // Composer records the commit
	}
	var composer struct {
		Autoload     map[string]json.RawMessage
		IncludePath  json.RawMessage `json:"include-path"`
		Scripts      map[string]json.RawMessage
		Repositories json.RawMessage
		Config       map[string]json.RawMessage
	}
	data, ok := read(in.src, path.Join(in.dir, "composer.json"))
	if err := json.Unmarshal(data, &composer); !ok || err != nil {
		in.doubt("composer.json cannot be read")
		return
	}
	for name := range composer.Scripts {
		if eventScript.MatchString(name) {
			in.doubt("composer.json has scripts that run on installation")
		}
	}
	switch {
	case len(composer.Autoload) > 0 || composer.IncludePath != nil:
		in.doubt("composer.json loads the project's own classes")
	case localRepository.MatchString(string(composer.Repositories)):
		in.doubt("composer.json has a repository in the source")
	case strings.Contains(string(composer.Config["allow-plugins"]), "true"):
		in.doubt("composer.json allows plugins")
	case slices.ContainsFunc([]string{"vendor-dir", "bin-dir", "cafile", "capath", "data-dir"}, func(name string) bool { return composer.Config[name] != nil }):
		in.doubt("composer.json sets folders")
	}
}

var (
	eventScript     = regexp.MustCompile(`^(?:pre|post)-|^(?:init|command)$`)
	localRepository = regexp.MustCompile(`"type"\s*:\s*"(?:path|artifact)"|"url"\s*:\s*"(?:\.|/|file:|~|[\w.-]+")`)
)
