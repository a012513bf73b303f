package edge

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/proxy"
)

// get asks for a host on a connection, and returns the body and whether the connection ends.
func get(t *testing.T, c net.Conn, in *bufio.Reader, host string) (body string, closes bool) {
	t.Helper()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), res.Close
}

func TestServer_PassesOnWhatComesOnConnectionsThatItHas(t *testing.T) {
	addr, srv := start(t, testConfig(who("api")))
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "next "+r.Host+" of "+proxy.CallerOf(r).IP)
	})
	conns := map[string]net.Conn{}
	readers := map[string]*bufio.Reader{}
	for _, host := range []string{testService, "berth.test", "new"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[host], readers[host] = c, bufio.NewReader(c)
		if host == "new" {
			continue
		}
		if body, closes := get(t, c, readers[host], host); body == "" || closes {
			t.Errorf("%s before: %q, closes %v", host, body, closes)
		}
	}
	for srv.conns.Load()+int64(srv.lanes.count()) < 3 { // the server may not have the new one yet
		time.Sleep(time.Millisecond)
	}
	srv.PassOn(next)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		srv.Finish(t.Context())
	}()
	for _, host := range []string{testService, "berth.test"} {
		if body, closes := get(t, conns[host], readers[host], host); body != "next "+host+" of 127.0.0.1" || !closes {
			t.Errorf("%s: %q, closes %v", host, body, closes)
		}
	}
	select {
	case <-finished:
		t.Error("a connection waits for its first request")
	case <-time.After(3 * finishedEvery):
	}
	if body, closes := get(t, conns["new"], readers["new"], testService); body != "next "+testService+" of 127.0.0.1" || !closes {
		t.Errorf("on a new connection: %q, closes %v", body, closes)
	}
	<-finished
}

func TestServer_FinishEndsWithItsContext(t *testing.T) {
	addr, srv := start(t, testConfig(who("api")))
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	get(t, c, bufio.NewReader(c), testService)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	srv.Finish(ctx)
	if _, closes := get(t, c, bufio.NewReader(c), testService); closes {
		t.Error("it closed a connection")
	}
}
