package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

func TestURLs_PassEveryMethodAndHeader(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
		body := "body of " + method
		req := h.request(t, method, st.url("web", "/request?a=1&b=%2F%20x"), strings.NewReader(body),
			"X-Custom", "one", "X-Custom", "two", "Cookie", "a=b", "Authorization", "Bearer mine")
		r := h.do(t, req)
		require.Equal(t, 200, r.status, method)
		v := r.json(t)
		require.Equal(t, method, v["method"])
		require.Equal(t, "/request?a=1&b=%2F%20x", v["url"])
		require.Equal(t, body, v["body"])
		headers := v["headers"].(map[string]any)
		require.Equal(t, "one, two", headers["x-custom"])
		require.Equal(t, "a=b", headers["cookie"])
		require.Equal(t, "Bearer mine", headers["authorization"])
		require.Equal(t, st.host("web"), headers["host"])
	}
	r := h.do(t, h.request(t, http.MethodHead, st.url("web", "/"), nil))
	require.Equal(t, 200, r.status)
	require.Empty(t, r.body)
}

func TestURLs_SetWhatTheyForwardAndTrustNoneOfIt(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	r := h.get(t, st.url("web", "/request"), "X-Forwarded-For", "6.6.6.6", "X-Forwarded-Proto", "https",
		"X-Forwarded-Host", "evil.example", "Forwarded", "for=6.6.6.6", "X-Real-Ip", "6.6.6.6", "Connection", "X-Hop", "X-Hop", "1")
	headers := r.json(t)["headers"].(map[string]any)
	require.Equal(t, "127.0.0.1", headers["x-forwarded-for"])
	require.Equal(t, "http", headers["x-forwarded-proto"])
	require.Equal(t, st.host("web"), headers["x-forwarded-host"])
	require.NotContains(t, headers, "forwarded")
	require.NotContains(t, headers, "x-hop")
	require.NotContains(t, r.body, "6.6.6.6")
	require.NotContains(t, r.body, "evil.example")
	require.Equal(t, "noindex", r.header.Get("X-Robots-Tag"), "an unclaimed stack is not for search engines")
}

func TestURLs_TakeTheClientFromATrustedProxy(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_TRUSTED_PROXIES", "127.0.0.0/8,10.0.0.0/8"))
	st := h.live(t, program(t), manifest(programManifest))
	for from, client := range map[string]string{
		"203.0.113.9":                    "203.0.113.9",
		"6.6.6.6, 203.0.113.9":           "203.0.113.9",
		"6.6.6.6, 203.0.113.9, 10.1.2.3": "203.0.113.9",
		"6.6.6.6, nonsense":              "127.0.0.1",
	} {
		r := h.get(t, st.url("web", "/request"), "X-Forwarded-For", from)
		require.Equal(t, client, r.json(t)["headers"].(map[string]any)["x-forwarded-for"], from)
	}
}

func TestURLs_StreamBodiesBothWays(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	// Each piece comes back before the next is sent: nothing waits for an end.
	up, in := io.Pipe()
	res, err := h.client.Do(h.request(t, http.MethodPost, st.url("web", "/echo"), up))
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, 200, res.StatusCode)
	for i := range 5 {
		piece := fmt.Sprintf("piece %d", i)
		_, err := io.WriteString(in, piece)
		require.NoError(t, err)
		got := make([]byte, len(piece))
		_, err = io.ReadFull(res.Body, got)
		require.NoError(t, err)
		require.Equal(t, piece, string(got))
	}
	require.NoError(t, in.Close())
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Empty(t, rest)
}

func TestURLs_StreamABodyOfKnownLength(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	conn := h.dial(t)
	_, err := fmt.Fprintf(conn, "POST /echo HTTP/1.1\r\nHost: %s\r\nContent-Length: 10\r\n\r\nfirst", st.host("web"))
	require.NoError(t, err)
	answers := bufio.NewReader(conn)
	res, err := http.ReadResponse(answers, nil)
	require.NoError(t, err)
	defer res.Body.Close()
	half := make([]byte, 5)
	_, err = io.ReadFull(res.Body, half)
	require.NoError(t, err)
	require.Equal(t, "first", string(half))
	_, err = io.WriteString(conn, "other")
	require.NoError(t, err)
	rest, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "other", string(rest))
}

func TestURLs_CarryLargeBodiesUnchanged(t *testing.T) {
	t.Parallel()
	h := start(t, asShipped)
	st := h.live(t, program(t), manifest(programManifest))
	const size = 64 << 20
	body := make([]byte, size)
	rand.New(rand.NewSource(1)).Read(body)
	sum := sha256.Sum256(body)
	want := map[string]any{"size": float64(size), "sha256": hex.EncodeToString(sum[:])}
	before := h.peakMemory(t)
	require.Equal(t, want, h.do(t, h.request(t, http.MethodPost, st.url("web", "/digest"), bytes.NewReader(body))).json(t))
	chunked := h.request(t, http.MethodPost, st.url("web", "/digest"), io.MultiReader(bytes.NewReader(body)))
	require.Equal(t, want, h.do(t, chunked).json(t))

	res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", fmt.Sprintf("/bytes?n=%d", 4*size)), nil))
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, res.Body)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.EqualValues(t, 4*size, n)
	require.Less(t, h.peakMemory(t)-before, int64(24<<20), "the proxy held a body in memory")
}

