package peer_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/wire"
)

// echo answers with all that a service is told of a request.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.Header().Add("Set-Cookie", "mine=1")
	fmt.Fprint(w, r.Method, " ", r.Host, r.URL.RequestURI(), " ", len(body), "\n")
	for key, values := range r.Header {
		fmt.Fprint(w, key, "=", strings.Join(values, "|"), "\n")
	}
})

func TestForward_TellsAServiceWhatTheOwnerWould(t *testing.T) {
	_, first, second := pair(t, echo, noAPI)
	header := func() http.Header {
		return http.Header{
			"Cookie": {"a=b; __Host-berth_session=x"}, "X-Forwarded-For": {"6.6.6.6"}, "X-Request-Id": {"mine"},
			"Connection": {"X-Hop"}, "X-Hop": {"gone"}, "User-Agent": {"test"}, "Accept-Encoding": {"gzip"},
		}
	}
	sorted := func(n *node) []string {
		res, text := n.ask(t, "POST", theHost, "/a%2Fb?q=1", strings.NewReader("four"), header())
		if res.StatusCode != 200 || res.Header.Get("Set-Cookie") != "mine=1" || res.Header.Get("X-Request-Id") != "mine" {
			t.Errorf("%s: %s %v", n.name, res.Status, res.Header)
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		for i, line := range lines {
			if strings.HasPrefix(line, "Berth") {
				t.Errorf("%s: the service is told %s", n.name, line)
			}
			_ = i
		}
		return lines
	}
	direct, through := asSet(sorted(second)), asSet(sorted(first))
	for line := range direct {
		if !through[line] {
			t.Errorf("directly only: %s", line)
		}
	}
	for line := range through {
		if !direct[line] {
			t.Errorf("through a node only: %s", line)
		}
	}
}

func asSet(lines []string) map[string]bool {
	set := map[string]bool{}
	for _, line := range lines {
		set[line] = true
	}
	return set
}

func TestPublicListener_BelievesNoInternalHeader(t *testing.T) {
	_, first, second := pair(t, echo, func(string) http.Handler { return echo })
	forged := map[string]string{
		wire.HeaderCallerIP: "6.6.6.6", wire.HeaderCallerProto: "https", wire.HeaderHops: "2", wire.HeaderProtocol: "99",
	}
	for name, value := range forged {
		for _, spelling := range []string{name, strings.ToLower(name), strings.ReplaceAll(name, "-", "_"), strings.ToUpper(strings.Replace(name, "-", "_", 1))} {
			for _, n := range []*node{first, second} {
				for _, at := range []string{theHost + "/x", baseHost + "/v0/stacks/" + theStack + "/logs", baseHost + "/v0/me"} {
					host, path, _ := strings.Cut(at, "/")
					_, br := n.open(t, "GET /"+path+" HTTP/1.1\r\nHost: "+host+"\r\n"+spelling+": "+value+"\r\nConnection: close\r\n\r\n")
					res, err := http.ReadResponse(br, nil)
					if err != nil {
						t.Fatal(err)
					}
					body, _ := io.ReadAll(res.Body)
					if res.StatusCode != 200 || strings.Contains(string(body), "6.6.6.6") || strings.Contains(string(body), "="+value+"\n") && value != "https" {
						t.Errorf("%s: %s through %s at %s: %s\n%s", spelling, value, n.name, at, res.Status, body)
					}
					if strings.Contains(string(body), "X-Forwarded-Proto=https") {
						t.Errorf("%s: the protocol is believed", spelling)
					}
				}
			}
		}
	}
}

func TestForward_StreamsBothWays(t *testing.T) {
	_, first, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		buf := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				break
			}
			w.Write(buf)
			w.(http.Flusher).Flush()
		}
		w.Header().Set("X-Sum", "done")
	}), noAPI)
	c, br := first.open(t, "POST / HTTP/1.1\r\nHost: "+theHost+"\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1)
	for _, b := range "abc" {
		if _, err := io.ReadFull(res.Body, buf); err != nil || buf[0] != byte(b) {
			t.Fatalf("%s %v", buf, err)
		}
		if b < 'c' {
			fmt.Fprintf(c, "1\r\n%c\r\n", b+1)
		}
	}
	io.WriteString(c, "0\r\n\r\n")
	if _, err := io.ReadAll(res.Body); err != nil || res.Trailer.Get("X-Sum") != "done" {
		t.Errorf("%v %v", err, res.Trailer)
	}
}

