package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"
)

const (
	streamed     = 500 << 20
	memoryRounds = 3
	// memoryGoal is the limit for a proxy's buffers, in megabytes, however long the
	// stream is.
	memoryGoal = 8
)

// measureMemory compares the memory of Berth and nginx, both just started, while a long
// body passes.
func (b *bench) measureMemory(ctx context.Context) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	up, stop, err := startStream()
	if err != nil {
		return err
	}
	defer stop()
	starts := map[string]func(context.Context) (*target, error){
		"Berth": func(ctx context.Context) (*target, error) { return b.startFront(ctx, folder, up) },
		"nginx": func(ctx context.Context) (*target, error) { return b.startNginx(ctx, "nginx", "auto", folder, up) },
	}
	for _, d := range directions {
		grown := map[string][]float64{}
		for range memoryRounds {
			for name, start := range starts {
				growth, err := growth(ctx, start, d.pass)
				if err != nil {
					return err
				}
				grown[name] = append(grown[name], growth)
			}
		}
		b.table.limit(d.row, megabytes, grown["Berth"], "nginx", grown["nginx"], memoryGoal)
	}
	return nil
}

// directions are the ways in which a long body passes.
var directions = []struct {
	row  string
	pass func(ctx context.Context, addr string) error
}{{"memory while 500 MB go down", download}, {"memory while 500 MB go up", uploadFiller}}

// memoryTrials measures the memory of a front, just started, while a long body passes.
func (b *bench) memoryTrials(_ context.Context, s *stand) error {
	folder, err := b.writeFolder()
	if err != nil {
		return err
	}
	up, stop, err := startStream()
	if err != nil {
		return err
	}
	s.later(stop)
	start := func(ctx context.Context) (*target, error) { return b.startFront(ctx, folder, up) }
	for _, d := range directions {
		s.one(figure{what: d.row, unit: megabytes}, func(ctx context.Context) (float64, error) {
			return growth(ctx, start, d.pass)
		})
	}
	return nil
}

// growth returns by how many megabytes a server's memory grows beyond its size after a
// few small requests.
func growth(ctx context.Context, start func(context.Context) (*target, error), pass func(context.Context, string) error) (float64, error) {
	t, err := start(ctx)
	if err != nil {
		return 0, err
	}
	defer t.process.stop()
	for range 100 {
		if err := t.expect(ctx, streamHost, "/?bytes=1024", 1024); err != nil {
			return 0, err
		}
	}
	if err := t.process.forgetPeak(); err != nil {
		return 0, err
	}
	before, err := t.process.memory("VmRSS")
	if err != nil {
		return 0, err
	}
	if err := pass(ctx, t.addr); err != nil {
		return 0, t.process.fault(err.Error())
	}
	peak, err := t.process.memory("VmHWM")
	if err != nil {
		return 0, err
	}
	return float64(max(0, peak-before)) / (1 << 20), nil
}

// startStream starts the backend, in this process.
func startStream() (up upstream, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return up, nil, err
	}
	backend := &http.Server{Handler: http.HandlerFunc(stream), ReadHeaderTimeout: time.Minute}
	go backend.Serve(l) //nolint:errcheck // ends with Close
	return upstream{Name: "stream", Host: streamHost, Addr: l.Addr().String()}, func() { backend.Close() }, nil
}

// stream is the backend: it sends as many bytes as requested, and returns how many it
// received.
func stream(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		fmt.Fprint(w, n)
		return
	}
	n, _ := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	io.CopyN(w, filler{}, n)
}

// filler is an endless body with arbitrary content.
type filler struct{}

func (filler) Read(p []byte) (int, error) { return len(p), nil }

func download(ctx context.Context, addr string) error {
	status, n, err := get(ctx, fmt.Sprintf("http://%s/?bytes=%d", addr, streamed), streamHost)
	if err == nil && (status != http.StatusOK || n != streamed) {
		err = fmt.Errorf("status %d and %d bytes", status, n)
	}
	return err
}

func uploadFiller(ctx context.Context, addr string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/", io.LimitReader(filler{}, streamed))
	if err != nil {
		return err
	}
	r.Host, r.ContentLength = streamHost, streamed
	answer, err := direct.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && string(text) != strconv.Itoa(streamed) {
		err = fmt.Errorf("status %d: %.200s", answer.StatusCode, text)
	}
	return err
}
