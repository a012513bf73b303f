package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp/fasthttputil"

	"github.com/berth-host/berth/internal/proxy"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/wire"
)

// startWithFiber serves an API as Berth's is built: Fiber that listens in
// memory and reads bodies as streams. /refuse answers before it reads one.
func startWithFiber(t *testing.T) string {
	t.Helper()
	app := fiber.New(fiber.Config{StreamRequestBody: true, DisableStartupMessage: true, BodyLimit: 1 << 30, ReadTimeout: time.Minute})
	app.Post("/refuse/:status", func(c *fiber.Ctx) error {
		status, _ := c.ParamsInt("status")
		return c.Status(status).JSON(fiber.Map{"detail": "refused"})
	})
	app.Post("/count", func(c *fiber.Ctx) error {
		var n int64
		if s := c.Context().RequestBodyStream(); s != nil {
			var err error
			if n, err = io.Copy(io.Discard, s); err != nil {
				return err
			}
		}
		return c.JSON(fiber.Map{"n": n, "expect": c.Get("Expect"), "ip": c.Get(wire.HeaderCallerIP)})
	})
	app.Get("/edge", func(c *fiber.Ctx) error {
		return c.SendString(c.Get(wire.HeaderCallerIP) + " " + c.Get("X-Request-Id") + " " + c.Get("X-Own"))
	})
	app.Get("/cookie", func(c *fiber.Ctx) error { return c.SendString(c.Get("Cookie")) })
	l := fasthttputil.NewInmemoryListener()
	go app.Listener(l)
	t.Cleanup(func() { app.Shutdown(); l.Close() })
	addr, _ := start(t, testConfig(Inner(l.Dial, quiet)))
	return addr
}