func TestForward_ShowsTheServiceThatTheClientLeft(t *testing.T) {
	left := make(chan struct{})
	_, first, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: one\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(left)
	}), noAPI)
	c, br := first.open(t, "GET / HTTP/1.1\r\nHost: "+theHost+"\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 9)
	if _, err := io.ReadFull(res.Body, line); err != nil || string(line) != "data: one" {
		t.Fatalf("%q %v", line, err)
	}
	c.Close()
	within(t, "the service sees that the client left", left)
}

func TestForward_ShowsTheClientThatTheServiceBrokeOff(t *testing.T) {
	_, first, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "part")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}), noAPI)
	_, br := first.open(t, "GET / HTTP/1.1\r\nHost: "+theHost+"\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(res.Body); err == nil || string(body) != "part" {
		t.Errorf("%q %v", body, err)
	}
}

func TestForward_CarriesUpgradedConnections(t *testing.T) {
	ended := make(chan struct{})
	_, first, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, br, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, br)
		close(ended)
	}), noAPI)
	c, br := first.open(t, "GET / HTTP/1.1\r\nHost: "+theHost+"\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 101 || res.Header.Get("Upgrade") != "echo" {
		t.Fatalf("%v %v", res, err)
	}
	for _, text := range []string{"one", "two"} {
		io.WriteString(c, text)
		got := make([]byte, 3)
		if _, err := io.ReadFull(br, got); err != nil || string(got) != text {
			t.Fatalf("%q %v", got, err)
		}
	}
	c.Close()
	within(t, "the service sees that the client left", ended)
}

func TestForward_PassesAnAnswerBeforeTheEndOfTheUpload(t *testing.T) {
	_, first, _ := pair(t, echo, func(node string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "too large for "+node, http.StatusRequestEntityTooLarge)
		})
	})
	body := io.LimitReader(zeros{}, 32<<20)
	res, text := first.ask(t, "POST", baseHost, "/v0/stacks/"+theStack+"/deploy", body, nil)
	if res.StatusCode != 413 || !strings.Contains(text, "n2") {
		t.Errorf("%s %s", res.Status, text)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestForward_WaitsWithTheBodyUntilTheOwnerWantsIt(t *testing.T) {
	_, first, _ := pair(t, echo, func(string) http.Handler { return echo })
	c, br := first.open(t, "POST /v0/stacks/"+theStack+"/deploy HTTP/1.1\r\nHost: "+baseHost+"\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if line, err := br.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("%q %v", line, err)
	}
	br.ReadString('\n')
	io.WriteString(c, "body")
	res, err := http.ReadResponse(br, nil)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%v %v", res, err)
	}
	if text, _ := io.ReadAll(res.Body); !strings.Contains(string(text), " 4\n") {
		t.Errorf("%s", text)
	}
}

func TestForward_KeepsAHundredRequestsApart(t *testing.T) {
	_, first, _ := pair(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.URL.Path, string(body))
	}), noAPI)
	client := newClient(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			for j := range 5 {
				path, text := fmt.Sprintf("/%d/%d", i, j), strings.Repeat(fmt.Sprint(i), 1000)
				got, err := first.post(client, path, text)
				if err != nil || got != path+text {
					t.Errorf("%s: %.40q %v", path, got, err)
				}
			}
		})
	}
	wg.Wait()
}

