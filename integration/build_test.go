package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/require"
)

// reader is a service that answers with the file at the requested path.
var reader = Tree{"index.js": `require("http").createServer((req, res) => {
  try { res.end(require("fs").readFileSync(req.url)); } catch (err) { res.writeHead(404).end(err.code); }
}).listen(process.env.PORT)`}

// builds returns a manifest with a build command for the service web.
func builds(command string) Fields {
	return manifest(fmt.Sprintf("services: [{name: web, runtime: node, start: node index.js, build: %q}]", command))
}

// installs returns a manifest with an install command.
func installs(command string) Fields {
	return manifest(fmt.Sprintf("services: [{name: web, runtime: node, start: node index.js, install: %q}]", command))
}

// identity holds the rights of a process as the kernel reports them.
type identity struct{ uid, gid, capabilities, noNewPrivileges string }

func identityOf(status string) identity {
	field := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + `:\s*(.*)$`).FindStringSubmatch(status)
		if m == nil {
			return ""
		}
		return strings.Join(strings.Fields(m[1]), " ")
	}
	capabilities := map[string]bool{}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		capabilities[strings.TrimLeft(field(set), "0")] = true
	}
	all := "none"
	if len(capabilities) > 1 || !capabilities[""] {
		all = fmt.Sprint(capabilities)
	}
	return identity{field("Uid"), field("Gid"), all, field("NoNewPrivs")}
}

func TestBuild_AndProcessHaveNoRights(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, reader, builds("cat /proc/self/status; touch /usr/bin/mine || touch /etc/mine || touch mine"))
	built := identityOf(h.logs(t, st, "kind=build&tail=1000"))
	require.Equal(t, "none", built.capabilities)
	require.Equal(t, "1", built.noNewPrivileges)
	require.NotRegexp(t, `(^| )0( |$)`, built.uid+" "+built.gid)
	require.Equal(t, built, identityOf(h.get(t, st.url("web", "/proc/self/status")).body))
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/usr/bin/mine")).status)
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/etc/mine")).status)
	require.Equal(t, http.StatusOK, h.get(t, st.url("web", "/app/mine")).status)

	other := h.live(t, reader, nil)
	require.NotEqual(t, built.uid, identityOf(h.get(t, other.url("web", "/proc/self/status")).body).uid, "two stacks have one user")
}

// What a build leaves in its cache or home is found by the next build of the service, and
// not by any other build.
func TestBuild_SharesNoCache(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_BUILD_CACHE_MAX", "5MB"))
	const look = "find /cache -name mine; touch /cache/mine && mkdir node_modules && echo kept"
	service := func(name string) string {
		return fmt.Sprintf("{name: %s, runtime: node, start: node index.js, install: %q, build: %q}", name, look, fillsCaches)
	}
	fields := manifest("services: [" + service("web") + ", " + service("api") + "]")
	st := h.live(t, reader, fields)
	other := h.live(t, reader, manifest("services: ["+service("web")+"]"))
	for _, log := range []string{h.logs(t, st, "kind=build&service=web"), h.logs(t, st, "kind=build&service=api"), h.logs(t, other, "kind=build")} {
		require.Contains(t, log, "\nkept\n")
		require.NotContains(t, log, "\n/cache/mine\n")
		require.Empty(t, foundCaches(log))
	}
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/cache/mine")).status, "the service sees the cache of its build")
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/app/node_modules/.cache/large")).status)
	h.keepsCachesLastUsed(t, st, fields)
}

// fillsCaches is a build command that says which caches it finds: one that is filled by
// the first build alone, and one that grows by 2 MiB with each build.
const fillsCaches = "ls $NPM_CONFIG_CACHE/large node_modules/.cache/large; mkdir -p $NPM_CONFIG_CACHE node_modules/.cache; " +
	"[ -f $NPM_CONFIG_CACHE/large ] || head -c 2M /dev/zero >$NPM_CONFIG_CACHE/large; head -c 2M /dev/zero >>node_modules/.cache/large"

// foundCaches returns the caches that the last build of a log has found.
func foundCaches(log string) []string {
	last := log[max(0, strings.LastIndex(log, "== build web ")):]
	return regexp.MustCompile(`(?m)^(?:/cache/npm|node_modules/.cache)/large$`).FindAllString(last, -1)
}