func TestInner_CarriesUploads(t *testing.T) {
	addr := startWithFiber(t)
	for _, size := range []int64{0, 1, 1 << 10, 1 << 20, 64 << 20} {
		for _, length := range []int64{size, -1} {
			r, err := http.NewRequest("POST", "http://"+addr+"/count", io.LimitReader(zeros{}, size))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = length
			r.Header.Set("Expect", "100-continue")
			res, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if want := fmt.Sprintf(`{"expect":"","ip":"127.0.0.1","n":%d}`, size); string(body) != want {
				t.Errorf("%d bytes as %d: %s", size, length, body)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestInner_KeepsItsCookies(t *testing.T) {
	addr := startWithFiber(t)
	r, _ := http.NewRequest("GET", "http://"+addr+"/cookie", nil)
	r.Header.Set("Cookie", "__Host-berth_session=mine")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, _ := io.ReadAll(res.Body); string(body) != "__Host-berth_session=mine" {
		t.Errorf("%q", body)
	}
}

// A client may list its own headers in Connection, but not those of the edge.
func TestInner_KeepsTheHeadersOfTheEdge(t *testing.T) {
	addr := startWithFiber(t)
	for _, connection := range []string{"", "X-Own", "Berth-Client-Ip, X-Request-Id, X-Own", "x-own, BERTH-CLIENT-IP, x-request-id, close"} {
		r, _ := http.NewRequest("GET", "http://"+addr+"/edge", nil)
		r.Header.Set("X-Request-Id", "mine")
		r.Header.Set("X-Own", "own")
		want := "127.0.0.1 mine own"
		if connection != "" {
			r.Header.Set("Connection", connection)
			want = "127.0.0.1 mine "
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != want {
			t.Errorf("Connection: %s: %q", connection, body)
		}
	}
}

// uploaders are common clients. Each posts the file $1 to the URL $2 and prints the
// status and the body that it got.
var uploaders = map[string][]string{
	"curl":           {"curl", "-sS", "--data-binary", "@$1", "-w", " %{http_code}", "$2"},
	"curl form":      {"curl", "-sS", "-F", "source=@$1", "-w", " %{http_code}", "$2"},
	"curl chunked":   {"curl", "-sS", "-T", "$1", "-X", "POST", "-H", "Transfer-Encoding: chunked", "-w", " %{http_code}", "$2"},
	"curl no expect": {"curl", "-sS", "--data-binary", "@$1", "-H", "Expect:", "-w", " %{http_code}", "$2"},
	"python": {"python3", "-c", `
import http.client, sys, urllib.parse
u = urllib.parse.urlparse(sys.argv[2])
c = http.client.HTTPConnection(u.netloc, timeout=60)
c.request("POST", u.path, body=open(sys.argv[1], "rb").read())
r = c.getresponse()
print(r.read().decode(), r.status)`, "$1", "$2"},
	"python urllib": {"python3", "-c", `
import sys, urllib.request, urllib.error
try:
    r = urllib.request.urlopen(urllib.request.Request(sys.argv[2], data=open(sys.argv[1], "rb").read(), method="POST"), timeout=60)
except urllib.error.HTTPError as e:
    r = e
print(r.read().decode(), r.status)`, "$1", "$2"},
	"node": {"node", "-e", `
const [file, url] = process.argv.slice(1)
const req = require("http").request(url, {method: "POST"}, res => {
  let body = ""
  res.on("data", d => body += d)
  res.on("end", () => { console.log(body, res.statusCode); process.exit(0) })
})
require("fs").createReadStream(file).pipe(req)`, "$1", "$2"},
	"node fetch": {"node", "-e", `
const [file, url] = process.argv.slice(1)
fetch(url, {method: "POST", body: require("fs").readFileSync(file)})
  .then(async r => console.log(await r.text(), r.status))`, "$1", "$2"},
}

// TestEarlyAnswers_AreReadByEveryClient refuses uploads of 1 KB to 60 MB
// before reading them: by the API, and by a service behind the proxy.
func TestEarlyAnswers_AreReadByEveryClient(t *testing.T) {
	addr := startWithFiber(t)
	for name, args := range uploaders {
		if _, err := exec.LookPath(args[0]); err != nil {
			t.Logf("%s is not installed", args[0])
			continue
		}
		for _, size := range []int64{1 << 10, 300 << 10, 60_000_000} {
			for _, status := range []string{"401", "413", "429"} {
				if size < 60_000_000 && status != "413" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%d/%s", name, size, status), func(t *testing.T) {
					out, err := upload(t, args, size, "http://"+addr+"/refuse/"+status)
					if want := `{"detail":"refused"} ` + status; err != nil || strings.TrimSpace(out) != want {
						t.Errorf("%q, %v", out, err)
					}
				})
			}
		}
	}
}

func upload(t *testing.T, args []string, size int64, url string) (string, error) {
	file := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(file, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	full := make([]string, len(args))
	for i, a := range args {
		full[i] = strings.NewReplacer("@$1", "@"+file, "$2", url).Replace(a)
		if a == "$1" {
			full[i] = file
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

func TestEarlyAnswers_AreReadByGo(t *testing.T) {
	addr := startWithFiber(t)
	for _, size := range []int64{1 << 10, 300 << 10, 60_000_000} {
		for _, length := range []int64{size, -1} {
			for range 5 {
				r, _ := http.NewRequest("POST", "http://"+addr+"/refuse/413", io.LimitReader(zeros{}, size))
				r.ContentLength = length
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatalf("%d bytes as %d: %v", size, length, err)
				}
				body, err := io.ReadAll(res.Body)
				res.Body.Close()
				if res.StatusCode != 413 || string(body) != `{"detail":"refused"}` || err != nil {
					t.Errorf("%d bytes as %d: %d %q %v", size, length, res.StatusCode, body, err)
				}
			}
		}
	}
}

// TestEarlyAnswers_OfServicesAreRead has a client that writes all of its upload
// before it reads, to a service that refuses it, chunked, and hangs up.
func TestEarlyAnswers_OfServicesAreRead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(413)
		w.(http.Flusher).Flush()
		io.WriteString(w, strings.Repeat("too large ", 5000))
	})}
	go srv.Serve(l)
	defer srv.Close()
	cfg := testConfig(who("api"))
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(l.Addr().String(), proxy.Options{Log: quiet}))})
	addr, _ := start(t, cfg)
	const size = 20_000_000
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n", testService, size)
	if n, err := io.Copy(c, io.LimitReader(zeros{}, size)); n != size {
		t.Fatalf("the upload was cut after %d bytes: %v", n, err)
	}
	answer, err := io.ReadAll(c)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 413 ") || !strings.Contains(string(answer), "too large") || !strings.HasSuffix(string(answer), "\r\n0\r\n\r\n") || err != nil {
		t.Errorf("%q %v", answer, err)
	}
}

