package cluster

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/domain/dnstest"
)

// allowsHooks lets webhooks reach the receivers of these tests.
func allowsHooks(c *Cluster) { c.env["BERTH_WEBHOOK_ALLOW"] = c.lab.subnet.String() }

// receiver gets webhooks.
type receiver struct {
	url string

	mu  sync.Mutex
	got map[string]map[string]int // deliveries of each event of each stack
}

// newReceiver starts a receiver that the nodes reach.
func (c *Cluster) newReceiver(t *testing.T) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", c.lab.address(1).String()+":0")
	require.NoError(t, err)
	r := &receiver{got: map[string]map[string]int{}, url: "http://" + l.Addr().String()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		var e struct {
			Stack string `json:"stack_id"`
		}
		if err := json.NewDecoder(req.Body).Decode(&e); err != nil {
			return // it was cut off, and comes again
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.got[e.Stack] == nil {
			r.got[e.Stack] = map[string]int{}
		}
		r.got[e.Stack][req.Header.Get("X-Service-Event")+" "+req.Header.Get("X-Service-Delivery")]++
	}))
	require.NoError(t, server.Listener.Close())
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return r
}

// gotOnce waits until the receiver has each event of a stack, and asserts that none came twice
// and that it got no others about the stack.
func (r *receiver) gotOnce(t *testing.T, st *Stack, events []Event) {
	t.Helper()
	want := map[string]int{}
	for _, e := range events {
		want[fmt.Sprintf("%s %d", e.Type, e.ID)] = 1
	}
	eventually(t, "the receiver gets each event", func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return same(fmt.Sprint(want), fmt.Sprint(r.got[st.ID]))
	})
}

// stream opens a stream of server-sent events and returns its lines.
func (h *Host) stream(t *testing.T, token, path string) *bufio.Scanner {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, baseURL+path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := h.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	return bufio.NewScanner(res.Body)
}

// awaitLine reads lines until one contains a text.
func awaitLine(t *testing.T, lines *bufio.Scanner, text string) {
	t.Helper()
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ends without %q: %v", text, lines.Err())
}

// upgrades asserts that a service's other protocol comes through a node.
func (h *Host) upgrades(t *testing.T, st *Stack) {
	t.Helper()
	conn, err := net.Dial("tcp", h.node.AddressOf(8080).String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	host := strings.TrimPrefix(st.url("web", ""), "http://")
	_, err = io.WriteString(conn, "GET /upgrade HTTP/1.1\r\nHost: "+host+"\r\nConnection: Upgrade\r\nUpgrade: upper\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	res, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	_, err = io.WriteString(conn, "hello\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "HELLO\n", line)
}

// head returns the headers with which a request comes to the service web, but for its id.
func (h *Host) head(t *testing.T, st *Stack, headers ...string) string {
	t.Helper()
	r := h.get(t, st.url("web", "/head"), headers...)
	require.Equal(t, http.StatusOK, r.status, r)
	return requestID.ReplaceAllString(r.body, "")
}

var requestID = regexp.MustCompile("X-Request-Id: .*\r\n")

// refusesForgeries asserts that what only nodes say counts for nothing from others.
func (h *Host) refusesForgeries(t *testing.T, st *Stack) {
	t.Helper()
	honest := h.head(t, st)
	forged := []string{"Berth-Client-Ip", "Berth-Client-Proto", "Berth-Peer", "Berth-Peer-Hops", "berth_client_ip", "BERTH-PEER-HOPS"}
	for _, name := range forged {
		for _, value := range []string{"1", "9", "203.0.113.7", "https"} {
			require.Equal(t, honest, h.head(t, st, name, value), "%s: %s", name, value)
			require.Equal(t, http.StatusOK, h.get(t, "/v0/stacks/"+st.ID, name, value, "Authorization", "Bearer "+st.ManageToken).status, name)
		}
	}
	require.Equal(t, http.StatusNotFound, h.attempt(t, http.MethodGet, "/peer/v1/ping", nil, "Berth-Peer", "1").status)
	conn, err := tls.Dial("tcp", h.node.AddressOf(8443).String(), &tls.Config{InsecureSkipVerify: true}) // it asks for a certificate
	if err == nil {
		defer conn.Close()
		_, _ = io.WriteString(conn, "GET /peer/v1/ping HTTP/1.1\r\nHost: x\r\nBerth-Peer: 1\r\n\r\n")
		_, err = http.ReadResponse(bufio.NewReader(conn), nil)
	}
	require.Error(t, err, "who has no certificate is answered")
}

// authorized adds a token to every request.
type authorized struct {
	next  http.RoundTripper
	token string
}

// RoundTrip implements http.RoundTripper.
func (a authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+a.token)
	return a.next.RoundTrip(req)
}

