package site

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

// discard is a ResponseWriter that costs nothing but its headers.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(b []byte) (int, error) { return len(b), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkHandler measures a hit alone, without the cost of net/http.
func BenchmarkHandler(b *testing.B) {
	page := bytes.Repeat([]byte("0123456789abcde\n"), 64)
	s := serve(b, Options{}, map[string]string{"index.html": string(page), "logo.png": string(page), "assets/app-3f2a9c1b.js": string(page)})
	for name, req := range map[string]*http.Request{
		"plain1K":     get("/logo.png"),
		"gzip1K":      get("/assets/app-3f2a9c1b.js", "Accept-Encoding", "gzip, deflate, br, zstd"),
		"notModified": get("/", "If-None-Match", "*"),
		"notFound":    get("/no/such/thing.png"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			w := &discard{header: http.Header{}}
			for b.Loop() {
				clear(w.header)
				s.ServeHTTP(w, req)
			}
		})
	}
}

// BenchmarkLoopback measures whole requests on one kept connection.
func BenchmarkLoopback(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10, 100 << 10} {
		b.Run(fmt.Sprintf("%dK", size>>10), func(b *testing.B) {
			s := serve(b, Options{}, map[string]string{"a/file.png": string(make([]byte, size))})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := &http.Server{Handler: s}
			go server.Serve(l)
			b.Cleanup(func() { server.Close() })
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { c.Close() })
			request := []byte("GET /a/file.png HTTP/1.1\r\nHost: x\r\n\r\n")
			c.Write(request)
			buf := make([]byte, size+4096)
			head, err := c.Read(buf)
			for err == nil && !bytes.Contains(buf[:head], []byte("\r\n\r\n")) {
				n, e := c.Read(buf[head:])
				head, err = head+n, e
			}
			total := bytes.Index(buf[:head], []byte("\r\n\r\n")) + 4 + size
			if _, err := io.ReadFull(c, buf[head:total]); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				c.Write(request)
				if _, err := io.ReadFull(c, buf[:total]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkOpen measures how long a site of many files takes to go live.
func BenchmarkOpen(b *testing.B) {
	for _, count := range []int{100, 20_000} {
		b.Run(fmt.Sprint(count), func(b *testing.B) {
			dir := b.TempDir()
			for i := range count {
				folder := filepath.Join(dir, "assets", fmt.Sprint(i%200))
				if i < 200 {
					if err := os.MkdirAll(folder, 0o755); err != nil {
						b.Fatal(err)
					}
				}
				if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("chunk-%d.js", i)), make([]byte, 2000), 0o644); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				s, err := Open(dir, Options{})
				if err != nil {
					b.Fatal(err)
				}
				s.Close()
			}
		})
	}
}

// BenchmarkPack measures the first request for a compressed bundle.
func BenchmarkPack(b *testing.B) {
	s := serve(b, Options{}, map[string]string{"app.js": string(script(1 << 20))})
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := s.pack(&s.routes["app.js"].file.plain); err != nil {
			b.Fatal(err)
		}
	}
}
