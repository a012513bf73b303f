package runtimes

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

var php = Definition{
	Name:     "php",
	Shows:    "`composer.json`, or an `index.php` in `public`, `web`, `webroot` or the folder itself",
	Versions: []string{"8.4"},
	Default:  "8.4",
	Aliases:  []string{"php8", "laravel", "symfony", "wordpress", "composer", "apache"},
	Example:  "php-server public",
	inputs:   phpInputs,
	settings: phpSettings,
	programs: []string{"php", "php-server", "composer"},
	path:     []string{"vendor/bin"},
	buildEnv: map[string]string{
		"COMPOSER_CACHE_DIR":      "/cache/composer",
		"COMPOSER_NO_INTERACTION": "1",
		"COMPOSER_NO_AUDIT":       "1",
	},
}

// phpFolders are where a front controller is looked for. What is beside a public folder
// must not be served, so the folder itself comes last.
var phpFolders = []string{"public", "web", "webroot", "."}

func detectPHP(src fs.FS) (Plan, bool) {
	composer := readComposer(src)
	var p Plan
	p.Version, p.VersionFrom = phpVersion(src, composer)
	_, p.Name, _ = strings.Cut(composer.Name, "/")
	if from := firstFile(src, "composer.lock", "composer.json"); from != "" {
		p.Install = Command{"composer install --no-dev --optimize-autoloader --no-progress", from}
	}
	p.Start = startPHP(src)
	if p.Start.Line == "" {
		p.Hint = "no index.php in public, web, webroot or the folder itself"
	}
	switch {
	case composer.Require["symfony/framework-bundle"] != "":
		p.forSymfony(src)
	case isFile(src, "artisan") && !hasDotenv(src, "APP_KEY"):
		p.Env = []Variable{{Name: "APP_KEY", From: "Laravel"}}
	}
	p.From = cmp.Or(firstFile(src, "composer.json"), p.Start.From)
	return p, p.From != "" && !startsNode(src)
}

// forSymfony sets everything for production: the install already warms the cache, and
// nothing else works without the packages for development. Symfony does not start
// without a .env, which archives often leave out.
func (p *Plan) forSymfony(src fs.FS) {
	p.Env = []Variable{{Name: "APP_ENV", Value: "prod", From: "Symfony"}}
	if !hasDotenv(src, "APP_SECRET") {
		p.Env = append(p.Env, Variable{Name: "APP_SECRET", From: "Symfony"})
	}
	p.Install.Line = "{ test -e .env || : > .env; } && " + p.Install.Line
	if isFile(src, "importmap.php") {
		p.Build = Command{"php bin/console asset-map:compile", "importmap.php"}
	}
}

// hasDotenv reports whether the files from which a framework reads variables in
// production set one. The environment would override it.
func hasDotenv(src fs.FS, name string) bool {
	given := regexp.MustCompile(`(?m)^(?:export )?` + name + `=["']?[^\s"'#]`)
	files := []string{".env", ".env.local", ".env.prod", ".env.production"}
	return slices.ContainsFunc(files, func(file string) bool { return given.MatchString(readHead(src, file)) })
}

// startPHP serves the front controller's folder. Laravel's database may be a file of
// the project's folder, which other containers do not see, so it is migrated where the
// program starts.
func startPHP(src fs.FS) Command {
	for _, folder := range phpFolders {
		index := strings.TrimPrefix(folder+"/index.php", "./")
		if !isFile(src, index) {
			continue
		}
		c := Command{"php-server " + folder, index}
		if isFile(src, "artisan") && isDir(src, "database/migrations") {
			c = Command{"php artisan migrate --force && " + c.Line, "artisan and " + index}
		}
		return c
	}
	return Command{}
}

func phpVersion(src fs.FS, composer composerJSON) (string, string) {
	return php.firstVersion(
		source{firstLine(src, ".php-version"), ".php-version"},
		source{toolVersion(src, "php"), ".tool-versions"},
		source{composer.Config.Platform.PHP, "composer.json config.platform.php"},
		// Composer's own or is one bar or two.
		source{phpOr.ReplaceAllString(composer.Require["php"], "||"), "composer.json require.php"},
	)
}

var phpOr = regexp.MustCompile(`\|+`)

// composerJSON holds the relevant parts of a composer.json.
type composerJSON struct {
	Name    string
	Require map[string]string
	Config  struct {
		Platform struct{ PHP string }
	}
}

// readComposer reads composer.json; a field of an unexpected type counts as absent.
func readComposer(src fs.FS) composerJSON {
	var c composerJSON
	data, _ := read(src, "composer.json")
	_ = json.Unmarshal(data, &c) // Composer itself reports what is wrong with it
	return c
}
