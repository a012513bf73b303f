package runtimes

import (
	"cmp"
	"io/fs"
	"regexp"
	"slices"
	"strings"
)

var ruby = Definition{
	Name:     "ruby",
	Shows:    "`Gemfile`, `config.ru`, or a file such as `app.rb`; with Jekyll, a static site",
	Versions: []string{"3.3"},
	Default:  "3.3",
	Aliases:  []string{"rb", "rails", "rack", "sinatra", "jekyll"},
	Example:  "bundle exec puma",
	inputs:   rubyInputs,
	settings: rubySettings,
	programs: []string{"ruby", "bundle", "rails", "rackup", "puma", "rake", "unicorn", "thin", "falcon"},
	// Gems lie in the home folder, which is part of the service's image; in the
	// service's own, Jekyll would take them for pages.
	Env: map[string]string{
		"BUNDLE_PATH":              "/home/app/bundle",
		"BUNDLE_WITHOUT":           "development:test",
		"BUNDLE_VERSION":           "system",
		"RACK_ENV":                 "production",
		"RAILS_ENV":                "production",
		"RAILS_LOG_TO_STDOUT":      "1",
		"RAILS_SERVE_STATIC_FILES": "1",
	},
	buildEnv: map[string]string{
		"BUNDLE_PATH":             "/home/app/bundle",
		"BUNDLE_WITHOUT":          "development:test",
		"BUNDLE_VERSION":          "system",
		"BUNDLE_USER_CACHE":       "/cache/bundle",
		"BUNDLE_GLOBAL_GEM_CACHE": "true",
		"JEKYLL_ENV":              "production",
		"RACK_ENV":                "production",
		"RAILS_ENV":               "production",
	},
}

// rubySource holds the relevant parts of a Ruby project's files.
type rubySource struct {
	src     fs.FS
	gemfile string
	lock    string // Gemfile.lock
}

func detectRuby(src fs.FS) (Plan, bool) {
	gemfile, bundled := read(src, "Gemfile")
	s := rubySource{src, string(gemfile), readHead(src, "Gemfile.lock")}
	var p Plan
	p.Version, p.VersionFrom = s.version()
	if bundled || s.lock != "" {
		p.Install = s.install(cmp.Or(p.Version, ruby.Default))
	}
	p.Start = s.startCommand()
	if s.rails() && firstFile(src, "config/master.key", "config/credentials/production.key") == "" {
		p.Env = []Variable{{Name: "SECRET_KEY_BASE", Unless: "RAILS_MASTER_KEY", From: "Rails"}}
	}
	if s.rails() && (s.requires("sprockets-rails") || s.requires("propshaft")) {
		p.Build = Command{"SECRET_KEY_BASE_DUMMY=1 bundle exec rails assets:precompile", "config/application.rb"}
	}
	if p.Start.Line == "" && (s.requires("jekyll") || s.requires("github-pages")) {
		p.Static = true
		p.Build = Command{"bundle exec jekyll build", "Gemfile with jekyll"}
		p.Publish = Command{"_site", "Gemfile with jekyll"}
		p.Hint = "Jekyll makes a site, which a static service serves"
	} else if p.Start.Line == "" {
		p.Hint = "it has no config.ru and none of " + strings.Join(rubyEntries, ", ")
	}
	p.From = cmp.Or(firstFile(src, "Gemfile.lock", "Gemfile"), p.Start.From)
	return p, p.From != "" && !startsNode(src)
}

var (
	gemRuby     = regexp.MustCompile(`(?m)^\s*ruby\s*\(?\s*["']([^"']+)["'](?:\s*,\s*["']([^"']+)["'])?`)
	lockedRuby  = regexp.MustCompile(`(?m)^RUBY VERSION\n\s+ruby (\d+\.\d+\.\d+)`)
	rubyEntries = []string{"app.rb", "main.rb", "server.rb", "web.rb", "index.rb"}
)

func (s rubySource) version() (string, string) {
	sources := []source{
		{strings.TrimPrefix(firstLine(s.src, ".ruby-version"), "ruby-"), ".ruby-version"},
		{toolVersion(s.src, "ruby"), ".tool-versions"},
	}
	if m := gemRuby.FindStringSubmatch(s.gemfile); m != nil {
		sources = append(sources, source{rubyRange(m), "Gemfile"})
	}
	return ruby.firstVersion(append(sources, source{group(lockedRuby, s.lock), "Gemfile.lock"})...)
}