// post sends a text to the test's host through a node, again while that says that it had no
// connection, as it may on a machine that does too much else.
func (n *node) post(client *http.Client, path, text string) (string, error) {
	for {
		r, err := http.NewRequest("POST", "http://"+n.public+path, strings.NewReader(text))
		if err != nil {
			return "", err
		}
		r.Host = theHost
		res, err := client.Do(r)
		if err != nil {
			return "", err
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusBadGateway || res.Header.Get("Retry-After") == "" {
			return string(got), err
		}
	}
}

func TestForward_SendsEachRequestToTheNodeThatAnswersIt(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	w.give("place", "n2")
	for _, tt := range []struct {
		via          *node
		method, path string
		want         string
	}{
		{first, "GET", "/v0/stacks/" + theStack, "n1"},
		{first, "GET", "/v0/stacks/" + theStack + "/events", "n1"},
		{first, "GET", "/v0/stacks/" + theStack + "/logs", "n2"},
		{first, "HEAD", "/v0/stacks/" + theStack + "/logs", ""},
		{first, "PATCH", "/v0/stacks/" + theStack + "/", "n2"},
		{first, "DELETE", "/v0/stacks/" + theStack, "n2"},
		{first, "GET", "/v0/stacks/" + theStack + "/source/a/b.txt", "n2"},
		{first, "POST", "/v0/stacks/" + theStack + "/services/web/exec", "n2"},
		{first, "GET", "/v0/stacks/stk_ffffffffffff/logs", "n1"},
		{first, "GET", "/dashboard/stacks/" + theStack, "n2"},
		{first, "GET", "/dashboard/stacks/" + theStack + "?q=text&before=1.2", "n2"},
		{first, "GET", "/dashboard/stacks/" + theStack + "/log.txt", "n2"},
		{first, "GET", "/dashboard", "n1"},
		{first, "POST", "/v0/stacks", "n2"},
		{second, "POST", "/v0/stacks", "n2"},
		{second, "GET", "/v0/stacks/" + theStack + "/logs", "n2"},
	} {
		_, text := tt.via.ask(t, tt.method, baseHost, tt.path, nil, nil)
		if got, _, _ := strings.Cut(text, " "); got != tt.want {
			t.Errorf("%s %s through %s: %s, want %s", tt.method, tt.path, tt.via.name, text, tt.want)
		}
		if tt.want != "" && !strings.Contains(text, " "+theClient+" ") {
			t.Errorf("%s %s: the caller's address is not counted: %s", tt.method, tt.path, text)
		}
	}
}

func TestForward_SaysThatTheOwnerIsAwayOrLost(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	second.peers.Close()
	w.set("n2", peer.Away)
	w.give("place", "n2")
	for _, tt := range []struct {
		state              peer.State
		method, host, path string
		status             int
	}{
		{peer.Away, "GET", theHost, "/", 502},
		{peer.Away, "GET", baseHost, "/v0/stacks/" + theStack + "/logs", 502},
		{peer.Away, "DELETE", baseHost, "/v0/stacks/" + theStack, 503},
		{peer.Away, "POST", baseHost, "/v0/stacks", 503},
		{peer.Lost, "GET", theHost, "/", 503},
		{peer.Lost, "POST", baseHost, "/v0/stacks/" + theStack + "/restart", 503},
		{peer.Lost, "DELETE", baseHost, "/v0/stacks/" + theStack, 200}, // taken here
	} {
		w.set("n2", tt.state)
		header, want := http.Header{}, "application/json"
		if tt.host == theHost { // a browser's
			header, want = http.Header{"Accept": {"text/html,*/*"}}, "text/html; charset=utf-8"
		}
		res, text := first.ask(t, tt.method, tt.host, tt.path, nil, header)
		if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 && kind != want {
			t.Errorf("%s %s%s is answered with %s", tt.method, tt.host, tt.path, kind)
		}
		named := strings.Contains(text, "n2.internal") || tt.path == "/v0/stacks"
		if res.StatusCode != tt.status || tt.status != 200 && (res.Header.Get("Retry-After") == "" || !named) {
			t.Errorf("%s %s%s of a node that is %d: %s %v %s", tt.method, tt.host, tt.path, tt.state, res.Status, res.Header, text)
		}
	}
}

func TestForward_EndsACircle(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	third := w.join("n3", noAPI("n3"))
	second.routes.Lead(theStack, "*-0123456789ab.apps.test", second.pool.Peer("n3"))
	third.routes.Lead(theStack, "*-0123456789ab.apps.test", third.pool.Peer("n1"))
	second.routes.Refresh, third.routes.Refresh = nil, nil
	res, text := first.ask(t, "GET", theHost, "/", nil, nil)
	if res.StatusCode != 502 || res.Header.Get("Retry-After") == "" || !strings.Contains(text, "do not agree") {
		t.Errorf("%s %s", res.Status, text)
	}
}

func TestForward_FollowsAMoveThatItHasNotHeardOf(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	third := w.join("n3", noAPI("n3"))
	w.give(theStack, "n3")
	third.serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "third") }))
	if _, err := second.table.Reread(context.Background(), theStack); err != nil {
		t.Fatal(err)
	}
	if _, text := first.ask(t, "GET", theHost, "/", nil, nil); text != "third" {
		t.Errorf("%s", text)
	}
}

