// Command front is Berth's public listener without the rest of the server, for the
// benchmarks: the edge and the proxy, wired as in package server, with one live stack
// of fixed services and no engine.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime/debug"
	"strings"

	"github.com/berth-host/berth/internal/edge"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/site"
	"github.com/berth-host/berth/internal/stack"
)

// The services of the one stack are at <service>-000000000001.localhost.
const (
	stackID    = "one"
	hostSuffix = "-000000000001.localhost"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "address to serve")
	hosts := flag.Int("hosts", 0, "how many more hosts lead to the service web, each of a stack of its own")
	profile := flag.String("pprof", "", "address of net/http/pprof; none when empty")
	services := map[string]proxy.Service{}
	add := func(name string, target *proxy.Target) {
		services[name+hostSuffix] = proxy.Service{Name: name, Target: target}
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	flag.Func("upstream", "service=host:port, a service with a process", func(value string) error {
		name, addr, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("want service=host:port")
		}
		add(name, proxy.NewUpstream(addr, proxy.Options{Log: log}))
		return nil
	})
	flag.Func("site", "service=folder, a static service", func(value string) error {
		name, dir, _ := strings.Cut(value, "=")
		folder, err := site.Open(dir, site.Options{Log: log})
		if err != nil {
			return err
		}
		add(name, proxy.NewHandler(folder))
		return nil
	})
	flag.Parse()
	debug.SetGCPercent(400) // as berthd does while its heap is small
	if *profile != "" {
		go func() { log.Error("pprof ended", "error", http.ListenAndServe(*profile, nil)) }()
	}
	if err := serve(*listen, services, *hosts, log); err != nil {
		fmt.Fprintln(os.Stderr, "front:", err)
		os.Exit(1)
	}
}

// serve answers for the services until the process is stopped.
func serve(address string, services map[string]proxy.Service, hosts int, log *slog.Logger) error {
	routes := &proxy.Routes{}
	for i := range hosts {
		service := services["web"+hostSuffix]
		routes.Set(fmt.Sprint("stack", i), proxy.Entry{Status: stack.Live, Hosts: map[string]proxy.Service{fmt.Sprintf("web-%012x.localhost", i+2): service}, Unclaimed: true})
	}
	routes.Set(stackID, proxy.Entry{Status: stack.Live, Name: "bench", Hosts: services, Unclaimed: true})
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return edge.NewServer(edge.Config{
		BaseHost:   "localhost",
		AppsDomain: "localhost",
		Routes:     routes,
		API:        http.NotFoundHandler(),
		FastLane:   true,
		Log:        log,
	}).Serve(l)
}
