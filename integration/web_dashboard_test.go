package integration

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/domain/dnstest"
)

func stackPath(st *Stack) string { return "/dashboard/stacks/" + st.ID }

// deployAs deploys a tree for the account of a key.
func (h *Host) deployAs(t *testing.T, key string, tree Tree, fields Fields) *Stack {
	t.Helper()
	r := h.post(t, archive(t, tree), fields, "", "Authorization", "Bearer "+key)
	require.Equal(t, http.StatusCreated, r.status, r.body)
	return h.settled(t, r.stack(t))
}

func TestWeb_TheDashboardListsStacksNewestFirst(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	key := b.signUp(ana)
	b.open("/dashboard")
	b.sees("No stacks yet", "tar -cz . | curl")
	b.look("dashboard-empty")

	first := h.deployAs(t, key, guestbook(t), manifest(guestbookManifest))
	broken := h.deployAs(t, key, Tree{"server.js": "throw new Error('the reason')"}, manifest(`{name: broken, services: [{name: web, runtime: node, start: node server.js}]}`))
	require.Equal(t, "failed", broken.Status)
	other := h.browser(t)
	other.signUp(bob)
	other.open(stackPath(first))
	other.is(http.StatusNotFound, stackPath(first))
	other.open(stackPath(first) + "/delete")
	require.EqualValues(t, http.StatusNotFound, other.status)
	other.look("not-found")

	b.sees("broken", "guestbook") // without a reload
	b.sees("Generation 1", "deployed", first.URLs["web"], first.URLs["api"], "the reason", "This stack has failed")
	text := b.text()
	require.Less(t, strings.Index(text, "broken"), strings.Index(text, "guestbook"))
	require.Contains(t, text, strings.TrimSpace(broken.reason()), "the error is there in full")
	b.look("dashboard")
	b.press("guestbook")
	b.is(http.StatusOK, stackPath(first))
}

func TestWeb_AStacksPageTellsEventsAndLogsAsTheyCome(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	key := b.signUp(ana)
	st := h.deployAs(t, key, guestbook(t), manifest(guestbookManifest))
	b.open(stackPath(st) + "?service=api&kind=run")
	b.sees("guestbook", "Created with an API key", "api is ready", "Generation 1 is live", "stack.live", st.ID)
	require.Equal(t, http.StatusOK, h.get(t, st.url("api", "/log?from=0&to=300")).status)
	b.sees("line 0\n", "line 299")
	b.look("stack")

	failed := h.redeploy(t, st, Tree{"server.js": "console.log('\x1b[31mred\x1b[0m'); process.exit(3)", "site/index.html": "x"}, manifest(guestbookManifest))
	require.NotEmpty(t, failed.deployError())
	b.sees("The last deploy failed. Generation 1 keeps serving.", "exited with code 3",
		"Generation 2 failed; generation 1 keeps serving", "stack.deploy_failed", "\nred\n")
	b.seesNot(`\x1b`, "[31m", "[0m")
	b.look("stack-deploy-failed")

	b.press("api build")
	b.is(http.StatusOK, stackPath(st))
	require.Contains(t, b.where(), "kind=build")
	h.begin(t, st, guestbook(t), manifest(strings.Replace(guestbookManifest, "runtime: node,", "runtime: node, build: 'echo building now; sleep 1; echo still building',", 1)))
	b.sees("== build api (node) gen 2", "building now", "still building")
	h.deployed(t, st)
	b.sees("Generation 2 is live")
	b.seesNot("The last deploy failed.")
}

func TestWeb_ALogIsSearchedReadBackwardsAndDownloaded(t *testing.T) {
	t.Parallel()
	h := start(t, easy, with("BERTH_LOG_MAX", "30KB"))
	b, plain := h.browser(t), h.browser(t).withoutScripts()
	key := b.signUp(ana)
	plain.signIn(ana, password)
	st := h.deployAs(t, key, program(t), manifest(programManifest))
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/log?from=0&to=1000")).status)
	// What a program writes comes into the log a little later.
	eventually(t, "the last line is logged", func() error {
		if last := h.logs(t, st, "service=web&kind=run&tail=1"); !strings.HasSuffix(last, "line 999\n") {
			return fmt.Errorf("the last is %q", last)
		}
		return nil
	})
	b.open(stackPath(st))
	b.sees("line 999\n")
	b.press("Older lines")
	b.press("Older lines")
	b.press("Older lines")
	b.sees("New ones are added to the newest lines only.", "line 200\n", "line 399\n")
	require.True(t, slices.ContainsFunc(h.files(t), func(path string) bool { return strings.HasSuffix(path, ".run.log.1") }))
	b.seesNot("line 400\n")
	b.look("logs-earlier")

	for _, b := range []*Tab{plain, b} {
		b.open(stackPath(st))
		b.fill("log-q", "LINE 99")
		b.press("Search")
		b.sees("line 99\nline 990\n", "line 999\n")
		b.seesNot("line 989\n")
	}
	b.look("logs-search")
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/log?from=9900&to=9902")).status)
	b.sees("line 9900\nline 9901\n") // without a reload
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/log?from=100&to=103")).status)
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/log?from=9902&to=9903")).status)
	b.sees("line 9901\nline 9902\n")
	require.Equal(t, "14", b.script(`String(document.querySelectorAll('#log mark').length)`))

	b.fill("log-q", "<b>nothing</b>")
	b.press("Search")
	b.sees("No line that is kept of this log contains “<b>nothing</b>”.")
	b.look("logs-nothing-found")
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/log?from=0&to=1")).status)
	b.press("Clear the search")
	b.sees("line 9902\nline 0\n")

	whole := b.script(`fetch(document.querySelector('a[href*="log.txt"]').href).then((r) => r.text())`)
	require.Contains(t, whole, lines(0, 1000)+"line 9900\n")
}