// keepsCachesLastUsed shows that the third build does not find the cache that the second
// did not use, as both of them are too much then.
func (h *Host) keepsCachesLastUsed(t *testing.T, st *Stack, fields Fields) {
	t.Helper()
	found := func(generation string) []string {
		h.redeploy(t, st, reader.plus(Tree{"generation": generation}), fields)
		return foundCaches(h.logs(t, st, "kind=build&service=web&tail=1000"))
	}
	require.Equal(t, []string{"/cache/npm/large", "node_modules/.cache/large"}, found("2"))
	eventually(t, "the caches are trimmed", func() error {
		if _, err := os.Stat(filepath.Join(h.dir, "stacks", st.hex(), "web.filled")); !errors.Is(err, os.ErrNotExist) {
			return errors.New("they are marked as filled")
		}
		return nil
	})
	require.Equal(t, []string{"node_modules/.cache/large"}, found("3"))
}

// trusted lists whom Java trusts.
const trusted = `
import java.security.KeyStore;
import javax.net.ssl.*;

class Trusted {
    public static void main(String[] args) throws Exception {
        var factory = TrustManagerFactory.getInstance("PKIX");
        factory.init((KeyStore) null);
        for (var issuer : ((X509TrustManager) factory.getTrustManagers()[0]).getAcceptedIssuers())
            System.out.println("trusts " + issuer.getSubjectX500Principal());
    }
}
`

// Java takes no bundle of certificates in PEM.
func TestBuild_JavaTrustsTheOperatorsCertificates(t *testing.T) {
	t.Parallel()
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	cert := newCertificate(t, "packages.example").cert
	require.NoError(t, os.WriteFile(bundle, slices.Concat([]byte("# ours\n"), cert, newCertificate(t).cert), 0o600))
	h := start(t, with("BERTH_BUILD_CA_FILE", bundle))
	st := h.live(t, folder(t, "testdata/java").plus(Tree{"Trusted.java": trusted}),
		manifest("services: [{name: web, runtime: java, build: 'javac -d target/classes src/*.java src/*/*.java && java Trusted.java'}]"))
	require.Equal(t, 2, strings.Count(h.logs(t, st, "kind=build&tail=1000"), "trusts CN=berth test\n"))
}

func TestBuild_LogOpensWithThePlan(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, reader, builds("echo built"))
	require.Equal(t, `### web (build)
plan web
  runtime       node@22        # manifest; version: default
  root          .
  install       none
  build         echo built     # manifest
  start         node index.js  # manifest
  port          $PORT          # chosen by the host
  strategy      overlap
  stop_timeout  10s
== attempt 1
== build web (node) gen 1
$ echo built
built
== build ok
`, h.logs(t, st, "kind=build"))
}

// broken deploys a tree that must fail.
func (h *Host) broken(t *testing.T, tree Tree, fields Fields) *Stack {
	t.Helper()
	return h.mustFail(t, h.create(t, tree, fields))
}

// mustFail waits for a stack that must fail.
func (h *Host) mustFail(t *testing.T, st *Stack) *Stack {
	t.Helper()
	st = h.settled(t, st)
	require.Equal(t, "failed", st.Status, h.logs(t, st, "kind=run"))
	events := types(h.events(t, st))
	require.Equal(t, "stack.failed", events[len(events)-1])
	for name := range st.URLs {
		require.Equal(t, http.StatusServiceUnavailable, h.get(t, st.url(name, "/")).status)
	}
	return st
}

// leavesNothingRunning waits until failed stacks have nothing but their logs, data and
// layers.
func (h *Host) leavesNothingRunning(t *testing.T) {
	t.Helper()
	eventually(t, "nothing of failed stacks is left but images in their rows", func() error {
		if left := h.objects(t); left.containers > 0 {
			return fmt.Errorf("%+v", left)
		}
		return h.asTheRowsSay(t.Context())
	})
}

