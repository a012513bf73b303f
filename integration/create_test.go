package integration

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCreate_AnswersTheWholeStackObject(t *testing.T) {
	t.Parallel()
	h := start(t)
	fields := manifest(`{name: app, notify: {webhook: "https://example.com/hook"}, services: [{name: web, runtime: node, start: node server.js}]}`)
	before := float64(time.Now().UnixMicro()) / 1e6
	r := h.post(t, archive(t, program(t)), fields, "")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	require.Contains(t, r.header.Get("Content-Type"), "application/json")

	v, st := r.json(t), r.stack(t)
	require.ElementsMatch(t, []string{
		"id", "name", "status", "claimed", "urls", "services", "created_at", "expires_at", "expired_at", "retained_until",
		"generation", "deploying", "error", "deploy_error", "deploy", "manage_token", "claim_code", "claim_url", "note", "webhook_secret",
	}, keys(v))
	require.Regexp(t, `^stk_[0-9a-f]{12}$`, st.ID)
	require.Equal(t, "app", st.Name)
	require.Equal(t, "building", st.Status)
	require.False(t, st.Claimed)
	url := "http://web-" + st.hex() + ".localhost:" + strings.TrimPrefix(h.base(), "http://localhost:")
	require.Equal(t, map[string]string{"web": url}, st.URLs)
	require.Equal(t, []Service{{Name: "web", Runtime: "node", Status: "pending", URL: url}}, st.Services)
	require.InDelta(t, before, st.CreatedAt, 60)
	require.InDelta(t, st.CreatedAt+3600, *st.ExpiresAt, 1e-3)
	for _, null := range []string{"expired_at", "retained_until", "error", "deploy_error"} {
		require.Nil(t, v[null], null)
	}
	require.Equal(t, 1, st.Generation)
	require.Equal(t, 1, *st.Deploying)
	require.Regexp(t, `^ast_anon_.{20,}$`, st.ManageToken)
	require.Regexp(t, `^CLM-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$`, st.ClaimCode)
	require.Equal(t, h.base()+"/claim/"+st.ClaimCode, st.ClaimURL)
	require.NotEmpty(t, st.Note)
	require.Regexp(t, `^whsec_.{20,}$`, st.WebhookSecret)

	h.mustLive(t, st)
}

func keys(v map[string]any) []string {
	var names []string
	for name := range v {
		names = append(names, name)
	}
	return names
}

func TestCreate_OneTimeFieldsAppearOnceAndAreNotStoredInClear(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi").plus(Tree{"stack.yaml": "notify: {webhook: 'https://example.com/hook'}"}), nil)
	shown := h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID).body + h.getAs(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events").body
	h.stop(t)
	var stored bytes.Buffer
	require.NoError(t, filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		stored.Write(content)
		return err
	}))
	for _, secret := range []string{st.ManageToken, st.ClaimCode, strings.ReplaceAll(strings.TrimPrefix(st.ClaimCode, "CLM-"), "-", ""), st.WebhookSecret} {
		require.NotEmpty(t, secret)
		require.NotContains(t, shown, secret)
		require.False(t, bytes.Contains(stored.Bytes(), []byte(secret)), "%s is on the disk in clear", secret)
		require.NotContains(t, h.log.String(), secret)
	}
	require.True(t, bytes.Contains(stored.Bytes(), []byte(st.ID)), "the database was not read")
	h.run(t)
}

