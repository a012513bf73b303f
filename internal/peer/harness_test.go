package peer_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/peer"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/stackid"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/wire"
)

const (
	theStack = "stk_0123456789ab"
	theHost  = "web-0123456789ab.apps.test"
	baseHost = "berth.test"
)

// silence is how long a node of the tests may answer no ping.
const silence = 100 * time.Millisecond

var quiet = slog.New(slog.DiscardHandler)

// authority issues the certificates of nodes.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key}
	a.cert = a.sign(t, &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}, &key.PublicKey)
	return a
}

func (a *authority) sign(t testing.TB, c *x509.Certificate, public any) *x509.Certificate {
	t.Helper()
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent := c
	if a.cert != nil {
		parent = a.cert
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// identity is the certificates of one node.
type identity struct {
	cert  tls.Certificate
	roots *x509.CertPool
}

func (a *authority) issue(t testing.TB, node string) identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: node},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, &key.PublicKey)
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return identity{tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}, roots}
}

func (i identity) Certificate() (*tls.Certificate, error) { return &i.cert, nil }
func (i identity) Roots() (*x509.CertPool, error)         { return i.roots, nil }

// world is a cluster in memory: what all nodes see of each other, and the rows.
type world struct {
	t         testing.TB
	authority *authority

	mu     sync.Mutex
	addrs  map[string]string
	states map[string]peer.State
	owners map[string]string
	away   bool // the database
}

func newWorld(t testing.TB) *world {
	return &world{t: t, authority: newAuthority(t), addrs: map[string]string{}, states: map[string]peer.State{}, owners: map[string]string{}}
}

func (w *world) set(node string, state peer.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states[node] = state
}

func (w *world) remove(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.addrs, node)
}

func (w *world) give(stack, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[stack] = node
}

// Placements, PlacementsOf, Placement and WatchIDs are peer.Rows.
func (w *world) Placements(context.Context) (all []store.Placement, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, node := range w.owners {
		all = append(all, store.Placement{Stack: id, Node: node})
	}
	return all, nil
}

func (w *world) PlacementsOf(ctx context.Context, _ []string) ([]store.Placement, error) {
	return w.Placements(ctx)
}

func (w *world) Placement(_ context.Context, id string) (store.Placement, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return store.Placement{}, errors.New("the database is away")
	}
	return store.Placement{Stack: id, Node: w.owners[id]}, nil
}

func (w *world) WatchIDs() (*store.Changes, func()) { return nil, func() {} }

// sight is what one node sees of the others.
type sight struct {
	world *world
	self  string
}

func (s sight) Self() string            { return s.self }
func (s sight) Name(node string) string { return node + ".internal" }
func (s sight) Manager() bool           { return s.self == "n1" }

func (s sight) Member(node string) bool {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return s.world.addrs[node] != ""
}

func (s sight) Address(node string) (string, peer.State) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	return s.world.addrs[node], s.world.states[node]
}

// node is a node of the world, with a public listener and one for nodes.
type node struct {
	name   string
	public string
	routes *proxy.Routes
	table  *peer.Table
	pool   *peer.Pool
	calls  peer.Calls
	edge   *edge.Server
	peers  *edge.Server
	moves  atomic.Pointer[func(stack string)] // called while a request waits for the end of a move; nil for none
}

// join starts a node whose API is the handler.
func (w *world) join(name string, api http.Handler) *node {
	w.t.Helper()
	return w.joinAt(peer.Protocol, name, api)
}

// joinAt is join for a node whose version of the protocol is another.
func (w *world) joinAt(protocol int, name string, api http.Handler) *node {
	w.t.Helper()
	see, certs := sight{w, name}, w.authority.issue(w.t, name)
	n := &node{name: name, routes: &proxy.Routes{}, calls: peer.NewCalls()}
	n.pool = peer.NewPool(peer.PoolConfig{Nodes: see, Certificates: certs, Protocol: protocol, Silence: silence, Log: quiet})
	n.table = peer.NewTable(peer.TableConfig{Rows: w, Routes: n.routes, Self: name, Peer: n.pool.Peer, Domain: "apps.test", Log: quiet})
	n.routes.Refresh = n.table.RereadHost
	n.calls.AnswerPing(see, "v1", func(string, time.Time) {})
	base := peer.NewForwarder(peer.ForwarderConfig{
		Here: api, Owners: n.table, Nodes: see, Peer: n.pool.Peer, Log: quiet,
		AwaitMove: func(_ context.Context, stack string) bool {
			moves := n.moves.Load()
			if moves != nil {
				(*moves)(stack)
			}
			return moves != nil
		},
		Place: func(_ context.Context, without []string) (string, error) {
			if len(without) > 0 {
				return "", io.EOF
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.owners["place"], nil
		},
	})
	cfg := edge.Config{BaseHost: baseHost, AppsDomain: "apps.test", Routes: n.routes, API: base, FastLane: lanetest.Fast(), Log: quiet}
	n.edge, n.public = listen(w.t, cfg)
	cfg.Peers, cfg.TLS = peer.NewGate(see, protocol, n.calls), peer.ServerTLS(certs, protocol)
	var addr string
	n.peers, addr = listen(w.t, cfg)
	w.mu.Lock()
	w.addrs[name] = addr
	w.mu.Unlock()
	return n
}

func listen(t testing.TB, cfg edge.Config) (*edge.Server, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := edge.NewServer(cfg)
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return s, l.Addr().String()
}

// serve makes a program serve the test's stack on this node.
func (n *node) serve(t testing.TB, program http.Handler) {
	t.Helper()
	s := httptest.NewUnstartedServer(program)
	s.Config.ErrorLog = slog.NewLogLogger(quiet.Handler(), slog.LevelDebug)
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	n.routes.Set(theStack, proxy.Entry{
		Status: stack.Live, Name: "shop", Wildcard: "*-" + stackid.Hex(theStack) + ".apps.test",
		Hosts: map[string]proxy.Service{theHost: {Name: "web", Target: proxy.NewUpstream(s.Listener.Addr().String(), proxy.Options{Log: quiet})}},
	})
}

// pair starts two nodes; the second has the test's stack and runs the program.
func pair(t testing.TB, program http.Handler, api func(node string) http.Handler) (w *world, first, second *node) {
	t.Helper()
	w = newWorld(t)
	first, second = w.join("n1", api("n1")), w.join("n2", api("n2"))
	second.serve(t, program)
	w.give(theStack, "n2")
	for _, n := range []*node{first, second} {
		if err := n.table.Load(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return w, first, second
}

// noAPI is the API of a test without one.
func noAPI(node string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s", node, r.Header.Get(wire.HeaderCallerIP), r.URL.Path)
	})
}

// theClient is the address of clients, which is not that of nodes.
const theClient = "127.0.0.2"

func newClient(t testing.TB) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(theClient)}}
	tr := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true, ExpectContinueTimeout: 5 * time.Second, MaxIdleConnsPerHost: 128}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 30 * time.Second}
}

// ask sends a request for a host through a node.
func (n *node) ask(t testing.TB, method, host, path string, body io.Reader, header http.Header) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest(method, "http://"+n.public+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if header != nil {
		r.Header = header
	}
	res, err := newClient(t).Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res, string(text)
}

// open sends a raw head for the test's host through a node.
func (n *node) open(t testing.TB, head string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", n.public)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// within fails the test when ch is not sent to or closed in time.
func within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatal("not in time: " + what)
		panic("unreachable")
	}
}