// The API refuses a head that is larger than its buffer without reading the
// rest of it, so the last writes of such a head fail.
func TestEarlyAnswers_ToLargeHeadsAreRead(t *testing.T) {
	addr := startWithFiber(t)
	for range 20 {
		got := raw(t, addr, "GET /edge HTTP/1.1\r\nHost: berth.test\r\nConnection: close\r\n"+strings.Repeat("A: b\r\n", 5000)+"\r\n")
		if !strings.HasPrefix(got, "HTTP/1.1 431 ") {
			t.Fatalf("%.200q", got)
		}
	}
}

func TestServer_DoesNotReadAnUploadForEver(t *testing.T) {
	cfg := testConfig(Inner(func() (net.Conn, error) { return nil, errors.New("down") }, quiet))
	addr, srv := start(t, cfg)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: berth.test\r\nContent-Length: 1000000000\r\n\r\n")
	if n, err := io.Copy(c, io.LimitReader(zeros{}, 1_000_000_000)); err == nil {
		t.Errorf("%d bytes were taken", n)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// While a request in the first lane is under way, idle connections of the second one end, and
// the answer says that its own connection ends.
func TestServer_ShutdownTellsBothLanes(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(reached)
		<-release
		io.WriteString(w, "done")
	}))
	defer backend.Close()
	cfg := testConfig(who("api"))
	cfg.FastLane = true
	cfg.Routes.Set(testHex, proxy.Entry{Status: stack.Live, Hosts: hosts(proxy.NewUpstream(backend.Listener.Addr().String(), proxy.Options{Log: quiet}))})
	addr, srv := start(t, cfg)
	dial := func(host string) (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		return c, bufio.NewReader(c)
	}
	idle, in := dial("berth.test")
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, res.Body)
	_, busy := dial(testService)
	<-reached
	down := make(chan error, 1)
	go func() { down <- srv.Shutdown(context.Background()) }()
	idle.SetReadDeadline(time.Now().Add(30 * time.Second))
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("an idle connection to the API: %v", err)
	}
	close(release)
	if res, err := http.ReadResponse(busy, nil); err != nil || !res.Close {
		t.Errorf("the answer under way: %v, %v", res, err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

func TestServer_ShutdownLetsOpenRequestsFinish(t *testing.T) {
	reached, release := make(chan struct{}), make(chan struct{})
	addr, srv := start(t, testConfig(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(reached)
		<-release
		io.WriteString(w, "done")
	})))
	answer := make(chan string, 1)
	go func() {
		res, err := http.Get("http://" + addr + "/")
		if err != nil {
			answer <- err.Error()
			return
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body)
		answer <- string(b)
	}()
	<-reached
	down := make(chan error, 1)
	go func() { down <- srv.Shutdown(context.Background()) }()
	for { // until the listener is closed
		c, err := net.Dial("tcp", addr)
		if err != nil {
			break
		}
		c.Close()
	}
	close(release)
	if got := <-answer; got != "done" {
		t.Errorf("answer %q", got)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}
