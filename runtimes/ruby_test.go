package runtimes

import (
	"testing"
	"testing/fstest"
)

func TestRuby_InstallsBuildsAndStarts(t *testing.T) {
	const rails = "config/application.rb: "
	const precompile = "SECRET_KEY_BASE_DUMMY=1 bundle exec rails assets:precompile"
	for i, c := range []struct {
		src                   fstest.MapFS
		install, build, start string
	}{
		{files("Gemfile: gem 'sinatra'", "Gemfile.lock: GEM\n", "app.rb: "), "BUNDLE_FROZEN=true bundle install", "", "bundle exec ruby app.rb"},
		{files("Gemfile: gem 'sinatra'", "app.rb: "), "bundle install", "", "bundle exec ruby app.rb"},
		{files("server.rb: "), "", "", "ruby server.rb"},
		{files("Gemfile: gem 'rack'\ngem 'rackup'", "config.ru: ", "app.rb: "), "bundle install", "", "bundle exec rackup -o 0.0.0.0 -p $PORT"},
		{files("Gemfile: gem \"puma\", '~> 6'", "config.ru: "), "bundle install", "", "bundle exec puma -b tcp://0.0.0.0:$PORT"},
		{files("Gemfile: gem('puma')", "config.ru: ", "config/puma.rb: threads 5"), "bundle install", "", "bundle exec puma -b tcp://0.0.0.0:$PORT"},
		{files("Gemfile: gem 'puma'", "config.ru: ", "config/puma.rb: port ENV.fetch('PORT', 3000)"), "bundle install", "", "bundle exec puma -C config/puma.rb"},
		{files("Gemfile: gem 'rails'\ngem 'puma'\ngem 'propshaft'", rails, "config.ru: ", "db/migrate/1.rb: "), "bundle install", precompile, "bundle exec rails db:prepare && bundle exec puma -b tcp://0.0.0.0:$PORT"},
		{files("Gemfile: gemspec", "Gemfile.lock: GEM\n  specs:\n    railties (8.0.1)\n    sprockets-rails (3)\n", rails), "BUNDLE_FROZEN=true bundle install", precompile, "bundle exec rails server -b 0.0.0.0 -p $PORT"},
		{files("Gemfile: # gem 'puma'\ngem 'pumas'", "config.ru: "), "bundle install", "", "bundle exec rackup -o 0.0.0.0 -p $PORT"},
		{files("Gemfile: gem 'rake'"), "bundle install", "", ""},
		{files("Gemfile: gem 'puma'", "config.ru: ", "config/puma.rb: # IMPORTANT, SUPPORT_PORT"), "bundle install", "", "bundle exec puma -b tcp://0.0.0.0:$PORT"},
		{files("Gemfile: gem 'rails'", rails, "config/database.yml: "), "bundle install", "", "bundle exec rails db:prepare && bundle exec rails server -b 0.0.0.0 -p $PORT"},
	} {
		plan, ok := detectRuby(c.src)
		if !ok || plan.Install.Line != c.install || plan.Build.Line != c.build || plan.Start.Line != c.start || c.start == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

// Bundler refuses every Ruby but the one that a Gemfile names.
func TestRuby_InstallsWithTheRubyThatIsThere(t *testing.T) {
	const alone = "sed -i '/^ *ruby[ (]/d; /^RUBY VERSION/,+2d' Gemfile && "
	const both = "sed -i '/^ *ruby[ (]/d; /^RUBY VERSION/,+2d' Gemfile Gemfile.lock && "
	const frozen = "BUNDLE_FROZEN=true "
	const mac = "Gemfile.lock: GEM\n\nPLATFORMS\n  arm64-darwin-23\n  x86_64-darwin\n\nDEPENDENCIES\n"
	for i, c := range []struct {
		src  fstest.MapFS
		line string
		from string
	}{
		{files("Gemfile: ruby '~> 3.2'"), "", "Gemfile"},
		{files(`Gemfile: ruby ">= 3.1", "< 4"`), "", "Gemfile"},
		{files("Gemfile: ruby '~> 3.3.0'"), "", "Gemfile"},
		{files(`Gemfile: ruby "3.2.2"`), alone, `Gemfile; ruby "3.2.2" gives way to 3.3`},
		{files(`Gemfile: ruby "3.3.5"`), alone, `Gemfile; ruby "3.3.5" gives way to 3.3`},
		{files(`Gemfile: ruby "3.3"`), alone, `Gemfile; ruby "3.3" gives way to 3.3`},
		{files(`Gemfile: ruby "~> 3.3.5"`), alone, `Gemfile; ruby "~> 3.3.5" gives way to 3.3`},
		{files(`Gemfile: ruby "~> 3.4"`), alone, `Gemfile; ruby "~> 3.4" gives way to 3.3`},
		{files("Gemfile: ruby file: '.ruby-version'", ".ruby-version: 3.3.5", "Gemfile.lock: GEM\n"), both + frozen, "Gemfile.lock; ruby file: '.ruby-version' gives way to 3.3"},
		{files("Gemfile: ", "Gemfile.lock: PLATFORMS\n  arm64-darwin\n  ruby\n"), frozen, "Gemfile.lock"},
		{files("Gemfile: ", "Gemfile.lock: PLATFORMS\n  arm64-darwin\n  x86_64-linux\n"), frozen, "Gemfile.lock"},
		{files("Gemfile: ", mac), "", "Gemfile.lock, which has no gems for Linux: not frozen"},
		{files("Gemfile: ruby '3.4.1'", mac), both, "Gemfile.lock, which has no gems for Linux: not frozen; ruby '3.4.1' gives way to 3.3"},
	} {
		if plan, _ := detectRuby(c.src); plan.Install != (Command{c.line + "bundle install", c.from}) {
			t.Errorf("%d: %+v", i, plan.Install)
		}
	}
}

func TestRuby_HasASecretMadeForRails(t *testing.T) {
	rails := files("Gemfile: gem 'rails'", "config/application.rb: ")
	if plan, _ := detectRuby(rails); len(plan.Env) != 1 || plan.Env[0].Name != "SECRET_KEY_BASE" || plan.Env[0].Value != "" {
		t.Errorf("%+v", plan.Env)
	}
	rails["config/master.key"] = &fstest.MapFile{}
	if plan, _ := detectRuby(rails); plan.Env != nil {
		t.Errorf("%+v", plan.Env)
	}
}

func TestRuby_BuildsASiteWithJekyll(t *testing.T) {
	src := files("Gemfile: gem 'jekyll'", "index.html: ")
	if d, plan, _ := Detect(src); d.Name != "ruby" || !plan.Static || plan.Publish.Line != "_site" {
		t.Errorf("%s: %+v", d.Name, plan)
	}
	if d, plan, _ := Detect(files("Gemfile: gem 'github-pages', group: :jekyll_plugins")); d.Name != "ruby" || !plan.Static {
		t.Errorf("%s: %+v", d.Name, plan)
	}
	if d, plan := DetectSite(src); d.Name != "ruby" || plan.Build.Line != "bundle exec jekyll build" {
		t.Errorf("%s: %+v", d.Name, plan)
	}
}

func TestRuby_IsAHelperBesideNode(t *testing.T) {
	src := files("Gemfile: gem 'cocoapods'", `package.json: {"scripts": {"start": "node a.js"}}`)
	if d, _, _ := Detect(src); d.Name != "node" {
		t.Error(d.Name)
	}
}

func TestRuby_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".ruby-version: ruby-3.3.5":                       "3.3 .ruby-version",
		".ruby-version: 3.3.5":                            "3.3 .ruby-version",
		".tool-versions: ruby 3.3":                        "3.3 .tool-versions",
		"Gemfile: ruby '~> 3.2'":                          "3.3 Gemfile",
		`Gemfile: ruby ">= 3.1", "< 4"`:                   "3.3 Gemfile",
		`Gemfile: ruby "3.4.1"`:                           "3.3 Gemfile asks for 3.4.1, which is not offered; 3.3 is the nearest",
		"Gemfile: ruby file: '.ruby-version'":             " ",
		"Gemfile.lock: RUBY VERSION\n   ruby 3.3.5p100\n": "3.3 Gemfile.lock",
		".ruby-version: jruby-9":                          " ",
	} {
		plan, _ := detectRuby(files(file))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
