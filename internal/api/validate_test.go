package api

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// validates sends a form to POST /v0/validate.
func (e *env) validates(token string, parts ...part) reply {
	e.t.Helper()
	body, contentType := makeForm(e.t, parts...)
	return e.send("POST", "/v0/validate", token, body, "Content-Type", contentType)
}

// validatesJSON sends an object.
func (e *env) validatesJSON(body string) reply {
	e.t.Helper()
	return e.send("POST", "/v0/validate", "", strings.NewReader(body), "Content-Type", "application/json; charset=utf-8")
}

const nodePackage = `{"name": "shop", "engines": {"node": "22"}, "scripts": {"start": "node server.js", "build": "node build.js"}}`

func TestValidate_TellsThePlanAndKeepsNothing(t *testing.T) {
	e := newEnv(t)
	r := e.validates("", sourcePart(tarOf(t, "web/index.html", "hello", "api/package.json", nodePackage)),
		textPart("manifest", "ttl: 2h\nservices: [{name: web, root: web, runtime: static}, {name: api, root: api, env: {SECRET: hidden}, depends_on: [web]}]"))
	require.Equal(t, 200, r.status, r.body)
	v := r.json()
	require.Equal(t, true, v["valid"])
	require.Equal(t, []any{}, v["faults"])
	require.EqualValues(t, 7200, v["ttl"])
	services := v["services"].([]any)
	require.Len(t, services, 2)
	require.Equal(t, map[string]any{
		"name": "web", "runtime": "static", "root": "web", "publish": ".", "spa": "auto",
		"from": map[string]any{"runtime": "manifest", "root": "manifest", "publish": "index.html"},
	}, services[0])
	api := services[1].(map[string]any)
	require.Equal(t, "node", api["runtime"])
	require.Equal(t, "22", api["version"])
	require.Equal(t, "node server.js", api["start"])
	require.Equal(t, []any{"SECRET"}, api["env"])
	require.Equal(t, []any{"web"}, api["depends_on"])
	require.Contains(t, api["from"].(map[string]any)["version"], "engines")
	require.NotContains(t, r.body, "hidden")
	require.Empty(t, e.stacks())
	e.nothingLeft()
}

func TestValidate_TellsEveryFaultAndWhatIsKnownAllTheSame(t *testing.T) {
	e := newEnv(t)
	r := e.validates("", sourcePart(tarOf(t, "package.json", nodePackage)),
		textPart("manifest", "ttl: 3d\nservices: [{name: web, buildCommand: x}, {name: api, root: nowhere}]"))
	require.Equal(t, 200, r.status, r.body)
	v := r.json()
	require.Equal(t, false, v["valid"])
	faults := v["faults"].([]any)
	require.Len(t, faults, 3)
	require.Contains(t, faults[0], `here it is "build"`)
	require.Contains(t, faults[1], "nowhere")
	require.Contains(t, faults[2], "72h is too long")
	services := v["services"].([]any)
	require.Len(t, services, 1)
	require.Equal(t, "node", services[0].(map[string]any)["runtime"])

	_, key := e.account("ana@example.com")
	r = e.validates(key, sourcePart(site(t)), textPart("ttl", "3d"))
	require.Equal(t, true, r.json()["valid"], "the stack of an account has no lifetime")
	r = e.validates("", sourcePart(site(t)), textPart("manifest", "{"))
	require.Equal(t, false, r.json()["valid"])
	require.Len(t, r.json()["faults"], 1)
	e.nothingLeft()
}

func TestValidate_RefusesATokenThatIsNoAPIKey(t *testing.T) {
	e := newEnv(t)
	for _, token := range []string{"as_live_unknown", "nonsense", e.create("")["manage_token"].(string)} {
		r := e.validates(token, sourcePart(site(t)), textPart("ttl", "3d"))
		require.Equal(t, 401, r.status, r.body)
		require.Contains(t, r.body, "does not hold a valid API key")
		require.Empty(t, r.header.Get("RateLimit-Remaining"), "it counted")
	}
}