func TestWeb_RestartsAService(t *testing.T) {
	t.Parallel()
	for name, scripts := range map[string]bool{"with scripts": true, "without scripts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t, easy)
			b := h.browser(t)
			if !scripts {
				b.withoutScripts()
			}
			key := b.signUp(ana)
			st := h.deployAs(t, key, guestbook(t), manifest(guestbookManifest))
			before := h.get(t, st.url("api", "/pid")).body
			b.open(stackPath(st))
			b.press("Restart api")
			b.is(http.StatusOK, stackPath(st))
			b.sees("The service api is being restarted.")
			eventually(t, "it is restarted", func() error {
				if n := count(h.events(t, st), "service.restarted"); n != 1 {
					return fmt.Errorf("there are %d restarts", n)
				}
				return nil
			})
			require.Equal(t, true, last(t, h.events(t, st), "service.restarted").Data["requested"])
			require.NotEqual(t, before, h.get(t, st.url("api", "/pid")).body)
			if !scripts {
				b.open(stackPath(st))
			}
			b.sees("api was restarted on request")
			b.seesNot("Restart web")
		})
	}
}

func TestWeb_RevokesTheAgentsAccessAndDeletes(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	key := b.signUp(ana)
	kept := h.deployAs(t, key, page("x"), Fields{"name": "kept"})
	st := h.deployAs(t, key, guestbook(t), manifest(guestbookManifest))
	b.open(stackPath(st))
	b.unfold("Revoke access…")
	b.press("Revoke access")
	b.is(http.StatusOK, stackPath(st))
	b.sees("The agent's access was revoked.", "The stack can be managed only with this account's API key.", "stack.agent_revoked")
	b.look("stack-revoked")
	h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).refused(t, http.StatusForbidden)
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/stacks/"+st.ID).status)

	watching := h.browser(t)
	watching.signIn(ana, password)
	watching.open(stackPath(st))
	b.press("Delete guestbook…")
	b.is(http.StatusOK, stackPath(st)+"/delete")
	b.sees("Delete guestbook?", st.URLs["web"], "This cannot be undone.")
	b.look("delete")
	b.press("Cancel")
	b.is(http.StatusOK, stackPath(st))
	require.Equal(t, http.StatusOK, h.getAs(t, key, "/v0/stacks/"+st.ID).status)
	b.press("Delete guestbook…")
	b.press("Delete guestbook")
	b.is(http.StatusOK, "/dashboard")
	b.sees("The stack guestbook was deleted.", "kept")
	b.seesNot(st.URLs["web"])
	h.getAs(t, key, "/v0/stacks/"+st.ID).refused(t, http.StatusNotFound)
	h.forgetStack(st.ID)
	eventually(t, "the page that shows it leads to the list", func() error {
		if at := watching.path(); at != "/dashboard" {
			return fmt.Errorf("it is at %s", at)
		}
		return nil
	})
	watching.sees(kept.Name)
}

// The keyboard alone is enough, and shows where it is.
func TestWeb_CanBeUsedWithTheKeyboard(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	b.open("/signup")
	b.keys("\t\r") // the link that skips the menu
	require.Contains(t, b.where(), "#main")
	b.keys("\t" + ana + "\t" + password + "\t")
	require.Equal(t, "Create account", b.focused())
	require.True(t, b.focusShows())
	b.keys("\r")
	b.sees("Your API key")
	b.is(http.StatusOK, "/dashboard")
}