func TestCreate_ManifestFileBeforeManifestBeforeArchive(t *testing.T) {
	t.Parallel()
	h := start(t)
	tree := page("hi").plus(Tree{"stack.yaml": "{name: in-archive, ttl: 2h, services: [{name: one, runtime: static}]}"})
	inForm := "{name: in-form, services: [{name: two, runtime: static}]}"
	inFile := `{"name": "in-file", "services": [{"name": "three", "runtime": "static"}]}`
	for _, c := range []struct {
		fields        Fields
		name, service string
		ttl           float64
	}{
		{nil, "in-archive", "one", 7200},
		{Fields{"manifest": inForm}, "in-form", "two", 3600},
		{Fields{"manifest": inForm, "manifest_file": inFile}, "in-file", "three", 3600},
		{Fields{"manifest": inForm, "name": "mine", "ttl": "30m"}, "mine", "two", 1800},
	} {
		st := h.live(t, tree, c.fields)
		require.Equal(t, c.name, st.Name)
		require.Equal(t, c.service, st.Services[0].Name)
		require.InDelta(t, st.CreatedAt+c.ttl, *st.ExpiresAt, 1e-3)
		require.Equal(t, "hi", h.get(t, st.url(c.service, "/")).body)
	}
}

func TestCreate_TheArchivesOnlyFolderIsTheProject(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, Tree{"guestbook/index.html": "from the folder"}, nil)
	require.Equal(t, "guestbook", st.Name)
	require.Equal(t, "from the folder", h.get(t, st.url("web", "/")).body)
}

func TestCreate_WaitHoldsTheAnswerUntilTheStackIsLive(t *testing.T) {
	t.Parallel()
	h := start(t)
	r := h.post(t, archive(t, program(t)), manifest(programManifest), "?wait=true")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	st := r.stack(t)
	require.Equal(t, "live", st.Status)
	require.Nil(t, st.Deploying)
	require.NotEmpty(t, st.ManageToken)
	require.Equal(t, "running", st.Services[0].Status)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body)
}

func TestCreate_WaitGivesUpAfterItsLimit(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_WAIT", "300ms"))
	asked := time.Now()
	r := h.post(t, archive(t, page("x")), manifest("services: [{name: web, runtime: node, build: sleep 600, start: node server.js}]"), "?wait=true")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	require.Equal(t, "building", r.stack(t).Status)
	require.Greater(t, time.Since(asked), 300*time.Millisecond)
	asked = time.Now()
	require.Equal(t, "building", h.show(t, r.stack(t), "?wait=true").Status)
	require.Greater(t, time.Since(asked), 300*time.Millisecond)
}

func TestCreate_WithoutWaitAnswersAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.create(t, page("x"), manifest("services: [{name: web, runtime: node, build: sleep 600, start: node server.js}]"))
	require.Equal(t, "building", st.Status)
}

func TestCreate_AnswersAFailedBuildWithItsReason(t *testing.T) {
	t.Parallel()
	h := start(t)
	fields := manifest("services: [{name: web, runtime: node, build: 'echo the reason; exit 3', start: node server.js}]")
	r := h.post(t, archive(t, page("x")), fields, "?wait=true")
	require.Equal(t, http.StatusCreated, r.status, r.body)
	st := r.stack(t)
	require.Equal(t, "failed", st.Status)
	require.Contains(t, st.reason(), "service web: build failed")
	require.Contains(t, st.reason(), "code 3")
	require.Contains(t, st.reason(), "the reason")
	require.Equal(t, "stopped", st.Services[0].Status)
	require.Nil(t, st.Deploying)
}

func TestCreate_ErrorsKeepTheirLast4000Characters(t *testing.T) {
	t.Parallel()
	h := start(t)
	crash := `for (let i = 0; i < 2000; i++) console.log('a line of the log, number ' + i); process.exit(1)`
	st := h.deploy(t, Tree{"server.js": crash}, manifest(programManifest))
	require.Equal(t, "failed", st.Status)
	require.LessOrEqual(t, len([]rune(st.reason())), 4000)
	require.Contains(t, st.reason(), "number 1999")
	events := h.events(t, st)
	last := events[len(events)-1]
	require.Equal(t, "stack.failed", last.Type)
	require.LessOrEqual(t, len([]rune(last.Data["error"].(string))), 1000)
	require.Contains(t, last.Data["error"], "number 1999")
}