// An upload in JSON that has not arrived completely waits on the disk, not in memory.
func TestValidate_KeepsWhatComesSlowlyOnDisk(t *testing.T) {
	e := newEnv(t)
	text := `{"files": [{"path": "index.html", "content": "` + strings.Repeat("x", 4*spoolBlock) + `"}]}`
	w := e.dial()
	w.printf("POST /v0/validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text[:len(text)-1])
	require.Eventually(t, func() bool {
		objects, err := filepath.Glob(filepath.Join(e.host.dir, "upload-*", "object"))
		if err != nil || len(objects) != 1 {
			return false
		}
		info, err := os.Stat(objects[0])
		return err == nil && info.Size() >= 4*spoolBlock
	}, time.Minute, time.Millisecond)
	w.printf("%s", text[len(text)-1:])
	require.Equal(t, 200, w.reply().status)
	e.nothingLeft()
}

func TestValidate_TakesAManifestAlone(t *testing.T) {
	e := newEnv(t)
	const text = "{name: shop, ttl: 2h, services: [{name: web, root: ./site, publish: dist}, {name: api, runtime: node@22, start: node server.js, env: {SECRET: hidden}}, {name: worker}]}"
	for name, r := range map[string]reply{
		"form": e.validates("", textPart("manifest", text)),
		"file": e.validates("", part{"manifest_file", "manifest", []byte(text)}),
		"json": e.validatesJSON(`{"manifest": "` + text + `"}`),
		"both": e.validatesJSON(`{"manifest": "` + text + `", "files": {}}`),
	} {
		require.Equal(t, 200, r.status, r.body)
		v := r.json()
		require.Equal(t, true, v["valid"], "%s: %s", name, r.body)
		require.Equal(t, "shop", v["name"])
		require.EqualValues(t, 7200, v["ttl"])
		require.Equal(t, []any{
			map[string]any{
				"name": "web", "runtime": "static", "root": "site", "publish": "dist", "spa": "auto",
				"from": map[string]any{"runtime": "it has publish or spa", "root": "manifest", "publish": "manifest"},
			},
			map[string]any{
				"name": "api", "runtime": "node", "version": "22", "root": ".", "start": "node server.js", "env": []any{"SECRET"},
				"from": map[string]any{"runtime": "manifest", "start": "manifest"},
			},
			map[string]any{"name": "worker", "runtime": "", "root": ".", "from": map[string]any{"runtime": "detected from the source"}},
		}, v["services"])
		require.NotContains(t, r.body, "hidden")
	}
	v := e.validatesJSON(`{"manifest": {"ttl": "3d", "services": [{"name": "web", "runtime": "cobol"}, {"name": "api", "buildCommand": "x", "root": "../x", "start": " "}]}}`).json()
	require.Equal(t, false, v["valid"])
	faults := fmt.Sprint(v["faults"])
	for _, fault := range []string{`unknown runtime "cobol"`, `here it is "build"`, "leads outside", "start is empty", "72h is too long"} {
		require.Contains(t, faults, fault)
	}
	require.Len(t, v["services"], 1)
	require.Equal(t, false, e.validates("", textPart("manifest", "{")).json()["valid"])
	e.nothingLeft()
}

func TestValidate_RefusesWhatCannotBeRead(t *testing.T) {
	e := newEnv(t)
	require.Equal(t, 422, e.validates("", sourcePart([]byte("no archive at all, and not text\x00"))).status)
	for _, r := range []reply{e.validates("", textPart("name", "x")), e.validates("", textPart("manifest", "")), e.validatesJSON(""), e.validatesJSON("x")} {
		require.Equal(t, 400, r.status)
		require.Contains(t, r.detail(), "no source")
	}
	e.nothingLeft()
}

func TestValidate_IsLimited(t *testing.T) {
	e := newEnv(t)
	e.checks.left = 1
	require.Equal(t, 200, e.validates("", sourcePart(site(t))).status)
	r := e.validates("", sourcePart(site(t)))
	require.Equal(t, 429, r.status)
	require.Equal(t, "60", r.header.Get("Retry-After"))
	require.Equal(t, "0", r.header.Get("RateLimit-Remaining"))
}
