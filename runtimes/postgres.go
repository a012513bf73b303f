package runtimes

import (
	"fmt"
	"regexp"
	"strconv"
)

var postgres = Definition{
	Name:     "postgres",
	Versions: []string{"17"},
	Default:  "17",
	Aliases:  []string{"postgresql", "pg", "psql", "timescale"},
	Database: &Database{
		Title:     "PostgreSQL",
		Usual:     "db",
		Port:      5432,
		Start:     "postgres-start",
		Ready:     "postgres-ready",
		Dump:      "postgres-dump",
		Load:      "postgres-load",
		Dumped:    "dump",
		Format:    "pg_dump's custom format, without owners and privileges",
		Magic:     "PGDMP",
		HowToDump: "this is not a dump in pg_dump's custom format; make one with: pg_dump -Fc -d DATABASE -f db.dump",
		LoadFault: regexp.MustCompile(`(?m)^pg_restore: error: (.*)$`),
		Signal:    "SIGINT", // the fast shutdown: SIGTERM would wait for the clients
		URL:       "DATABASE_URL",
		Variables: postgresVariables,
		Own:       postgresVariables,
		Drivers: []string{
			"pg", "postgres", "pg-promise", "slonik", "@prisma/adapter-pg", "postgresql", // the last in a schema of Prisma
			"psycopg", "psycopg2", "psycopg2-binary", "asyncpg", "pg8000",
			"github.com/lib/pq", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v4", "gorm.io/driver/postgres",
			"org.postgresql", "tokio-postgres", "ext-pdo_pgsql", "ext-pgsql",
		},
	},
}

// postgresVariables returns what libpq, and libraries that follow it, read. The role and its
// database have one name in every stack.
func postgresVariables(l Login) map[string]string {
	const app = "app"
	return map[string]string{
		"DATABASE_URL": fmt.Sprintf("postgresql://%s:%s@%s:%d/%s", app, l.Password, l.Host, l.Port, app),
		"PGHOST":       l.Host,
		"PGPORT":       strconv.Itoa(l.Port),
		"PGUSER":       app,
		"PGPASSWORD":   l.Password,
		"PGDATABASE":   app,
	}
}