// install uses the lock file if that has gems for Linux. Bundler refuses every Ruby
// except the one that the Gemfile names, so a line that names another version than the
// one that runs is replaced, together with what the lock file says.
func (s rubySource) install(version string) Command {
	c, files := Command{"bundle install", "Gemfile"}, "Gemfile"
	if s.lock != "" {
		files += " Gemfile.lock"
		c.From = "Gemfile.lock, which has no gems for Linux: not frozen"
		if s.lockedForLinux() {
			c = Command{"BUNDLE_FROZEN=true bundle install", "Gemfile.lock"}
		}
	}
	if line := rubyLine.FindString(s.gemfile); line != "" && !s.allowsRuby(version) {
		c.Line = "sed -i '/^ *ruby[ (]/d; /^RUBY VERSION/,+2d' " + files + " && " + c.Line
		c.From += "; " + clip(strings.TrimSpace(line)) + " gives way to " + version
	}
	return c
}

var (
	rubyLine      = regexp.MustCompile(`(?m)^ *ruby[ (].*`)
	gemPlatforms  = regexp.MustCompile(`(?m)^PLATFORMS\n((?:  .+\n?)+)`)
	linuxPlatform = regexp.MustCompile(`(?m)^  (?:ruby|(?:x86_64|aarch64)-linux(?:-gnu)?)$`)
)

// allowsRuby reports whether the Gemfile accepts every patch of a version.
func (s rubySource) allowsRuby(version string) bool {
	m := gemRuby.FindStringSubmatch(s.gemfile)
	if m == nil || !strings.ContainsAny(m[1], "~<>") { // 3.3 means 3.3.0 alone
		return false
	}
	wanted, _ := parseRange(rubyRange(m))
	offer := offered(version)
	return slices.ContainsFunc(wanted, func(w span) bool {
		return w.lo.compare(offer.lo) <= 0 && offer.hi.compare(w.hi) <= 0
	})
}

// rubyRange returns the range that gemRuby found; ~> is ~= in other languages.
func rubyRange(m []string) string {
	return strings.TrimSpace(strings.ReplaceAll(m[1]+" "+m[2], "~>", "~="))
}

func (s rubySource) lockedForLinux() bool {
	m := gemPlatforms.FindStringSubmatch(s.lock)
	return m == nil || linuxPlatform.MatchString(m[1])
}

// requires reports whether the Gemfile requires a gem, or the lock file contains it.
func (s rubySource) requires(name string) bool {
	name = regexp.QuoteMeta(name)
	return regexp.MustCompile(`(?m)^\s*gem\s*\(?\s*["']`+name+`["']`).MatchString(s.gemfile) ||
		regexp.MustCompile(`(?m)^    `+name+` \(`).MatchString(s.lock)
}

func (s rubySource) rails() bool {
	return isFile(s.src, "config/application.rb") && (s.requires("rails") || s.requires("railties"))
}

// startCommand finds a server for Rails or Rack, else runs the first of the usual files.
func (s rubySource) startCommand() Command {
	switch {
	case s.rails():
		c := s.startRack("config/application.rb", "bundle exec rails server -b 0.0.0.0 -p $PORT")
		// The database may be a file of this folder, which no other container
		// sees: it is made where the program starts, as Rails' own images do.
		if isFile(s.src, "config/database.yml") || isDir(s.src, "db/migrate") {
			c.Line = "bundle exec rails db:prepare && " + c.Line
		}
		return c
	case isFile(s.src, "config.ru"):
		return s.startRack("config.ru", "bundle exec rackup -o 0.0.0.0 -p $PORT")
	}
	entry := firstFile(s.src, rubyEntries...)
	switch {
	case entry == "":
		return Command{}
	case s.gemfile != "":
		return Command{"bundle exec ruby " + entry, entry}
	default:
		return Command{"ruby " + entry, entry}
	}
}

// startRack serves with puma if the project requires it, else in another way.
func (s rubySource) startRack(from, otherwise string) Command {
	switch {
	case !s.requires("puma"):
		return Command{otherwise, from}
	case readsPort.MatchString(readHead(s.src, "config/puma.rb")):
		return Command{"bundle exec puma -C config/puma.rb", "config/puma.rb"}
	default:
		return Command{"bundle exec puma -b tcp://0.0.0.0:$PORT", from + " with puma"}
	}
}