func TestBuild_FailureTellsTheCommandAndTheEndOfItsOutput(t *testing.T) {
	t.Parallel()
	h := start(t)
	cases := map[string]struct {
		tree   Tree
		fields Fields
		reason string
	}{
		"install":    {reader, installs("echo too bad >&2; exit 3"), "service web: install failed: \"echo too bad >&2; exit 3\" exited with code 3; the end of its output:\ntoo bad"},
		"silent":     {reader, builds("exit 1"), "service web: build failed: \"exit 1\" exited with code 1; it wrote nothing"},
		"no command": {reader, builds("tscc"), "tscc: not found"},
		"killed":     {reader, builds("kill -9 $$"), "exited with code 137"},
		"npm":        {Tree{"package.json": `{"dependencies": {"express": "999"}}`, "index.js": ""}, nil, "No matching version found for express@999"},
		"go":         {Tree{"go.mod": "module m\n\ngo 1.26\n", "main.go": "package main\n\nfunc main() { nothing() }\n"}, nil, "main.go:3:15: undefined: nothing"},
		"nothing published": {
			Tree{"package.json": `{"scripts": {"build": "mkdir dist"}, "devDependencies": {"vite": "*"}}`},
			manifest("services: [{name: web, runtime: static, install: \"\"}]"),
			"dist",
		},
	}
	stacks := map[string]*Stack{}
	for name, c := range cases {
		stacks[name] = h.create(t, c.tree, c.fields)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			st := h.mustFail(t, stacks[name])
			require.Contains(t, st.reason(), c.reason)
			log := h.logs(t, st, "kind=build")
			require.Contains(t, log, "\n== build failed: service web: ")
			require.NotContains(t, log, "== build ok")
		})
	}
	h.leavesNothingRunning(t)
}

// One service's failure ends the others' builds.
func TestBuild_FailureStopsTheOtherServices(t *testing.T) {
	t.Parallel()
	h := start(t)
	begun := time.Now()
	st := h.broken(t, reader, manifest(`services: [
		{name: web, runtime: node, start: node index.js, build: sleep 500},
		{name: api, runtime: node, start: node index.js, build: exit 4}]`))
	require.Less(t, time.Since(begun), 4*time.Minute)
	require.Contains(t, st.reason(), "service api: build failed")
	require.Contains(t, h.logs(t, st, "kind=build&service=web"), "== build failed: stopped")
	h.leavesNothingRunning(t)
}

func TestBuild_CommandThatRunsTooLongIsKilled(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_BUILD_TIMEOUT", "19s"))
	begun := time.Now()
	st := h.create(t, reader, builds("echo begun; sleep 500"))
	twice := h.create(t, reader, manifest("services: [{name: web, runtime: node, start: node index.js, install: sleep 10, build: sleep 10}]"))
	st = h.mustFail(t, st)
	require.Less(t, time.Since(begun), 4*time.Minute)
	require.Contains(t, st.reason(), `service web: build ran longer than 19s and was killed: echo begun; sleep 500; the end of its output:`+"\nbegun")
	require.Contains(t, h.logs(t, st, "kind=build"), "== build failed: service web: build ran longer than 19s")
	// The limit is each command's own.
	h.mustLive(t, twice)
}

// A background child that keeps the output open neither delays the build nor gets into
// the service.
func TestBuild_EndsWithItsCommand(t *testing.T) {
	t.Parallel()
	h := start(t)
	begun := time.Now()
	st := h.live(t, reader, builds("sleep 500 & echo mine"))
	require.Less(t, time.Since(begun), 4*time.Minute)
	require.Contains(t, h.logs(t, st, "kind=build"), "\nmine\n== build ok\n")
}

// seize takes over a command that the host runs in its container, by an expression that
// its command line matches.
const seize = `
const fs = require('fs');
const [, , line, how] = process.argv;
fs.writeFileSync('seizes', '');
for (;;) for (const pid of fs.readdirSync('/proc')) try {
  if (!new RegExp(line).test(fs.readFileSync('/proc/' + pid + '/cmdline', 'latin1'))) continue;
  if (how == 'stop') { process.kill(+pid, 'SIGSTOP'); process.exit(); }
  else for (const out = fs.openSync('/proc/' + pid + '/fd/1', 'w');;) fs.writeSync(out, 'x'.repeat(4096));
} catch {}`

