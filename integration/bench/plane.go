package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
)

// The proxies have one core, and the service and what loads it another one.
const (
	proxyCore = 0
	loadCore  = 1
)

// A figure of requests counts if the proxy could not do more, and what loads it could.
const (
	leastProxyBusy = 0.95
	mostLoadBusy   = 0.90
)

// work is what the proxies are asked for, and the goals for Berth beside nginx.
type work struct {
	name      string
	path      string
	conns     int
	idle      int                // connections beside those, which are open and silent
	args      []string           // of wrk
	site      bool               // the static service
	tls       bool               // over TLS
	requests  float64            // lowest ratio of requests
	cpu       float64            // highest ratio of processor time for each; 0: as the requests' goal implies
	p99       float64            // highest ratio of the time within which 99 of 100 answers come; 0: none
	idleBytes float64            // highest cost of an idle connection, in KB
	others    map[string]float64 // lowest ratios of requests beside other peers, 0 for none
}

const postScript = `wrk.method = "POST"
wrk.body = string.rep("0123456789abcde\n", 1024)
`

var works = []work{
	{name: "proxied, 1 KB, 64 conn", path: "/1k.txt", conns: 64, requests: 1.05, cpu: 0.95, p99: 1.1, others: map[string]float64{"Caddy": 4, "HAProxy": 0, "ReverseProxy": 3}},
	{name: "proxied, 1 KB, 1 conn", path: "/1k.txt", conns: 1, requests: 0.95},
	{name: "proxied, 100 KB, 64 conn", path: "/100k.txt", conns: 64, requests: 1.3},
	{name: "proxied, 1 KB, 100 conn of 1,000", path: "/1k.txt", conns: 100, idle: 900, requests: 1, idleBytes: 8},
	{name: "POST of 16 KB, 64 conn", path: "/", conns: 64, args: []string{"-s", "post.lua"}, requests: 1},
	{name: "static, 1 KB, 64 conn", path: "/1k.txt", conns: 64, site: true, requests: 1},
	{name: "static, 100 KB, 64 conn", path: "/100k.txt", conns: 64, site: true, requests: 1},
	{name: "TLS, 1 KB, 64 conn", path: "/1k.txt", conns: 64, tls: true, requests: 0.9},
	{name: "TLS, 1 KB, new conn each", path: "/1k.txt", conns: 64, args: []string{"-H", "Connection: close"}, tls: true, requests: 0.8},
}

const planeManifest = "name: plane\nservices:\n  - name: web\n    runtime: " + runtimeRef + "\n    install: \"\"\n    build: \"\"\n    start: ./page\n  - name: site\n    runtime: static\n    publish: public\n"

// plane is the whole server beside its peers, each before the same service.
type plane struct {
	b           *bench
	certificate string // file of the certificate and its key
	folder      string // that of the site
	service     string // address of the program
	made        deployed
	server      *berth
	peers       map[bool][]*target // without and with TLS
}