func TestCreate_RefusesWhatIsNotAForm(t *testing.T) {
	t.Parallel()
	h := start(t)
	for name, c := range map[string]struct{ contentType, body string }{
		"no body":          {"", ""},
		"JSON":             {"application/json", `{"source": "x"}`},
		"no boundary":      {"multipart/form-data", "x"},
		"not the boundary": {"multipart/form-data; boundary=b", "no boundary in here"},
		"cut off":          {"multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"source\"; filename=\"a\"\r\n\r\nabc"},
		"an empty form":    {"multipart/form-data; boundary=b", "--b--\r\n"},
	} {
		r := h.do(t, h.request(t, http.MethodPost, "/v0/stacks", strings.NewReader(c.body), "Content-Type", c.contentType))
		require.NotEmpty(t, r.refused(t, http.StatusBadRequest), name)
	}
	require.Contains(t, h.post(t, nil, Fields{"name": "x"}, "").refused(t, http.StatusBadRequest), "no source")
	require.Contains(t, h.post(t, archive(t, page("x")), Fields{"sauce": "x"}, "").refused(t, http.StatusBadRequest), "sauce")
	require.Empty(t, h.files(t), "a refused upload left files")
}

func TestCreate_AnyAuthorizationThatIsNoAPIKeyIs401(t *testing.T) {
	t.Parallel()
	h := start(t)
	token := h.live(t, page("x"), nil).ManageToken
	for _, value := range []string{"Bearer " + token, "Bearer as_live_0123456789abcdefghijklmnopqrstuv", "Basic YTpi", "Bearer", "nonsense"} {
		r := h.post(t, archive(t, page("x")), nil, "", "Authorization", value)
		require.Contains(t, r.refused(t, http.StatusUnauthorized), "API key", value)
	}
}

func TestCreate_RefusesLifetimesOutsideTheBounds(t *testing.T) {
	t.Parallel()
	h := start(t)
	for ttl, want := range map[string]string{
		"0s":     "ttl 0s is too short; an unclaimed stack lives at least 15m",
		"14m59s": "15m", "1s": "15m", "24h1s": "24h", "100d": "24h",
		"90": "90m", "-1h": "1h30m", "1.5h": "1h30m", "1h!": "1h30m", "soon": "1h30m",
	} {
		require.Contains(t, h.post(t, archive(t, page("x")), Fields{"ttl": ttl}, "").refused(t, 422), want, ttl)
		inManifest := manifest("ttl: '" + ttl + "'")
		require.Contains(t, h.post(t, archive(t, page("x")), inManifest, "").refused(t, 422), want, ttl)
	}
	st := h.live(t, page("x"), Fields{"ttl": "24h", "manifest": "ttl: 1s"})
	require.InDelta(t, st.CreatedAt+86400, *st.ExpiresAt, 1e-3, "the field decides, whatever the manifest says")
}

func TestCreate_NamesEveryFaultOfAManifestAtOnce(t *testing.T) {
	t.Parallel()
	h := start(t)
	detail := h.post(t, archive(t, page("x")), manifest(`
name: app
services:
  - name: web
    runtime: node
    buildCommand: npm run build
    start: node server.js
    depends_on: [nowhere]
  - name: api
    runtime: cobol
  - name: docs
    runtime: static
    start: ./serve
`), "").refused(t, 422)
	for _, fault := range []string{
		`service web: unknown field "buildCommand"; here it is "build"`, "nowhere", "service api", "cobol", "service docs", "start",
	} {
		require.Contains(t, detail, fault)
	}
	require.GreaterOrEqual(t, strings.Count(detail, "\n"), 3, detail)

	five := "services: [" + strings.Repeat("{name: a, runtime: static},", 5) + "]"
	require.Contains(t, h.post(t, archive(t, page("x")), manifest(five), "").refused(t, 422), "at most 4")
	capital := "services: [{name: Web, runtime: static}]"
	require.Contains(t, h.post(t, archive(t, page("x")), manifest(capital), "").refused(t, 422), "Web")
	long := "services: [{name: abcdefghijklmnopqrstu, runtime: static}]"
	require.Contains(t, h.post(t, archive(t, page("x")), manifest(long), "").refused(t, 422), "20")
	circle := `services: [{name: a, runtime: node, start: x, depends_on: [b]}, {name: b, runtime: node, start: x, depends_on: [a]}]`
	require.Regexp(t, regexp.MustCompile(`a.*b.*a`), h.post(t, archive(t, page("x")), manifest(circle), "").refused(t, 422))
	require.Contains(t, h.post(t, archive(t, page("x")), manifest("{services: ["), "").refused(t, 422), "YAML")
	require.Empty(t, h.files(t), "a refused upload left files")
	require.Equal(t, objects{}, h.objects(t))
}

