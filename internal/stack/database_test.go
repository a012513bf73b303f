package stack

import (
	"maps"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withDatabases returns a stack whose service web uses two PostgreSQL databases and one
// Redis.
func withDatabases() (*Stack, *Environment) {
	specs := []Spec{
		{Name: "web", Runtime: Runtime{"node", "22"}, DependsOn: []string{"db", "old", "cache"}, Env: map[string]Env{
			"OLD": {Value: "${services.old.internal_url}"}, "HOST_OF_DB": {Value: "${services.db.host}"}, "PLAIN": {Value: "x"},
		}},
		{Name: "api", Runtime: Runtime{"node", "22"}},
		{Name: "db", Runtime: Runtime{"postgres", "17"}},
		{Name: "old", Runtime: Runtime{"postgres", "17"}},
		{Name: "cache", Runtime: Runtime{"valkey", "8"}},
	}
	st := New("shop", specs, Now())
	st.MakeSecrets(st.Generation.Services)
	return st, &Environment{Stack: st, Generation: &st.Generation, URLs: URLs{Base: &url.URL{Scheme: "http", Host: "localhost"}, AppsDomain: "localhost"}}
}

func TestEnvironment_GivesDatabasesToThoseThatUseThem(t *testing.T) {
	st, env := withDatabases()
	password := st.Secrets["db/postgres@17"]
	require.Len(t, password, 32)
	web := env.Process(&st.Generation.Services[0].Spec)
	for name, want := range map[string]string{
		"DATABASE_URL": "postgresql://app:" + password + "@db:5432/app", "PGHOST": "db", "PGPASSWORD": password,
		"DB_URL": web["DATABASE_URL"], "DB_DATABASE_URL": web["DATABASE_URL"], "DB_INTERNAL_URL": web["DATABASE_URL"],
		"OLD_DATABASE_URL": "postgresql://app:" + st.Secrets["old/postgres@17"] + "@old:5432/app", "OLD": web["OLD_DATABASE_URL"],
		"REDIS_URL": "redis://default:" + st.Secrets["cache/valkey@8"] + "@cache:6379", "CACHE_REDIS_URL": web["REDIS_URL"],
		"HOST_OF_DB": "db", "API_INTERNAL_URL": "http://api:8080",
	} {
		assert.Equal(t, want, web[name], name)
	}
	for _, spec := range []*Spec{&st.Generation.Services[1].Spec, &st.Generation.Services[4].Spec} {
		for name, value := range env.Process(spec) {
			assert.NotContains(t, value, password, "%s of %s", name, spec.Name)
			assert.NotContains(t, name, "PG")
		}
	}
}

// PUBLIC_URL is a program's own address, whatever its database is called.
func TestEnvironment_KeepsThePublicURLBesideADatabaseOfThatName(t *testing.T) {
	st, env := withDatabases()
	st.Generation.Services[2].Spec.Name, st.Generation.Services[0].Spec.DependsOn = "public", []string{"public"}
	st.MakeSecrets(st.Generation.Services)
	web := env.Process(&st.Generation.Services[0].Spec)
	assert.Equal(t, "http://web-"+st.Hex()+".localhost", web["PUBLIC_URL"])
	assert.Equal(t, "postgresql://app:"+st.Secrets["public/postgres@17"]+"@public:5432/app", web["PUBLIC_DATABASE_URL"])
	assert.Equal(t, web["PUBLIC_DATABASE_URL"], web["PUBLIC_INTERNAL_URL"])
}

// What commands of a build print and leave is kept.
func TestEnvironment_GivesBuildsNothingOfDatabases(t *testing.T) {
	st, env := withDatabases()
	build := env.Build(&st.Generation.Services[0].Spec)
	assert.Equal(t, "x", build["PLAIN"])
	for name, value := range build {
		for _, secret := range st.Secrets {
			assert.NotContains(t, value, secret, name)
		}
		assert.False(t, strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "DB_") || name == "OLD", name)
	}
}

func TestMakeSecrets_KeepsPasswordsUntilTheDatabaseIsAnother(t *testing.T) {
	st, _ := withDatabases()
	before := maps.Clone(st.Secrets)
	st.MakeSecrets(st.Generation.Services)
	assert.Equal(t, before, st.Secrets)
	assert.Equal(t, "postgres@17", st.DatabaseOf("db"))
	assert.Empty(t, st.DatabaseOf("web"))

	st.MakeSecrets(Services([]Spec{{Name: "db", Runtime: Runtime{"valkey", "8"}}}))
	assert.Equal(t, "valkey@8", st.DatabaseOf("db"))
	assert.NotContains(t, st.Secrets, "db/postgres@17")
	assert.Equal(t, before["old/postgres@17"], st.Secrets["old/postgres@17"])
}

func TestDatabaseOf_IsNoneOfADeployThatFailed(t *testing.T) {
	program := Spec{Name: "db", Runtime: Runtime{"node", "22"}, Env: map[string]Env{"KEY": {Generate: true}}}
	st := New("shop", []Spec{program}, Now())
	st.MakeSecrets(st.Generation.Services)
	before := maps.Clone(st.Secrets)
	database := Services([]Spec{{Name: "db", Runtime: Runtime{"postgres", "17"}}})
	st.MakeSecrets(database)
	assert.NotEqual(t, before, st.Secrets)
	assert.Empty(t, st.DatabaseOf("db"))

	_, err := st.DeployFailed("its build failed", Now())
	require.NoError(t, err)
	_, err = st.Deploy(Services([]Spec{program}), Now())
	require.NoError(t, err)
	assert.Equal(t, before, st.Secrets)
}

func TestDeployed_DropsTheLayerOfAProgramThatIsADatabaseNow(t *testing.T) {
	st := New("shop", []Spec{{Name: "db", Runtime: Runtime{"node", "22"}}, {Name: "web", Runtime: Runtime{"node", "22"}}}, Now())
	st.Layers = map[string]Layer{"db": {Image: "of db"}, "web": {Image: "of web"}}
	next := Generation{Services: Services([]Spec{{Name: "db", Runtime: Runtime{"postgres", "17"}}, {Name: "web", Runtime: Runtime{"node", "22"}}})}
	_, err := st.Deployed(next, URLs{Base: &url.URL{}}, Now())
	require.NoError(t, err)
	assert.Equal(t, map[string]Layer{"web": {Image: "of web"}}, st.Layers)
}

func TestConfigure_HasNoVariablesForADatabase(t *testing.T) {
	st, _ := withDatabases()
	value := "x"
	err := st.checkChange(map[string]map[string]*string{"db": {"A": &value}})
	require.EqualError(t, err, "service db: it is PostgreSQL, which has no variables of its own; set them for the services that use it")
}
