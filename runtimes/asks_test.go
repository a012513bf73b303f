package runtimes

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
)

func TestAsks_WantsADriverAndTheVariable(t *testing.T) {
	for i, c := range []struct {
		src  fstest.MapFS
		want string
	}{
		{files(`package.json: {"dependencies": {"pg": "8"}}`, "src/db.js: process.env.DATABASE_URL"), "postgres pg package.json src/db.js"},
		{files(`package.json: {"dependencies": {"pg": "8"}}`, "README.md: set DATABASE_URL", ".env.example: DATABASE_URL="), ""},
		{files(`package.json: {"dependencies": {"pg": "8"}}`, "node_modules/pg/index.js: DATABASE_URL"), ""},
		{files(`package.json: {"dependencies": {"pgtools": "8"}}`, "db.js: DATABASE_URL"), ""},
		{files("requirements.txt: flask\npsycopg2-binary==2.9", "app.py: os.environ['DATABASE_URL']"), "postgres psycopg2-binary requirements.txt app.py"},
		{files("requirements.txt: hiredis", "app.py: os.environ['REDIS_URL']"), ""},
		{files("requirements.txt: redis>=5", "app.py: os.environ['REDIS_URL']"), "valkey redis requirements.txt app.py"},
		{files("go.mod: require github.com/jackc/pgx/v5 v5.7.1", `main.go: os.Getenv("DATABASE_URL")`), "postgres github.com/jackc/pgx/v5 go.mod main.go"},
		{files(`Gemfile: gem "pg", "~> 1"`, `config/database.yml: ENV["DATABASE_URL"]`), "postgres pg Gemfile config/database.yml"},
		{files("requirements/base.txt: flask\npsycopg[binary]>=3", "app.py: os.environ['DATABASE_URL']"), "postgres psycopg requirements/base.txt app.py"},
		{files("setup.cfg: install_requires =\n  asyncpg\n", "app.py: os.environ['DATABASE_URL']"), "postgres asyncpg setup.cfg app.py"},
		{files("Gemfile: gemspec", "Gemfile.lock: GEM\n  specs:\n    pg (1.5.9)\n", `bin/start: psql $DATABASE_URL`), "postgres pg Gemfile.lock bin/start"},
		{files(`package.json: {"dependencies": {"pg": "8"}}`, ".env.production: DATABASE_URL="), "postgres pg package.json .env.production"},
		{files(`prisma/schema.prisma: datasource db { provider = "postgresql" url = env("DATABASE_URL") }`), "postgres postgresql prisma/schema.prisma prisma/schema.prisma"},
		{files(`prisma/schema.prisma: datasource db { provider = "sqlite" url = env("DATABASE_URL") }`), ""},
	} {
		got := ""
		for _, ask := range Asks(c.src) {
			got += ask.Definition.Name + " " + ask.Driver + " " + ask.DriverFrom + " " + ask.From
		}
		if got != c.want {
			t.Errorf("%d: %q, want %q", i, got, c.want)
		}
	}
}

func TestAsks_LookAtSourceOnly(t *testing.T) {
	src := files(`package.json: {"dependencies": {"pg": "8"}}`, "src/db.js: process.env.DATABASE_URL")
	for i := range 2 * askFiles {
		for _, kind := range []string{"png", "svg", "woff2", "md"} {
			src[fmt.Sprintf("assets/%d.%s", i, kind)] = &fstest.MapFile{Data: []byte("DATABASE_URL")}
		}
	}
	if asks := Asks(src); len(asks) != 1 || asks[0].From != "src/db.js" {
		t.Errorf("%+v", asks)
	}
}

// unreadable is a source one of whose folders or files cannot be opened.
type unreadable struct {
	all  fstest.MapFS
	name string
}

func (u unreadable) Open(name string) (fs.File, error) {
	if name == u.name {
		return nil, fs.ErrPermission
	}
	return u.all.Open(name)
}

func (u unreadable) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == u.name {
		return nil, fs.ErrPermission
	}
	return u.all.ReadDir(name)
}

func TestAsks_PassOverWhatCannotBeRead(t *testing.T) {
	src := files(`package.json: {"dependencies": {"pg": "8"}}`, "src/a/b.js: x", "src/b.js: x", "src/db.js: process.env.DATABASE_URL")
	for _, name := range []string{"src/a", "src/b.js"} {
		if asks := Asks(unreadable{src, name}); len(asks) != 1 || asks[0].From != "src/db.js" {
			t.Errorf("%s: %+v", name, asks)
		}
	}
}

func TestDatabase_IsFoundByItsOtherName(t *testing.T) {
	d, ok := Lookup("redis")
	if !ok || d.Name != "valkey" || d.Database == nil {
		t.Errorf("redis is %+v", d)
	}
}