// What changes a stack waits while that moves, and goes to its new owner, as what reads its data
// does; what reads else does not.
func TestForward_WaitsForAMoveWithWhatChangesTheStack(t *testing.T) {
	w := newWorld(t)
	first, second := w.join("n1", saysItsName("n1")), w.join("n2", saysItsName("n2"))
	w.give(theStack, "n1")
	moves := func(stack string) {
		if stack != theStack {
			t.Errorf("it waits for %q", stack)
		}
		w.give(theStack, "n2")
	}
	first.moves.Store(&moves)
	path := "/v0/stacks/" + theStack + "/deploy"
	if _, got := first.ask(t, "GET", baseHost, "/v0/stacks/"+theStack+"/logs", nil, nil); got != "n1" {
		t.Errorf("%q answers what reads", got)
	}
	for _, path := range []string{"/v0/stacks/" + theStack + "/services/web/data", "/dashboard/stacks/" + theStack + "/data/web"} {
		w.give(theStack, "n1")
		if _, got := first.ask(t, "GET", baseHost, path, nil, nil); got != "n2" {
			t.Errorf("%q answers %s", got, path)
		}
	}
	for _, through := range []*node{first, second} {
		w.give(theStack, "n1")
		if _, got := through.ask(t, "POST", baseHost, path, strings.NewReader("the source"), nil); got != "n2" {
			t.Errorf("through %s: %q answers", through.name, got)
		}
	}
}

func saysItsName(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // an error is the caller's
		_, _ = io.WriteString(w, name)
	})
}

// A node that cannot read the database does not deny a stack that it has not heard of.
func TestForward_DeniesNoStackThatItCannotLookUp(t *testing.T) {
	w, first, _ := pair(t, echo, noAPI)
	w.mu.Lock()
	w.away = true
	w.mu.Unlock()
	const path = "/v0/stacks/stk_aaaaaaaaaaaa"
	for _, tt := range []struct{ method, host, path, says string }{
		{"GET", "web-aaaaaaaaaaaa.apps.test", "/", "does not know this address"},
		{"POST", baseHost, path + "/services/web/exec", "does not know this stack"},
		{"DELETE", baseHost, path, "so the stack was not deleted"},
	} {
		res, text := first.ask(t, tt.method, tt.host, tt.path, nil, nil)
		if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(text, tt.says) {
			t.Errorf("%s %s%s: %s %v %s", tt.method, tt.host, tt.path, res.Status, res.Header, text)
		}
	}
	claims := peer.Claims{Here: claimer{"n1"}, Owners: first.table, Self: "n1", Pool: first.pool}
	if _, err := claims.Claim(t.Context(), "stk_aaaaaaaaaaaa", "acc", "ana@example.com"); stack.KindOf(err) != stack.Unavailable {
		t.Errorf("a claim: %v", err)
	}
}

func TestForward_KnowsAStackThatAnotherNodeHasJustMade(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	const id, host = "stk_aaaaaaaaaaaa", "web-aaaaaaaaaaaa.apps.test"
	w.give(id, "n2")
	second.routes.Set(id, proxy.Entry{Status: "live", Hosts: map[string]proxy.Service{host: {Name: "web", Target: proxy.NewHandler(echo)}}})
	if res, text := first.ask(t, "GET", host, "/", nil, nil); res.StatusCode != 200 {
		t.Errorf("%s %s", res.Status, text)
	}
}

func TestForward_WaitsForAServerThatRestarts(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	w.mu.Lock()
	addr := w.addrs["n2"]
	w.addrs["n2"] = "127.0.0.1:1" // nobody listens there
	w.mu.Unlock()
	_ = second
	go func() {
		time.Sleep(300 * time.Millisecond)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.addrs["n2"] = addr
	}()
	if res, text := first.ask(t, "POST", theHost, "/", strings.NewReader("once"), nil); res.StatusCode != 200 || !strings.Contains(text, " 4\n") {
		t.Errorf("%s %s", res.Status, text)
	}
}

