package edge

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestEdge_RefusesWhatPagesOfOtherOriginsSendToThePages(t *testing.T) {
	const own, tenant = "http://berth.test", "http://" + testService
	for _, c := range []struct {
		name, method, path string
		headers            map[string]string
		refused            bool
	}{
		{"a form of ours", "POST", "/signin", map[string]string{"Sec-Fetch-Site": "same-origin", "Origin": own}, false},
		{"an address that was typed", "POST", "/signin", map[string]string{"Sec-Fetch-Site": "none"}, false},
		{"a tenant's page", "POST", "/signin", map[string]string{"Sec-Fetch-Site": "same-site", "Origin": tenant}, true},
		{"a strange page", "POST", "/dashboard/stacks/stk_0/delete", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.test"}, true},
		{"a tenant's page, an old browser", "POST", "/claim", map[string]string{"Origin": tenant}, true},
		{"ours, an old browser", "POST", "/claim", map[string]string{"Origin": own}, false},
		{"ours on https, behind a proxy", "POST", "/claim", map[string]string{"Origin": "https://berth.test"}, false},
		{"no browser", "POST", "/signin", nil, false},
		{"a sandboxed page", "POST", "/signin", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "null"}, true},
		{"ours without a referrer, over plain http", "POST", "/signin", map[string]string{"Origin": "null"}, false},
		{"following a link", "GET", "/claim/CLM-0000-0000-0000", map[string]string{"Sec-Fetch-Site": "cross-site"}, false},
		{"a HEAD", "HEAD", "/dashboard", map[string]string{"Sec-Fetch-Site": "cross-site"}, false},
		{"PUT", "PUT", "/dashboard", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"DELETE", "DELETE", "/dashboard", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"the API", "POST", "/v0/stacks", map[string]string{"Sec-Fetch-Site": "cross-site", "Origin": "https://agent.test"}, false},
		{"the API's delete", "DELETE", "/v0/stacks/stk_0", map[string]string{"Sec-Fetch-Site": "cross-site"}, false},
		{"the API's claim", "POST", "/v0/claim", map[string]string{"Origin": "https://agent.test"}, false},
		{"an agent's tools", "POST", "/mcp", map[string]string{"Origin": "https://agent.test"}, false},
		{"out of the API's path", "POST", "/v0/../signin", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"out of the API's path, escaped", "POST", "/v0/%2e%2e/signin", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"out of the API's path, slash escaped", "POST", "/v0/..%2fsignin", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"beside the API's path", "POST", "/v0x", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"below the tools' path", "POST", "/mcp/../signin", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
		{"doubled slashes", "POST", "//v0/stacks", map[string]string{"Sec-Fetch-Site": "same-site"}, true},
	} {
		r := httptest.NewRequest(c.method, c.path, strings.NewReader("x=1"))
		r.Host = "berth.test"
		for name, value := range c.headers {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		newEdge(testConfig(who("api"))).ServeHTTP(w, r)
		if refused := w.Code == http.StatusForbidden; refused != c.refused || !refused && !strings.HasPrefix(w.Body.String(), "api ") {
			t.Errorf("%s: %d %s, want refused %v", c.name, w.Code, w.Body, c.refused)
		}
		var e struct{ Detail string }
		if c.refused && (json.Unmarshal(w.Body.Bytes(), &e) != nil || !strings.Contains(e.Detail, "berth.test")) {
			t.Errorf("%s: %s", c.name, w.Body)
		}
	}
}

func TestEdge_LeavesTheOriginsOfServicesToThem(t *testing.T) {
	r := httptest.NewRequest("POST", "/signin", nil)
	r.Host = testService
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	newEdge(testConfig(who("api"))).ServeHTTP(w, r)
	if !strings.HasPrefix(w.Body.String(), "web ") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestEdge_WantsAnOriginOverHTTPS(t *testing.T) {
	cfg := testConfig(who("api"))
	r := httptest.NewRequest("POST", "https://berth.test/signin", nil)
	r.Header.Set("Origin", "null")
	w := httptest.NewRecorder()
	newEdge(cfg).ServeHTTP(w, r)
	if w.Code != http.StatusForbidden {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