func TestWeb_TheOwnerSeesDeliveriesAndSendsThemAgain(t *testing.T) {
	t.Parallel()
	h, hook := start(t, easy, reachesLoopback), newHook(t)
	hook.answers(func(d delivered) int {
		if ofType("service.ready")(d) {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	b := h.browser(t)
	st := h.deployAs(t, b.signUp(ana), page("x"), hook.manifest())
	live := hook.awaitType(t, "stack.live")
	b.open(stackPath(st))
	b.sees("Events are sent to "+hook.url, "delivery "+live.id(), "200", "the receiver answered 400")
	b.look("deliveries")

	b.press("Resend stack.live " + live.id())
	b.sees("Delivery " + live.id() + " was sent again; the receiver answered 200.")
	again := hook.await(t, 2, ofType("stack.live"))
	require.Equal(t, again[0].id(), again[1].id())
	require.Equal(t, again[0].body, again[1].body)
	requireSigned(t, st, again[1])

	hook.answers(func(delivered) int { return http.StatusInternalServerError })
	b.press("Send test event")
	b.sees("A test event was sent; the receiver answered 500.", "webhook.test")
	requireSigned(t, st, hook.awaitType(t, "webhook.test"))
	require.Zero(t, count(h.events(t, st), "webhook.test"))
}

func TestWeb_DataGoesOutAndIn(t *testing.T) {
	t.Parallel()
	h := start(t, easy)
	b := h.browser(t)
	key := b.signUp(ana)
	st := h.deployAs(t, key, pathsTree(t), manifest(pathsManifest))
	b.open(stackPath(st))
	b.sees("/api", "leads to api, without /api", "/api/whole")
	b.look("stack-paths")
	b.press("Download or replace")
	b.is(http.StatusOK, stackPath(st)+"/data")
	b.sees("api", "Replace all files")
	b.look("data")
	archive := filepath.Join(t.TempDir(), "data.tar.gz")
	require.NoError(t, os.WriteFile(archive, dataArchive(t, file("kept", "from the page"), file("large", strings.Repeat("0123456789abcdef", 1<<16))), 0o600))
	b.do(chromedp.SetUploadFiles("#file-api", []string{archive}))
	b.press("Replace the data of api")
	b.is(http.StatusOK, stackPath(st))
	b.sees("The service api has the new data.")
	require.Equal(t, "from the page", h.get(t, st.url("api", "/read?name=kept")).body)
}

func TestWeb_AStackWithDatabasesItsDomainsVariablesAndSource(t *testing.T) {
	t.Parallel()
	resolver := dnstest.Start(t)
	resolver.Set(t, "localhost", "A 127.0.0.1")
	h := start(t, easy, soonChecked, with("BERTH_DNS", resolver.Addr))
	b := h.browser(t)
	key := b.signUp(ana)
	const three = "services: [{name: web, runtime: node, start: node server.js, env: {COLOR: blue}}, {name: db, runtime: postgres}, {name: cache, runtime: redis}]"
	st := h.deployAs(t, key, program(t), manifest(three))
	b.open(stackPath(st))
	b.sees("PostgreSQL at db:5432, for the services of this stack", "Redis at cache:6379")
	b.look("stack-databases")
	b.open(stackPath(st) + "/data")
	b.sees("Replace the whole database")
	b.look("data-databases")

	b.open(stackPath(st) + "/domains")
	b.fill("host", "localhost")
	b.press("Add domain")
	b.is(http.StatusUnprocessableEntity, stackPath(st)+"/domains")
	b.look("domains-refused")
	b.fill("host", "www.example.com")
	b.press("Add domain")
	b.sees("www.example.com", "pending", "_berth.www.example.com")
	b.look("domains-pending")
	proof := h.domainOf(t, key, st, http.MethodGet, "/www.example.com", "").json(t)["records"].([]any)
	resolver.Set(t, "_berth.www.example.com", "TXT "+proof[len(proof)-1].(map[string]any)["value"].(string))
	resolver.Set(t, "www.example.com", "A 127.0.0.1")
	h.awaitDomain(t, key, st, "www.example.com", "active")
	b.open(stackPath(st) + "/domains")
	b.press("Use as primary www.example.com")
	b.sees("primary")
	b.look("domains-active")

	b.open(stackPath(st) + "/env")
	b.sees("COLOR")
	b.look("variables")
	b.fill("name", "not a name")
	b.press("Set variable")
	b.is(http.StatusUnprocessableEntity, stackPath(st)+"/env")
	b.look("variables-refused")

	b.open(stackPath(st) + "/source")
	b.look("source")
	b.press("server.js")
	b.is(http.StatusOK, stackPath(st)+"/source/server.js")

	_, err := h.berthd(t, "", "stacks", "stop", st.ID, "--reason", "it mines coins")
	require.NoError(t, err)
	b.open(stackPath(st) + "/data")
	b.sees("The stack has failed. The next deploy begins with the new data.")
	b.look("data-failed")
}