func TestURLs_SendEventsAsTheyCome(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	res, err := h.client.Do(h.request(t, http.MethodGet, st.url("web", "/sse"), nil, "Accept", "text/event-stream").WithContext(ctx))
	require.NoError(t, err)
	defer res.Body.Close()
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	stream := bufio.NewScanner(res.Body)
	next := func() string {
		for stream.Scan() {
			if line := stream.Text(); line != "" {
				return line
			}
		}
		return "the stream ended"
	}
	require.Equal(t, "data: open", next())
	for i := range 3 {
		require.Equal(t, 200, h.get(t, st.url("web", fmt.Sprintf("/tick?data=%d", i))).status)
		require.Equal(t, fmt.Sprintf("data: %d", i), next())
	}
	leave()
	eventually(t, "the service sees that the client has left", func() error {
		if v := h.get(t, st.url("web", "/gone")).json(t); v["gone"] != 1.0 {
			return fmt.Errorf("it sees %v", v)
		}
		return nil
	})
}

func TestURLs_CarryWebSockets(t *testing.T) {
	t.Parallel()
	h := start(t)
	st := h.live(t, program(t), manifest(programManifest))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, res, err := websocket.Dial(ctx, "ws://"+st.host("web")+"/any", &websocket.DialOptions{HTTPClient: h.client})
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, res.StatusCode)
	for i := range 10 {
		message := fmt.Sprintf("message %d", i)
		require.NoError(t, ws.Write(ctx, websocket.MessageText, []byte(message)))
		_, got, err := ws.Read(ctx)
		require.NoError(t, err)
		require.Equal(t, message, string(got))
	}
	require.NoError(t, ws.Close(websocket.StatusNormalClosure, ""))
}

func TestURLs_AnswerLateServicesWith504AndUnreachableOnesWith502(t *testing.T) {
	t.Parallel()
	h := start(t, with("BERTH_PROXY_TIMEOUT", "10s"))
	st := h.live(t, program(t), manifest(programManifest))
	asked := time.Now()
	h.get(t, st.url("web", "/hold")).refused(t, http.StatusGatewayTimeout)
	require.Greater(t, time.Since(asked), 10*time.Second)

	h.get(t, st.url("web", "/drop")).refused(t, http.StatusBadGateway)
	require.Equal(t, "hello from web", h.get(t, st.url("web", "/")).body, "one dropped request harms no other")
	require.Equal(t, "bye", h.get(t, st.url("web", "/stop-listening")).body)
	h.get(t, st.url("web", "/")).refused(t, http.StatusBadGateway)
}

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

func TestURLs_TellWhatIsTheMatterWithAStack(t *testing.T) {
	t.Parallel()
	h := start(t)
	building := h.create(t, page("x"), manifest("{name: at-work, services: [{name: web, runtime: node, build: sleep 600, start: x}]}"))
	failed := h.deploy(t, page("x"), manifest("{name: gone-wrong, services: [{name: web, runtime: node, build: exit 1, start: x}]}"))
	live := h.live(t, page("x"), nil)
	deleted := h.live(t, page("x"), nil)
	require.Equal(t, 200, h.delete(t, deleted).status)
	for name, c := range map[string]struct {
		url    string
		status int
		text   string
	}{
		"building":           {building.url("web", "/a/b"), 503, "being built"},
		"failed":             {failed.url("web", "/"), 503, "failed"},
		"deleted":            {deleted.url("web", "/"), 404, ""},
		"unknown":            {strings.Replace(live.url("web", "/"), live.hex(), "0123456789ab", 1), 404, ""},
		"another service":    {strings.Replace(live.url("web", "/"), "web-", "api-", 1), 404, ""},
		"no service's label": {strings.Replace(live.url("web", "/"), "web-", "", 1), 404, ""},
	} {
		asJSON := h.get(t, c.url, "Accept", "application/json")
		require.Contains(t, asJSON.refused(t, c.status), c.text, name)
		asHTML := h.get(t, c.url, "Accept", browser)
		require.Equal(t, c.status, asHTML.status, name)
		require.Contains(t, asHTML.header.Get("Content-Type"), "text/html", name)
		require.Contains(t, strings.ToLower(asHTML.body), "<!doctype html>", name)
		require.Contains(t, strings.ToLower(asHTML.body), c.text, name)
		require.Equal(t, "no-store", asHTML.header.Get("Cache-Control"), name)
	}
	require.NotEmpty(t, h.get(t, building.url("web", "/")).header.Get("Retry-After"))
	require.Empty(t, h.get(t, failed.url("web", "/")).header.Get("Retry-After"))
}

func TestURLs_KeepStacksApart(t *testing.T) {
	t.Parallel()
	h := start(t)
	one := h.live(t, program(t), manifest(twoServices))
	two := h.live(t, program(t), manifest(twoServices))
	for _, st := range []*Stack{one, two} {
		require.Equal(t, "hello from api", h.get(t, st.url("web", "/fetch?url=http://api:8080/")).body, "services find each other by name")
		env := h.get(t, st.url("web", "/env")).json(t)
		require.Equal(t, st.ID, env["STACK_ID"])
		require.Equal(t, st.URLs["api"], env["API_URL"])
		require.Equal(t, "http://api:8080", env["API_INTERNAL_URL"])
		require.Equal(t, st.URLs["web"], env["PUBLIC_URL"])
	}
	ip := ""
	for _, network := range h.inspect(t, two, "api").NetworkSettings.Networks {
		ip = network.IPAddress
	}
	require.NotEmpty(t, ip)
	require.Equal(t, 599, h.get(t, one.url("web", "/fetch?url=http://"+ip+":8080/")).status, "a service reaches another stack's")
}