func TestCreate_RefusesBadArchivesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	h := start(t)
	good := archive(t, page("x"))
	for name, c := range map[string]struct {
		source []byte
		want   string
	}{
		"not an archive": {[]byte("\x00\x01hello, this is not an archive\x02"), "tar"},
		"truncated":      {good[:len(good)/2], ""},
		"empty":          {archive(t, nil), "the archive is empty"},
		"leaving":        {archive(t, Tree{"../../etc/cron.d/x": "x"}), "../../etc/cron.d/x"},
		"absolute":       {archive(t, Tree{"/etc/cron.d/x": "x"}), "/etc/cron.d/x"},
	} {
		require.Contains(t, h.post(t, c.source, nil, "").refused(t, 422), c.want, name)
	}
	require.Empty(t, h.files(t), "a refused upload left files")
	_, err := os.Stat("/etc/cron.d/x")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCreate_DropsLinksOutOfTheRoot(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, page("hi").plus(Tree{"out": "-> /etc/passwd", "up": "-> ../../../../etc/passwd", "in": "-> index.html"}),
		manifest("services: [{name: web, runtime: static, spa: false}]"))
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/out")).status)
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/up")).status)
	require.Equal(t, "hi", h.get(t, st.url("web", "/in")).body)
}

func TestCreate_IsCountedPerNetworkUntilTheCap(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "3"))
	tree := page("x")
	var stacks []*Stack
	for range 3 {
		stacks = append(stacks, h.live(t, tree, nil))
	}
	r := h.post(t, archive(t, tree), nil, "")
	require.Regexp(t, `^3 unclaimed stacks are already running from your network \(limit 3\); destroy or claim one first\. `+
		`Stacks of others behind the same address count too; the first of all expires in ([45][0-9]m([0-9]+s)?|1h), at 20`, r.refused(t, 429))
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	require.NoError(t, err)
	require.InDelta(t, time.Until(time.Unix(int64(*stacks[0].ExpiresAt), 0)).Seconds(), wait, patience.Seconds())
	require.Equal(t, 200, h.delete(t, stacks[0]).status)
	failed := h.deploy(t, tree, manifest("services: [{name: web, runtime: node, build: exit 1, start: x}]"))
	require.Equal(t, "failed", failed.Status)
	h.live(t, tree, nil) // the failed one does not count
	h.post(t, archive(t, tree), nil, "").refused(t, 429)
}

func TestCreate_TheCapHoldsUnderParallelCreates(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_UNCLAIMED_PER_IP", "3"))
	source := archive(t, page("x"))
	count := atOnce(12, func() int { return h.post(t, source, nil, "").status })
	require.Equal(t, map[int]int{201: 3, 429: 9}, count)
	require.Len(t, h.undeleted(), 3)
}

func TestCreate_AManifestInJSONWorksInTheArchive(t *testing.T) {
	t.Parallel()
	h := start(t)
	text, err := json.Marshal(map[string]any{"name": "as-json", "services": []any{map[string]any{"name": "web", "runtime": "static", "publish": "public"}}})
	require.NoError(t, err)
	st := h.live(t, Tree{"stack.json": string(text), "public/index.html": "published", "secret.txt": "hidden"}, nil)
	require.Equal(t, "as-json", st.Name)
	require.Equal(t, "published", h.get(t, st.url("web", "/")).body)
	require.Equal(t, http.StatusNotFound, h.get(t, st.url("web", "/secret.txt")).status)
}
