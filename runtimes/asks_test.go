package runtimes

import (
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

func TestDatabase_IsFoundByItsOtherName(t *testing.T) {
	d, ok := Lookup("redis")
	if !ok || d.Name != "valkey" || d.Database == nil {
		t.Errorf("redis is %+v", d)
	}
}
