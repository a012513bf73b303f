package server_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/account"
	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// A server of commit 9dbc8bd left the files in testdata/earlier: its key, its database,
// and the manifest of the unclaimed stack. These are the secrets that it issued and the
// password that was set.
const (
	earlierPassword   = "correct horse battery staple"
	earlierSession    = "ses_Y4z5FGI1dsZgT4G27YZ4Vrb1Gt4ocjZm"
	earlierKey        = "as_live_sNa7evoCJTAx8HIGjOiZAmMCHaKfQ3OZ"
	earlierToken      = "ast_anon_fsvd5tGQd2ZvKrD3qmrZhciUx0WcxzkL"
	earlierCode       = "CLM-4JZF-C2EX-PN4T"
	earlierSigning    = "whsec_AtNreAmgvt0YpvH1rqXrxtEZVv23HG20"
	earlierSessionKey = "AETUBUN5TK4U6R3OAI44RI7AKM4IG56G"

	earlierUnclaimed = "stk_e48d4c9477f1"
	earlierClaimed   = "stk_d92911442059"
)

// openEarlier opens a copy of the earlier database with the earlier key.
func openEarlier(t *testing.T) (*store.Store, auth.Key) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"key", "berth.db"} {
		data, err := os.ReadFile(filepath.Join("testdata/earlier", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	path := filepath.Join(dir, "berth.db")
	lengthenSessions(t, path)
	key, err := auth.LoadKey(filepath.Join(dir, "key"))
	require.NoError(t, err)
	s, err := store.Open(t.Context(), store.Options{Path: path, Sealer: auth.NewSealer(key), Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, key
}

// lengthenSessions extends the sessions, which were made for thirty days, so that they
// are valid whenever this test runs.
func lengthenSessions(t *testing.T, path string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "UPDATE sessions SET expires_at = expires_at + ?", int64(100*365*24)*3600e6)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

// unlimited is an account.Limiter that admits everyone.
type unlimited struct{}

func (unlimited) Allow(context.Context, string) bool          { return true }
func (unlimited) Take(context.Context, string) (func(), bool) { return func() {}, true }

func TestEarlierDatabase_LetsItsPeopleIn(t *testing.T) {
	s, key := openEarlier(t)
	accounts := account.New(account.Config{
		Store: s, Passwords: auth.NewPasswords(1), Forms: unlimited{}, Codes: unlimited{},
		Claims: account.Claims{Stacks: s, Key: key},
	})
	visitor := account.Visitor{IP: "127.0.0.1", UserAgent: "test"}

	entry, err := accounts.SignIn(t.Context(), visitor, "ana@example.com", earlierPassword)
	require.NoError(t, err)
	_, err = accounts.SignIn(t.Context(), visitor, "ana@example.com", earlierPassword+"r")
	require.Error(t, err)

	session, ok, err := accounts.Session(t.Context(), earlierSession)
	require.NoError(t, err)
	require.True(t, ok, "the session is not accepted")
	require.Equal(t, entry.Account.ID, session.Account.ID)

	owner, ok, err := s.AccountByKey(t.Context(), auth.Hash(earlierKey))
	require.NoError(t, err)
	require.True(t, ok, "the API key is not known")
	require.Equal(t, entry.Account.ID, owner.ID)
	owned, err := accounts.Stacks(t.Context(), owner.ID)
	require.NoError(t, err)
	require.Len(t, owned, 1)
	require.Equal(t, earlierClaimed, owned[0].ID)

	id, ok, err := s.FindManageToken(t.Context(), auth.Hash(earlierToken))
	require.NoError(t, err)
	require.True(t, ok, "the manage token is not known")
	require.Equal(t, earlierUnclaimed, id)
	code, err := accounts.LookUp(t.Context(), visitor, owner, earlierCode)
	require.NoError(t, err)
	require.Equal(t, earlierUnclaimed, code.Stack.ID)
}

func TestEarlierDatabase_HoldsWhatItsManifestSays(t *testing.T) {
	s, _ := openEarlier(t)
	text, err := os.ReadFile("testdata/earlier/stack.yaml")
	require.NoError(t, err)
	source := fstest.MapFS{
		"stack.yaml": {Data: text}, "web/server.js": {}, "api/main.py": {}, "site/public/index.html": {},
	}
	said, err := manifest.Resolve(source, "", manifest.Request{})
	require.NoError(t, err)

	k, err := s.Get(t.Context(), earlierUnclaimed)
	require.NoError(t, err)
	var specs []stack.Spec
	for _, service := range k.Generation.Services {
		require.Equal(t, stack.Running, service.Status)
		specs = append(specs, service.Spec)
	}
	require.Empty(t, cmp.Diff(said.Services, specs, cmpopts.EquateEmpty()))
	require.Equal(t, said.Name, k.Name)
	require.Equal(t, said.ClaimEmail, k.ClaimEmail)
	require.Equal(t, said.Webhook, k.Webhook)
	require.Equal(t, said.TTL, k.ExpiresAt.Sub(k.CreatedAt))
	require.Equal(t, 1, k.Generation.Services[2].SiteFiles)
	require.Len(t, k.Generation.Services[0].Fingerprint, 64)
}

func TestEarlierDatabase_OpensWhatItSealed(t *testing.T) {
	s, _ := openEarlier(t)
	k, err := s.Get(t.Context(), earlierUnclaimed)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"web/SESSION_KEY": earlierSessionKey}, k.Secrets)
	require.Equal(t, map[string]stack.Env{"TOKEN": {Value: "s3cret-of-the-api"}}, k.Generation.Services[1].Spec.Env)
	require.Equal(t, stack.Env{Value: "Grüße, 世界"}, k.Generation.Services[0].Spec.Env["GREETING"])

	hook, ok, err := s.Webhook(t.Context(), earlierUnclaimed)
	require.NoError(t, err)
	require.True(t, ok, "the webhook is gone")
	require.Equal(t, store.Webhook{URL: "https://hooks.example.com/berth?of=guestbook", Secret: earlierSigning}, hook)
}

func TestEarlierDatabase_TellsHowADeployFailed(t *testing.T) {
	s, _ := openEarlier(t)
	k, err := s.Get(t.Context(), earlierClaimed)
	require.NoError(t, err)
	require.Equal(t, stack.Live, k.Status)
	require.Equal(t, []string{"shop"}, k.Attempted)
	require.Equal(t, `service shop: build failed: "exit 3" exited with code 3; it wrote nothing`, k.DeployError)
	require.Zero(t, k.ExpiresAt)
}