// hasTools asserts that an agent sees and runs what a stack has with the tools of a node.
func (h *Host) hasTools(t *testing.T, key string, st *Stack) {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint:   baseURL + "/mcp",
		HTTPClient: &http.Client{Transport: authorized{h.client.Transport, key}, Timeout: patience},
	}, nil)
	require.NoError(t, err)
	defer session.Close()
	for tool, want := range map[string]string{"status": "status: live", "logs": "with other data", "events": "stack.restored"} {
		args := map[string]any{"stack": st.ID}
		if tool == "logs" {
			args["service"] = "web"
		}
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		require.NoError(t, err, tool)
		require.Len(t, res.Content, 1, tool)
		require.Contains(t, res.Content[0].(*mcp.TextContent).Text, want, tool)
	}
}

// hasDomain asserts that a domain of a stack's owner, added through one node, leads to the stack
// through every node, until it is removed.
func (c *Cluster) hasDomain(t *testing.T, server *dnstest.Server, key string, st *Stack) {
	t.Helper()
	const host, url = "www.example.com", "http://www.example.com:8080/"
	a, b := c.on("m1"), c.on("w2")
	path := "/v0/stacks/" + st.ID + "/domains"
	r := b.as(t, key, http.MethodPost, path, `{"host": "`+host+`", "service": "web"}`)
	require.Equal(t, http.StatusCreated, r.status, r)
	var added struct {
		Records []struct{ Type, Value string }
	}
	require.NoError(t, json.Unmarshal([]byte(r.body), &added))
	for _, name := range []string{host, "berth.test"} {
		server.Set(t, name, "A "+a.node.AddressOf(8080).Addr().String())
	}
	server.Set(t, "_berth."+host, "TXT "+last(added.Records).Value)
	for _, h := range c.hosts {
		h.serves(t, url, "200 hello from web, generation 3")
		require.Contains(t, h.as(t, key, http.MethodGet, path+"/"+host, "").body, `"status":"active"`)
	}
	require.Equal(t, http.StatusNoContent, a.as(t, key, http.MethodDelete, path+"/"+host, "").status)
	for _, h := range c.hosts {
		eventually(t, "the domain leads nowhere", func() error { return same("404", fmt.Sprint(h.get(t, url).status)) })
	}
}