// measurePlane compares requests through the whole server with those through its peers.
func (b *bench) measurePlane(ctx context.Context) error {
	p := &plane{b: b, peers: map[bool][]*target{}}
	defer p.stop()
	if err := p.prepare(ctx); err != nil {
		return err
	}
	for _, w := range works {
		if err := p.measure(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func (p *plane) stop() {
	for _, peers := range p.peers {
		for _, t := range peers {
			t.process.stop()
		}
	}
	if p.server != nil {
		p.server.close()
	}
}

// prepare starts everything that runs while requests are measured.
func (p *plane) prepare(ctx context.Context) (err error) {
	if p.folder, err = p.b.writeFolder(); err != nil {
		return err
	}
	if p.certificate, err = p.b.writeCertificate(); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.b.dir, "post.lua"), []byte(postScript), 0o600); err != nil {
		return err
	}
	p.b.core = fmt.Sprint(proxyCore)
	defer func() { p.b.core = "" }()
	if err := p.startServer(ctx); err != nil {
		return err
	}
	return p.startPeers(ctx)
}

// startServer starts the server with a stack of a program and a site.
func (p *plane) startServer(ctx context.Context) error {
	server, err := p.b.openBerth(ctx, nil)
	if err != nil {
		return err
	}
	p.server = server
	program, err := os.ReadFile(filepath.Join(p.b.tools, "page"))
	if err != nil {
		return err
	}
	files := map[string]string{"stack.yaml": planeManifest, "page": string(program)}
	for _, s := range sizes {
		text, err := os.ReadFile(filepath.Join(p.folder, s.path))
		if err != nil {
			return err
		}
		files["public"+s.path] = string(text)
	}
	packed, err := archive(files)
	if err != nil {
		return err
	}
	if p.made, _, err = server.create(ctx, packed); err != nil {
		return server.target.process.fault(err.Error())
	}
	p.service, err = server.hand.pin(ctx, p.made.ID, loadCore)
	return err
}

// restart restarts the server for a work, with or without TLS; its stack stays.
func (p *plane) restart(ctx context.Context, w work) error {
	server := p.server
	server.target.process.stop()
	env := server.env
	if w.tls {
		env = append(env[:len(env):len(env)], "BERTH_TLS=files", "BERTH_TLS_CERT="+p.certificate, "BERTH_TLS_KEY="+p.certificate,
			"BERTH_BASE_URL=https://localhost:"+portOf(server.target.addr))
	}
	p.b.core = fmt.Sprint(proxyCore)
	defer func() { p.b.core = "" }()
	t, err := p.b.startServer(ctx, "Berth", server.target.addr, env, filepath.Join(p.b.bin, "berthd"))
	if err != nil {
		return err
	}
	server.target = t
	_, err = poll(ctx, schemeOf(w)+t.addr+"/1k.txt", p.host(t, w))
	return err
}

func portOf(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return port
}

// pin keeps the processes of a stack's one program on a core, and returns the program's address.
func (h *byHand) pin(ctx context.Context, stack string, core int) (addr string, err error) {
	all, err := h.engine.ContainerList(ctx, container.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, c := range all {
		if !strings.Contains(strings.Join(c.Names, " "), strings.TrimPrefix(stack, "stk_")) {
			continue
		}
		found, err := h.engine.ContainerInspect(ctx, c.ID)
		if err != nil {
			return "", err
		}
		port := ""
		for _, v := range found.Config.Env {
			if value, ok := strings.CutPrefix(v, "PORT="); ok {
				port = value
			}
		}
		for _, on := range found.NetworkSettings.Networks {
			if port != "" && on.IPAddress != "" {
				addr = net.JoinHostPort(on.IPAddress, port)
			}
		}
		_, err = h.engine.ContainerUpdate(ctx, c.ID, container.UpdateConfig{Resources: container.Resources{CpusetCpus: fmt.Sprint(core)}})
		if addr != "" || err != nil {
			return addr, err
		}
	}
	return "", errors.New("the stack's program has no container")
}

// startPeers starts the peers, nginx first.
func (p *plane) startPeers(ctx context.Context) error {
	web := upstream{Name: "web", Host: "web.localhost", Addr: p.service}
	for secure, starts := range map[bool][]func() (*target, error){
		false: {
			func() (*target, error) { return p.b.startNginx(ctx, "nginx", "1", p.folder, web) },
			func() (*target, error) { return p.b.startHAProxy(ctx, p.service) },
			func() (*target, error) { return p.b.startCaddy(ctx, p.service) },
			func() (*target, error) { return p.b.startReverseProxy(ctx, p.service) },
		},
		true: {
			func() (*target, error) { return p.b.startNginxTLS(ctx, "nginx", "1", p.folder, p.certificate, web) },
		},
	} {
		for _, start := range starts {
			t, err := start()
			if err != nil {
				return err
			}
			p.peers[secure] = append(p.peers[secure], t)
		}
	}
	return nil
}

// figures are the samples of one server for one work.
type figures struct{ rps, micros, p99, proxyBusy, loadBusy []float64 }

// measure loads Berth and the peers of a work in turns and adds its rows.
func (p *plane) measure(ctx context.Context, w work) error {
	if err := p.restart(ctx, w); err != nil {
		return err
	}
	targets := []*target{p.server.target}
	for _, t := range p.peers[w.tls] {
		if _, other := w.others[t.name]; t.name == "nginx" || other {
			targets = append(targets, t)
		}
	}
	if w.tls {
		if err := sameCiphers(ctx, targets); err != nil {
			return err
		}
	}
	got := map[string]*figures{}
	cost := map[string][]float64{}
	for _, t := range targets {
		got[t.name] = &figures{}
		if _, err := p.load(ctx, t, w, time.Second); err != nil { // to warm it
			return err
		}
		if w.idle > 0 {
			each, stop, err := p.openIdle(t, w)
			defer stop()
			if err != nil {
				return err
			}
			cost[t.name] = []float64{each}
		}
	}
	for round := range p.b.rounds {
		for i := range targets {
			t := targets[i]
			if round%2 == 1 {
				t = targets[len(targets)-1-i]
			}
			s, err := p.load(ctx, t, w, p.b.round)
			if err != nil {
				return err
			}
			got[t.name].add(s)
		}
	}
	p.b.table.planeRows(w, got)
	if w.idle > 0 {
		p.b.table.limit(w.name+": memory of an idle connection", kilobytes, cost["Berth"], "nginx", cost["nginx"], w.idleBytes)
	}
	return nil
}

func (f *figures) add(s sample) {
	f.rps, f.micros, f.p99 = append(f.rps, s.rps), append(f.micros, s.micros), append(f.p99, s.p99)
	f.proxyBusy, f.loadBusy = append(f.proxyBusy, s.proxyBusy), append(f.loadBusy, s.loadBusy)
}

// planeRows adds the rows of a work. If its requests do not count, the processor time for each
// has to reach the goal in their place.
func (t *table) planeRows(w work, got map[string]*figures) {
	own, nginx := got["Berth"], got["nginx"]
	busy := fmt.Sprintf(" (cores %.0f %% and %.0f %% busy)", 100*median(own.proxyBusy), 100*median(own.loadBusy))
	requests, cpu := w.requests, w.cpu
	if !own.count() || !nginx.count() {
		requests = 0
		if cpu == 0 {
			cpu = 1 / w.requests
		}
	}
	t.share(w.name+": requests"+busy, perSecond, own.rps, "nginx", nginx.rps, requests)
	t.compare(w.name+": CPU per request", micros, own.micros, "nginx", nginx.micros, cpu)
	if w.p99 > 0 {
		t.compare(w.name+": 99 of 100 answers", micros, own.p99, "nginx", nginx.p99, w.p99)
	}
	for _, name := range []string{"HAProxy", "Caddy", "ReverseProxy"} {
		least, ok := w.others[name]
		switch {
		case !ok:
		case least == 0 || own.count() && got[name].count():
			t.share(w.name+": requests", perSecond, own.rps, name, got[name].rps, least)
		default:
			t.share(w.name+": requests", perSecond, own.rps, name, got[name].rps, 0)
			t.compare(w.name+": CPU per request", micros, own.micros, name, got[name].micros, 1/least)
		}
	}
}

// count reports whether the requests count: the proxy had too little of its core, and the load
// enough of the other one.
func (f *figures) count() bool {
	return median(f.proxyBusy) >= leastProxyBusy && median(f.loadBusy) < mostLoadBusy
}

// load has a server do a work for a time.
func (p *plane) load(ctx context.Context, t *target, w work, length time.Duration) (s sample, err error) {
	command := append([]string{"taskset", "-c", fmt.Sprint(loadCore)}, wrkCommand(w.conns, length, "--latency", "-H", "Host: "+p.host(t, w))...)
	for _, arg := range w.args {
		if strings.HasSuffix(arg, ".lua") {
			arg = filepath.Join(p.b.dir, arg)
		}
		command = append(command, arg)
	}
	command = append(command, schemeOf(w)+t.addr+w.path)
	before, err := t.process.cpu()
	if err != nil {
		return s, err
	}
	cores, err := readCores()
	if err != nil {
		return s, err
	}
	count, took, p99, err := runWrk(ctx, t.name, command)
	if err != nil {
		return s, t.process.fault(err.Error())
	}
	after, err1 := t.process.cpu()
	busy, err2 := cores.since()
	if err := errors.Join(err1, err2); err != nil {
		return s, err
	}
	return sample{
		rps: count / took.Seconds(), micros: float64((after - before).Microseconds()) / count, p99: float64(p99.Nanoseconds()) / 1000,
		proxyBusy: busy[proxyCore], loadBusy: busy[loadCore],
	}, nil
}

func schemeOf(w work) string {
	if w.tls {
		return "https://"
	}
	return "http://"
}

// host returns the host under which a server has what a work asks for.
func (p *plane) host(t *target, w work) string {
	service := "web"
	if w.site {
		service = "site"
	}
	switch {
	case t.name == "Berth":
		_, host, _ := strings.Cut(p.made.URLs[service], "://")
		return host
	case w.site:
		return "site.localhost"
	}
	return "web.localhost"
}

// openIdle opens connections that have carried a request each and stay silent until stop. It
// returns by how many KB the server's memory has grown for each.
func (p *plane) openIdle(t *target, w work) (each float64, stop func(), err error) {
	var all []net.Conn
	stop = func() {
		for _, c := range all {
			c.Close()
		}
	}
	before, err := t.process.memory("VmRSS")
	if err != nil {
		return 0, stop, err
	}
	request := "GET " + w.path + " HTTP/1.1\r\nHost: " + p.host(t, w) + "\r\n\r\n"
	for range w.idle {
		c, err := net.Dial("tcp", t.addr)
		if err != nil {
			return 0, stop, err
		}
		all = append(all, c)
		if _, err := c.Write([]byte(request)); err != nil {
			return 0, stop, err
		}
		if n, err := c.Read(make([]byte, 4096)); err != nil || n < 1<<10 {
			return 0, stop, fmt.Errorf("%d bytes of an answer: %w", n, err)
		}
	}
	after, err := t.process.memory("VmRSS")
	return float64(after-before) / float64(w.idle) / 1024, stop, err
}

// coreTimes are the times of each core since the machine's start: all, and without work.
type coreTimes map[int][2]float64

var coreLine = regexp.MustCompile(`(?m)^cpu(\d+) (.*)$`)

func readCores() (coreTimes, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return nil, err
	}
	times := coreTimes{}
	for _, m := range coreLine.FindAllSubmatch(text, -1) {
		var core int
		fmt.Sscan(string(m[1]), &core)
		var t [2]float64
		for i, field := range bytes.Fields(m[2]) {
			var ticks float64
			fmt.Sscan(string(field), &ticks)
			if i < 8 { // those after it are part of others
				t[0] += ticks
			}
			if i == 3 || i == 4 { // idle, iowait
				t[1] += ticks
			}
		}
		times[core] = t
	}
	return times, nil
}

// since returns which share of the time each core has worked since then.
func (c coreTimes) since() (busy map[int]float64, err error) {
	now, err := readCores()
	if err != nil {
		return nil, err
	}
	busy = map[int]float64{}
	for core, t := range now {
		if all := t[0] - c[core][0]; all > 0 {
			busy[core] = 1 - (t[1]-c[core][1])/all
		}
	}
	return busy, nil
}

// writeCertificate writes a certificate with its key to a file.
func (b *bench) writeCertificate() (path string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost", "*.localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return "", err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	path = filepath.Join(b.dir, "certificate.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
	return path, os.WriteFile(path, text, 0o600)
}

var negotiated = regexp.MustCompile(`(?m)^(?:Negotiated TLS1.3 group|.*Cipher is|Peer signature type).*$`)

// sameCiphers fails unless the servers agree on the same group, cipher and signature with a
// client that has no wishes of its own.
func sameCiphers(ctx context.Context, targets []*target) error {
	var first string
	for _, t := range targets {
		out, err := exec.CommandContext(ctx, "openssl", "s_client", "-connect", t.addr).CombinedOutput()
		said := string(bytes.Join(negotiated.FindAll(out, -1), []byte("; ")))
		if said == "" {
			return fmt.Errorf("openssl s_client on %s: %w\n%s", t.name, err, out)
		}
		if first == "" {
			first = said
			progress("TLS: %s", said)
		}
		if said != first {
			return fmt.Errorf("%s does not speak TLS as Berth does: %s; %s", t.name, first, said)
		}
	}
	return nil
}

// manyHosts are how many hosts a route table has beside one with a single one.
const (
	manyHosts     = 10_000
	leastForHosts = 0.97
)

// hostsScript asks for a host by chance each time. There are as many requests to choose from for
// one host as for many, so that what loads the listener costs the same.
const hostsScript = `local n, all = tonumber(os.getenv("HOSTS")), {}
init = function()
	for i = 1, 10000 do
		all[i] = wrk.format("GET", "/1k.txt", {["Host"] = string.format("web-%012x.localhost", i % n + 2)})
	end
end
request = function() return all[math.random(10000)] end
`

// measureHosts compares requests for one host with those for many hosts by chance, through the
// same listener.
func (b *bench) measureHosts(ctx context.Context) error {
	_, backend, err := b.startBackend(ctx)
	if err != nil {
		return err
	}
	defer backend.process.stop()
	script := filepath.Join(b.dir, "hosts.lua")
	if err := os.WriteFile(script, []byte(hostsScript), 0o600); err != nil {
		return err
	}
	b.core = fmt.Sprint(proxyCore)
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	front, err := b.startServer(ctx, "Berth", addr, nil, filepath.Join(b.bin, "front"), "-listen", addr, "-hosts", fmt.Sprint(manyHosts), "-upstream", "web="+backend.addr)
	b.core = ""
	if err != nil {
		return err
	}
	defer front.process.stop()
	rps := map[int][]float64{}
	for range b.rounds + 1 { // the first one warms it
		for _, hosts := range []int{1, manyHosts} {
			command := append([]string{"taskset", "-c", fmt.Sprint(loadCore), "env", fmt.Sprintf("HOSTS=%d", hosts)}, wrkCommand(64, b.round, "-s", script, "http://"+front.addr)...)
			count, took, _, err := runWrk(ctx, front.name, command)
			if err != nil {
				return front.process.fault(err.Error())
			}
			rps[hosts] = append(rps[hosts], count/took.Seconds())
		}
	}
	b.table.share(fmt.Sprintf("%d hosts, 1 KB, 64 conn: requests", manyHosts), perSecond, rps[manyHosts][1:], "one host", rps[1][1:], leastForHosts)
	return nil
}
