package runtimes

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestPHP_InstallsAndServes(t *testing.T) {
	const install = "composer install --no-dev --optimize-autoloader --no-progress"
	for i, c := range []struct {
		src            fstest.MapFS
		install, start string
	}{
		{files("index.php: "), "", "php-server ."},
		{files("composer.json: {}", "index.php: "), install, "php-server ."},
		{files("composer.json: {}", "composer.lock: {}", "index.php: ", "public/index.php: "), install, "php-server public"},
		{files("composer.json: {}", "web/index.php: "), install, "php-server web"},
		{files("composer.json: {}", "artisan: ", "public/index.php: "), install, "php-server public"},
		{files("composer.json: {}", "artisan: ", "public/index.php: ", "database/migrations/1.php: "), install, "php artisan migrate --force && php-server public"},
		{files("composer.json: {}", "src/x.php: "), install, ""},
	} {
		plan, ok := detectPHP(c.src)
		if !ok || plan.Install.Line != c.install || plan.Start.Line != c.start || c.start == "" && plan.Hint == "" {
			t.Errorf("%d: %+v", i, plan)
		}
	}
}

func TestPHP_RunsSymfonyForProduction(t *testing.T) {
	const symfony = `composer.json: {"require": {"php": ">=8.2", "symfony/framework-bundle": "7.4.*"}}`
	src := files(symfony, "public/index.php: ", "importmap.php: ", ".env: APP_ENV=dev\nAPP_SECRET=\n")
	plan, _ := detectPHP(src)
	if plan.Install.Line != "{ test -e .env || : > .env; } && composer install --no-dev --optimize-autoloader --no-progress" ||
		plan.Build.Line != "php bin/console asset-map:compile" || plan.Start.Line != "php-server public" {
		t.Errorf("%+v", plan)
	}
	want := []Variable{{Name: "APP_ENV", Value: "prod", From: "Symfony"}, {Name: "APP_SECRET", From: "Symfony"}}
	if !slices.Equal(plan.Env, want) {
		t.Errorf("%+v", plan.Env)
	}
	src[".env"].Data = []byte("APP_SECRET=3f2a")
	if plan, _ := detectPHP(src); !slices.Equal(plan.Env, want[:1]) {
		t.Errorf("%+v", plan.Env)
	}
}

func TestPHP_HasAKeyMadeForLaravel(t *testing.T) {
	src := files("composer.json: {}", "artisan: ", "public/index.php: ", ".env: APP_KEY=\nAPP_DEBUG=true\n")
	if plan, _ := detectPHP(src); !slices.Equal(plan.Env, []Variable{{Name: "APP_KEY", From: "Laravel"}}) {
		t.Errorf("%+v", plan.Env)
	}
	src[".env"].Data = []byte("APP_KEY=base64:aaaa\n")
	if plan, _ := detectPHP(src); plan.Env != nil {
		t.Errorf("%+v", plan.Env)
	}
}

func TestPHP_TakesAFolderWithItsFrontEnd(t *testing.T) {
	for i, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files("composer.json: {}", "public/index.php: ", `package.json: {"scripts": {"build": "vite build"}, "devDependencies": {"vite": "7"}}`), "php"},
		{files("index.php: ", `package.json: {"scripts": {"start": "node a.js"}}`), "node"},
		{files("index.php: ", "index.html: "), "php"},
		{files("contact.php: ", "index.html: "), "static"},
	} {
		if d, _, _ := Detect(c.src); d == nil || d.Name != c.want {
			t.Errorf("%d: %+v, want %s", i, d, c.want)
		}
	}
}

func TestPHP_ReadsItsVersion(t *testing.T) {
	for file, want := range map[string]string{
		".php-version: 8.4":                                     "8.4 .php-version",
		".tool-versions: php 8.4.1":                             "8.4 .tool-versions",
		`composer.json: {"require": {"php": "^8.2"}}`:           "8.4 composer.json require.php",
		`composer.json: {"require": {"php": "^7.4|^8.0"}}`:      "8.4 composer.json require.php",
		`composer.json: {"require": {"php": ">=8.1 <9"}}`:       "8.4 composer.json require.php",
		`composer.json: {"require": {"php": "~8.1.0"}}`:         "8.4 composer.json require.php asks for ~8.1.0, which is not offered; 8.4 is the nearest",
		`composer.json: {"config": {"platform": {"php": "8"}}}`: "8.4 composer.json config.platform.php",
		`composer.json: {"require": []}`:                        " ",
	} {
		plan, _ := detectPHP(files(file, "index.php: "))
		if got := plan.Version + " " + plan.VersionFrom; got != want {
			t.Errorf("%s: %s, want %s", file, got, want)
		}
	}
}
