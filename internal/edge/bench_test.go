package edge

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/edge/lanetest"
	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
)

// The backend and the load run in processes of their own, so that the CPU
// counted in this one is the proxy's alone. The test binary plays both parts.
func TestMain(m *testing.M) {
	switch os.Getenv("BERTH_TEST_ROLE") {
	case "backend":
		benchBackend()
	case "load":
		benchLoad()
	default:
		os.Exit(lanetest.Run(m.Run))
	}
}

func benchBackend() {
	bodies := map[string][]byte{}
	for _, size := range []int{1 << 10, 100 << 10} {
		bodies["/"+strconv.Itoa(size)] = bytes.Repeat([]byte("b"), size)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr())
	panic(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := bodies[r.URL.Path]
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Write(body)
	})))
}

// benchLoad sends LOAD_COUNT requests over LOAD_CONNS keep-alive connections.
func benchLoad() {
	conns, _ := strconv.Atoi(os.Getenv("LOAD_CONNS"))
	count, _ := strconv.Atoi(os.Getenv("LOAD_COUNT"))
	size, _ := strconv.Atoi(os.Getenv("LOAD_SIZE"))
	request := []byte("GET /" + strconv.Itoa(size) + " HTTP/1.1\r\nHost: " + testService +
		"\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	var wg sync.WaitGroup
	for i := range conns {
		share := count / conns
		if i < count%conns {
			share++
		}
		wg.Go(func() { loadOne(os.Getenv("LOAD_ADDR"), request, size, share) })
	}
	wg.Wait()
}

func loadOne(addr string, request []byte, size, count int) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		panic(err)
	}
	defer c.Close()
	buf := make([]byte, size+8<<10)
	for range count {
		if _, err := c.Write(request); err != nil {
			panic(err)
		}
		for n, want := 0, -1; want < 0 || n < want; {
			m, err := c.Read(buf[n:])
			if err != nil {
				panic(err)
			}
			n += m
			if i := bytes.Index(buf[:n], []byte("\r\n\r\n")); want < 0 && i >= 0 {
				want = i + 4 + size
			}
		}
	}
}

func role(b *testing.B, name string, env ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "BERTH_TEST_ROLE="+name), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

func startBackend(b *testing.B) string {
	cmd := role(b, "backend")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	var addr string
	if _, err := fmt.Fscanln(out, &addr); err != nil {
		b.Fatal(err)
	}
	return addr
}

func serveBench(b *testing.B, serve func(net.Listener) error, stop func() error) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go serve(l)
	b.Cleanup(func() { stop() })
	return l.Addr().String()
}

func servePlain(b *testing.B, h http.Handler) string {
	srv := &http.Server{Handler: h}
	return serveBench(b, srv.Serve, srv.Close)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkProxy compares Berth's edge and proxy together with a bare
// httputil.ReverseProxy, in turns of the same run. The ratios are of nanoseconds and of CPU time in this process.
func BenchmarkProxy(b *testing.B) {
	backend := startBackend(b)
	plain := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: backend})
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	routes := &proxy.Routes{}
	routes.Set(testHex, proxy.Entry{
		Status: stack.Live,
		Hosts:  hosts(proxy.NewUpstream(backend, proxy.Options{})),
	})
	srv := NewServer(Config{BaseHost: "berth.test", AppsDomain: "apps.test", Routes: routes, FastLane: lanetest.Fast(), Log: quiet})
	addrs := [2]string{serveBench(b, srv.Serve, srv.Close), servePlain(b, plain)}
	for _, conns := range []int{1, 64} {
		for _, size := range []int{1 << 10, 100 << 10} {
			b.Run(fmt.Sprintf("conns=%d/size=%d", conns, size), func(b *testing.B) {
				compare(b, addrs, conns, size)
			})
		}
	}
}

func compare(b *testing.B, addrs [2]string, conns, size int) {
	const turns = 5
	var wall, cpu [2]time.Duration
	share := b.N/turns + 1
	for range turns {
		for i, addr := range addrs {
			before, start := cpuTime(), time.Now()
			cmd := role(b, "load", "LOAD_ADDR="+addr, "LOAD_CONNS="+strconv.Itoa(conns),
				"LOAD_COUNT="+strconv.Itoa(share), "LOAD_SIZE="+strconv.Itoa(size))
			if out, err := cmd.Output(); err != nil {
				b.Fatal(err, string(out))
			}
			wall[i] += time.Since(start)
			cpu[i] += cpuTime() - before
		}
	}
	n := float64(share * turns)
	b.ReportMetric(float64(cpu[0])/n, "cpu-ns/op")
	b.ReportMetric(float64(cpu[1])/n, "reverseproxy-cpu-ns/op")
	b.ReportMetric(float64(cpu[0])/float64(cpu[1]), "cpu-ratio")
	b.ReportMetric(float64(wall[0])/float64(wall[1]), "time-ratio")
}