// What a client does with a stack works through nodes that do not have it.
func TestCluster_AnyNodeTakesAnyRequest(t *testing.T) {
	server := dnstest.StartAt(t, theLab(t).address(1).String())
	c := start(t, clustered, steady, allowsHooks, with("BERTH_WEBHOOK_TIMEOUT", "1m"), with("BERTH_EXPIRY_NOTICE", "1s"), with("BERTH_DNS", server.Addr), with("BERTH_DOMAIN_PENDING_EVERY", "200ms"))
	owner := c.on("w1")
	a, b := c.on("m1"), c.on("w2")
	eventually(t, "every node is ready", func() error {
		for name, m := range a.members(t) {
			if err := same("ready active", m.State+" "+m.Availability); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		return nil
	})
	key := b.account(t, "ana@example.com")
	hook := c.newReceiver(t)
	manifest := strings.Replace(appManifest, "{name: app,", "{name: app, notify: {webhook: '"+hook.url+"'},", 1)

	st := c.liveOn(t, owner, app, manifest)
	for _, h := range c.hosts {
		h.serves(t, st.url("web", "/"), "200 hello from web, generation 1") // once it knows the owner
	}
	require.Equal(t, http.StatusOK, a.as(t, st.ManageToken, http.MethodGet, "/v0/stacks/"+st.ID+"?wait=true", "").status)
	for _, h := range c.hosts {
		require.Equal(t, "200 a site", h.get(t, st.url("site", "/")).String())
		require.Equal(t, owner.head(t, st), h.head(t, st))
		h.upgrades(t, st)
		h.refusesForgeries(t, st)
	}
	b.write(t, st, "kept", "data")

	follow := a.stream(t, st.ManageToken, "/v0/stacks/"+st.ID+"/events")
	logs := b.stream(t, st.ManageToken, "/v0/stacks/"+st.ID+"/logs?service=web&timestamps=true")
	load := press(t, st.url("web", "/"), c.hosts...)
	require.Equal(t, http.StatusOK, a.redeploy(t, st, app.plus("site/more", "x"), manifest).status)
	require.Equal(t, 2, b.mustLive(t, st).Generation)
	load.lostNone(t)
	require.Equal(t, "200 x", b.get(t, st.url("site", "/more")).String())
	awaitLine(t, follow, "stack.redeploying")
	awaitLine(t, follow, "stack.live")
	awaitLine(t, logs, "gen 2 == web started")

	path := "/v0/stacks/" + st.ID
	require.Equal(t, http.StatusOK, b.as(t, st.ManageToken, http.MethodPatch, path+"/env?wait=true", `{"services": {"web": {"KEY": "value"}}}`).status)
	require.Equal(t, "200 value", a.get(t, st.url("web", "/env?name=KEY")).String())
	require.Contains(t, a.as(t, st.ManageToken, http.MethodGet, path+"/env", "").body, `"KEY"`)
	require.Contains(t, b.as(t, st.ManageToken, http.MethodPost, path+"/services/web/exec", `{"command": "echo $KEY"}`).body, `"output":"value\n"`)
	require.Contains(t, b.as(t, st.ManageToken, http.MethodGet, path+"/source/server.pl", "").body, "IO::Socket::INET")
	require.Contains(t, a.as(t, st.ManageToken, http.MethodGet, path+"/logs", "").body, "### web (run)")

	require.Equal(t, http.StatusOK, a.as(t, st.ManageToken, http.MethodPut, path+"/services/web/data", tarOf(t, "kept", "pushed")).status)
	require.Equal(t, "200 pushed", b.reads(t, st, "kept"))
	require.True(t, strings.HasPrefix(b.as(t, st.ManageToken, http.MethodGet, path+"/services/web/data", "").body, "\x1f\x8b"))
	b.write(t, st, "kept", "data")

	require.Equal(t, http.StatusOK, a.extend(t, st, "1s").status)
	eventually(t, "it expires", func() error { return same("expired", b.show(t, st).Status) })
	require.Equal(t, http.StatusOK, a.claim(t, key, st).status)
	require.Equal(t, 3, b.mustLive(t, st).Generation)
	require.Equal(t, "200 data", a.reads(t, st, "kept"))
	hook.gotOnce(t, st, b.events(t, st))
	c.inOrder(t, nil)
	for _, h := range c.hosts {
		h.hasTools(t, key, st)
	}
	c.hasDomain(t, server, key, st)

	require.Equal(t, http.StatusOK, b.as(t, key, http.MethodDelete, path, "").status)
	c.forget(st)
	for _, h := range c.hosts {
		h.hasNothing(t)
	}
	site := a.create(t, page("a page"), "")
	b.mustLive(t, site)
	b.serves(t, site.url("web", "/"), "200 a page")
}

// tarOf returns a tar with one file.
func tarOf(t *testing.T, name, content string) string {
	t.Helper()
	var out strings.Builder
	w := tar.NewWriter(&out)
	require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return out.String()
}