// A process that the commands leave running has the same user as the one that publishes
// the site. It can spoil the publishing, but can neither keep a build slot for ever nor
// make the server read an unlimited output.
func TestBuild_LeftoverDoesNotHoldUpThePublishing(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_BUILD_TIMEOUT", "15s"))
	// Many folders, so that the commands take a while.
	const fill = `
const fs = require('fs');
for (let i = 0; i < 5000; i++) fs.mkdirSync('dist/' + i, {recursive: true});
fs.writeFileSync('dist/index.html', 'x');`
	const tooLong = "service web: publishing took longer than 15s and was stopped; publish less, or stop what the commands leave running"
	for _, tt := range []struct{ publish, seized, reason string }{
		{"", "^find stop", tooLong},
		{"", "maxdept[h] flood", "service web: the folder to publish was not found: something else wrote into the answer; stop what the commands leave running"},
		{"publish: dist, ", "^tar stop", tooLong},
	} {
		fields := manifest(fmt.Sprintf(`services: [{name: web, runtime: static, install: node fill.js, %s`+
			`build: "setsid node seize.js %s >/dev/null 2>&1 </dev/null & until [ -e seizes ]; do sleep 0.05; done"}]`, tt.publish, tt.seized))
		st := h.deploy(t, Tree{"seize.js": seize, "fill.js": fill}, fields)
		for range 19 { // a command may be over before it is seized, and node late with the folders
			if st.Status == "failed" && !strings.Contains(st.reason(), "install ran longer than 15s") {
				break
			}
			require.Equal(t, http.StatusOK, h.delete(t, st).status)
			st = h.deploy(t, Tree{"seize.js": seize, "fill.js": fill}, fields)
		}
		require.Equal(t, "failed", st.Status, tt.seized)
		require.Contains(t, st.reason(), tt.reason, tt.seized)
	}
	h.leavesNothingRunning(t)
}

// The log of a build that floods it stays bounded and keeps its beginning or end.
func TestBuild_LogIsBounded(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_LOG_MAX", "100KB"))
	st := h.live(t, reader, builds("yes 'a line of output' | head -n 100000; echo the end"))
	log := h.logs(t, st, "kind=build&tail=1000000")
	require.Less(t, len(log), 150_000)
	require.Contains(t, log, "\nthe end\n== build ok\n")
}

// Values of the environment are only in the processes that need them, not in the image,
// logs or files.
func TestBuild_KeepsTheEnvironmentToItself(t *testing.T) {
	t.Parallel()
	h := start(t)
	const secret = "correct-horse-battery-staple"
	st := h.live(t, Tree{"index.js": `require("http").createServer((req, res) => res.end(process.env.MADE + " " + process.env.GIVEN)).listen(process.env.PORT)`},
		manifest(`services: [{name: web, runtime: node, start: node index.js, build: 'test -n "$MADE" && test -n "$GIVEN"',
			env: {GIVEN: `+secret+`, MADE: {generate: true}}}]`))
	made, given, _ := strings.Cut(h.get(t, st.url("web", "/")).body, " ")
	require.Equal(t, secret, given)
	require.GreaterOrEqual(t, len(made), 22)

	log := h.logs(t, st, "kind=build")
	require.Regexp(t, `env +GIVEN, MADE \(generated\)`, log)
	places := map[string]string{"the image": h.imageText(t, st), "the stack": h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).body, "the server's log": h.log.String()}
	for path, content := range h.contents(t) {
		places[path] = content
	}
	for place, text := range places {
		require.False(t, strings.Contains(text, made) || strings.Contains(text, secret), "%s tells a value", place)
	}
}

// imageText returns everything that the engine says about an installation's images.
func (h *Host) imageText(t *testing.T, st *Stack) string {
	t.Helper()
	docker, err := engine()
	require.NoError(t, err)
	defer docker.Close()
	images, err := docker.ImageList(t.Context(), image.ListOptions{Filters: byLabel(h.instance)})
	require.NoError(t, err)
	require.NotEmpty(t, images)
	var all []any
	for _, i := range images {
		inspected, err := docker.ImageInspect(t.Context(), i.ID)
		require.NoError(t, err)
		history, err := docker.ImageHistory(t.Context(), i.ID)
		require.NoError(t, err)
		all = append(all, inspected, history)
	}
	text, err := json.Marshal(all)
	require.NoError(t, err)
	require.Contains(t, string(text), st.hex())
	return string(text)
}

// contents are the files of the data directory, the database among them.
func (h *Host) contents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		found[path] = string(content)
		return err
	}))
	return found
}