func TestGate_RefusesWhoIsNotANodeOfTheCluster(t *testing.T) {
	w, first, _ := pair(t, echo, noAPI)
	addr, _ := sight{w, "n1"}.Address("n2")
	stranger := newAuthority(t).issue(t, "n1")
	for name, certs := range map[string]*tls.Config{
		"no certificate":                  {},
		"a certificate of another issuer": {Certificates: []tls.Certificate{stranger.cert}},
	} {
		certs.InsecureSkipVerify = true
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: certs}, Timeout: 5 * time.Second}
		if res, err := client.Get("https://" + addr + "/peer/v1/ping"); err == nil {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
	ctx := context.Background()
	if pong, err := first.pool.Ping(ctx, "n2"); err != nil || pong.Node != "n2" || pong.Manager {
		t.Fatalf("%v %v", pong, err)
	}
	if res, text := first.ask(t, "GET", theHost, "/", nil, nil); res.StatusCode != 200 {
		t.Fatalf("%s %s", res.Status, text)
	}
	w.remove("n1") // its connections are still open
	if _, err := first.pool.Ping(ctx, "n2"); err == nil || !strings.Contains(err.Error(), "does not belong") {
		t.Errorf("a call of a node that was removed: %v", err)
	}
	if res, text := first.ask(t, "GET", theHost, "/", nil, nil); res.StatusCode != 403 {
		t.Errorf("a request of a node that was removed: %s %s", res.Status, text)
	}
}

// While berthd is replaced node by node, and if that is rolled back, nodes of two versions speak
// the one that both know.
func TestProtocol_IsTheLatestThatBothNodesSpeak(t *testing.T) {
	w := newWorld(t)
	w.give(theStack, "n2")
	first := w.joinAt(2, "n1", noAPI("n1"))
	for _, of := range []struct{ second, want int }{{1, 1}, {2, 2}, {3, 2}, {1, 1}} {
		second := w.joinAt(of.second, "n2", noAPI("n2"))
		second.serve(t, echo)
		second.calls.Handle("GET", "version", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%q", r.Header[wire.HeaderProtocol])
		}))
		for _, n := range []*node{first, second} {
			if err := n.table.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if res, text := first.ask(t, "GET", theHost, "/", nil, nil); res.StatusCode != 200 {
			t.Errorf("%+v: %s %s", of, res.Status, text)
		}
		answer, err := first.pool.Stream(t.Context(), "n2", "GET", "version", nil)
		if err != nil {
			t.Fatalf("%+v: %v", of, err)
		}
		said, _ := io.ReadAll(answer)
		if want := fmt.Sprintf("[%q]", strconv.Itoa(of.want)); string(said) != want {
			t.Errorf("%+v: said %s, want %s", of, said, want)
		}
		answer.Close()
		if _, err := second.pool.Ping(t.Context(), "n1"); err != nil {
			t.Errorf("%+v: %v", of, err)
		}
		second.peers.Close()
	}
}

func TestPool_BelievesOnlyTheNodeThatItAsksFor(t *testing.T) {
	w, first, _ := pair(t, echo, noAPI)
	w.join("n3", noAPI("n3"))
	w.mu.Lock()
	w.addrs["n2"] = w.addrs["n3"] // as after a change of addresses
	w.mu.Unlock()
	if res, text := first.ask(t, "GET", theHost, "/", nil, nil); res.StatusCode != 502 {
		t.Errorf("%s %s", res.Status, text)
	}
}

func TestCalls_AreNotPublic(t *testing.T) {
	_, first, _ := pair(t, echo, noAPI)
	if _, text := first.ask(t, "GET", baseHost, "/peer/v1/ping", nil, http.Header{wire.HeaderProtocol: {"1"}}); text != "n1 "+theClient+" /peer/v1/ping" {
		t.Errorf("a call on the public listener is not a request like any other: %s", text)
	}
}

// claimer claims stacks that are its own.
type claimer struct{ name string }

func (c claimer) Claim(_ context.Context, id, owner, email string) (*stack.Stack, error) {
	if email == "other@example.com" {
		return nil, &stack.Error{Kind: stack.Forbidden, Detail: "not with this email"}
	}
	return &stack.Stack{ID: id, Owner: owner, Name: c.name}, nil
}

