package cluster

import (
	"errors"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// visitor is a browser without scripts. It keeps cookies, which it shows to every node.
type visitor struct {
	t       *testing.T
	cookies map[string]string
}

// ask sends a request through a node: a form, or a GET without one.
func (v *visitor) ask(h *Host, path string, form url.Values) Reply {
	v.t.Helper()
	method, headers := http.MethodGet, []string{}
	if form != nil {
		method, headers = http.MethodPost, []string{"Content-Type", "application/x-www-form-urlencoded"}
	}
	for name, value := range v.cookies {
		headers = append(headers, "Cookie", name+"="+value)
	}
	r := h.attempt(v.t, method, path, []byte(form.Encode()), headers...)
	for _, c := range (&http.Response{Header: r.header}).Cookies() {
		v.cookies[c.Name] = c.Value
	}
	return r
}

var formToken = regexp.MustCompile(`name="token" value="([^"]+)"`)

// signUp makes an account and returns its API key.
func signUp(t *testing.T, h *Host, email string) (v *visitor, key string) {
	t.Helper()
	v = &visitor{t, map[string]string{}}
	token := formToken.FindStringSubmatch(v.ask(h, "/signup", nil).body)
	require.NotNil(t, token)
	r := v.ask(h, "/signup", url.Values{"token": {token[1]}, "email": {email}, "password": {"correct horse"}})
	require.Equal(t, http.StatusSeeOther, r.status, r)
	key = keys.FindString(v.ask(h, "/dashboard", nil).body)
	require.NotEmpty(t, key)
	return v, key
}

var olderLines = regexp.MustCompile(`<a id="log-older" href="([^"#]+)#logs">`)

// Only the owner has the log's files.
func TestCluster_EveryNodeSearchesReadsBackAndDownloadsALog(t *testing.T) {
	c := start(t, clustered, steady, with("BERTH_LOG_MAX", "20KB"))
	owner, others := c.on("w1"), []*Host{c.on("m1"), c.on("w2")}
	v, key := signUp(t, others[0], "ana@example.com")
	st := c.liveOn(t, owner, app, appManifest)
	for _, h := range others {
		h.serves(t, st.url("site", "/"), "200 a site") // once it knows the owner
	}
	require.Equal(t, http.StatusOK, others[0].claim(t, key, st).status)
	require.Equal(t, "200 printed", owner.get(t, st.url("web", "/print?n=600")).String())
	path := "/dashboard/stacks/" + st.ID
	eventually(t, "the last line is logged", func() error {
		if r := v.ask(owner, path, nil); !strings.Contains(r.body, "line 600\n") {
			return errors.New("it is not there: " + r.String())
		}
		return nil
	})
	for _, h := range others {
		found := v.ask(h, path+"?service=web&kind=run&q=LINE+600", nil)
		require.Contains(t, found.body, "<mark>line 600</mark>\n")
		newest := v.ask(h, path+"?service=web&kind=run", nil)
		require.NotContains(t, newest.body, "line 400\n")
		older := olderLines.FindStringSubmatch(newest.body)
		require.NotNil(t, older, newest)
		back := v.ask(h, html.UnescapeString(older[1]), nil).body
		require.Contains(t, back, "line 399\nline 400\n")
		require.NotContains(t, back, "line 401\n")
		whole := v.ask(h, path+"/log.txt?service=web&kind=run", nil)
		require.Equal(t, v.ask(owner, path+"/log.txt?service=web&kind=run", nil).body, whole.body)
		require.Contains(t, whole.body, "line 1\nline 2\n")
		require.Contains(t, whole.body, "line 599\nline 600\n")
		require.Contains(t, whole.header.Get("Content-Disposition"), "attachment")
	}
}

// Only the owner has measured the requests.
func TestCluster_EveryNodesListHasTheRequestsOfTheLastHour(t *testing.T) {
	c := start(t, clustered, steady)
	owner := c.on("w1")
	v, key := signUp(t, owner, "ana@example.com")
	st := c.liveOn(t, owner, page("a page"), "")
	require.Equal(t, http.StatusOK, owner.claim(t, key, st).status)
	c.on("m1").serves(t, st.url("web", "/"), "200 a page") // once it knows the owner
	for range 6 {
		require.Equal(t, "200 a page", c.on("m1").get(t, st.url("web", "/")).String())
	}
	for _, h := range c.hosts {
		eventually(t, "the list has them", func() error {
			if r := v.ask(h, "/dashboard", nil); !strings.Contains(r.body, "7 requests in the last hour") {
				return errors.New("it has not: " + r.String())
			}
			return nil
		})
	}
}