func TestClaims_ReachTheOwner(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	second.calls.AnswerClaims(claimer{"n2"})
	claims := peer.Claims{
		Here: claimer{"n1"}, Owners: first.table, Self: "n1", Pool: first.pool,
		Read: func(_ context.Context, id string) (*stack.Stack, error) {
			return &stack.Stack{ID: id, Name: "read"}, nil
		},
	}
	ctx := context.Background()
	if s, err := claims.Claim(ctx, theStack, "acc_1", "ana@example.com"); err != nil || s.Name != "read" {
		t.Errorf("%v %v", s, err)
	}
	if _, err := claims.Claim(ctx, theStack, "acc_1", "other@example.com"); stack.KindOf(err) != stack.Forbidden || !strings.Contains(err.Error(), "not with this email") {
		t.Errorf("a refusal of the owner: %v", err)
	}
	w.give("stk_aaaaaaaaaaaa", "n1")
	if s, err := claims.Claim(ctx, "stk_aaaaaaaaaaaa", "acc_1", "ana@example.com"); err != nil || s.Name != "n1" {
		t.Errorf("%v %v", s, err)
	}
	second.peers.Close()
	w.set("n2", peer.Away)
	if _, err := claims.Claim(ctx, theStack, "acc_1", "ana@example.com"); stack.KindOf(err) != stack.Unreachable {
		t.Errorf("of a node that is away: %v", err)
	}
}

// giver is a node that gives a stack to another while that is claimed.
type giver struct {
	world *world
	to    string
}

func (g giver) Claim(_ context.Context, id, _, _ string) (*stack.Stack, error) {
	g.world.give(id, g.to)
	return nil, store.ErrNotOwner
}

func TestClaims_FollowAStackThatMoves(t *testing.T) {
	w, first, second := pair(t, echo, noAPI)
	third := w.join("n3", noAPI("n3"))
	second.calls.AnswerClaims(giver{w, "n3"})
	third.calls.AnswerClaims(claimer{"n3"})
	claims := peer.Claims{
		Here: giver{w, "n3"}, Owners: first.table, Self: "n1", Pool: first.pool,
		Read: func(_ context.Context, id string) (*stack.Stack, error) {
			return &stack.Stack{ID: id, Name: "read"}, nil
		},
	}
	for id, owner := range map[string]string{theStack: "n2", "stk_aaaaaaaaaaaa": "n1"} {
		w.give(id, owner)
		if s, err := claims.Claim(t.Context(), id, "acc_1", "ana@example.com"); err != nil || s.Name != "read" {
			t.Errorf("of %s: %v %v", owner, s, err)
		}
	}
	const id = "stk_bbbbbbbbbbbb" // goes around
	w.give(id, "n1")
	claims.Here = giver{w, "n2"}
	if _, err := claims.Claim(t.Context(), id, "acc_1", "ana@example.com"); stack.KindOf(err) != stack.Unavailable {
		t.Errorf("of a stack that goes on to move: %v", err)
	}
}

// rows has ten thousand stacks of another node.
type rows struct{ all []store.Placement }

func (r rows) Placements(context.Context) ([]store.Placement, error) { return r.all, nil }

func (r rows) PlacementsOf(context.Context, []string) ([]store.Placement, error) { return nil, nil }

func (r rows) Placement(context.Context, string) (store.Placement, error) {
	return store.Placement{}, nil
}

func (r rows) WatchIDs() (*store.Changes, func()) { return nil, func() {} }

func BenchmarkTable_Load10000(b *testing.B) {
	r, w := rows{}, newWorld(b)
	for i := range 10_000 {
		r.all = append(r.all, store.Placement{Stack: fmt.Sprintf("stk_%012x", i), Node: fmt.Sprintf("n%d", i%50)})
	}
	see := sight{w, "n0"}
	for b.Loop() {
		pool := peer.NewPool(peer.PoolConfig{Nodes: see, Certificates: w.authority.issue(b, "n0"), Protocol: peer.Protocol, Log: quiet})
		t := peer.NewTable(peer.TableConfig{Rows: r, Routes: &proxy.Routes{}, Self: "n0", Peer: pool.Peer, Domain: "apps.test", Log: quiet})
		if err := t.Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRequest compares requests to the owner with those through another node; 16
// connections, an answer of 1 KB.
func BenchmarkRequest(b *testing.B) {
	answer := make([]byte, 1024)
	_, first, second := pair(b, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(answer) }), noAPI)
	for _, via := range []struct {
		name string
		node *node
	}{{"owner", second}, {"through", first}} {
		b.Run(via.name, func(b *testing.B) {
			client := newClient(b)
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					r, _ := http.NewRequest("GET", "http://"+via.node.public+"/", nil)
					r.Host = theHost
					res, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
				}
			})
		})
	}
}
