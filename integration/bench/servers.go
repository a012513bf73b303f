package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// The hosts of the front's services.
const (
	proxiedHost = "web-000000000001.localhost"
	streamHost  = "stream-000000000001.localhost"
	siteHost    = "site-000000000001.localhost"
)

// sizes are the bodies that are asked for, and the files that hold them.
var sizes = []struct {
	label, path string
	bytes       int64
}{
	{"1 KB", "/1k.txt", 1 << 10},
	{"100 KB", "/100k.txt", 100 << 10},
}

// writeFolder creates the folder that backend and sites serve.
func (b *bench) writeFolder() (string, error) {
	dir := filepath.Join(b.dir, "folder")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, s := range sizes {
		text := strings.Repeat("0123456789abcde\n", int(s.bytes/16))
		if err := os.WriteFile(filepath.Join(dir, s.path), []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// nginxConf makes nginx serve a folder and pass requests to upstreams, if any, keeping
// connections in both directions as Berth does.
var nginxConf = template.Must(template.New("nginx").Parse(`daemon off;
{{if .Root}}user root;{{end}}
worker_processes {{.Workers}};
pid {{.Dir}}/nginx.pid;
error_log stderr error;
events { worker_connections 4096; }
http {
	access_log off;
	default_type text/plain;
	sendfile on;
	tcp_nopush on;
	open_file_cache max=1000 inactive=60s;
	keepalive_requests 1000000000;
	keepalive_timeout 120s;
	client_body_temp_path {{.Dir}}/body;
	proxy_temp_path {{.Dir}}/proxy;
	fastcgi_temp_path {{.Dir}}/fastcgi;
	uwsgi_temp_path {{.Dir}}/uwsgi;
	scgi_temp_path {{.Dir}}/scgi;
	server {
		listen {{.Listen}};
		server_name _;
		root {{.Folder}};
	}
{{with .Certificate}}
	ssl_certificate {{.}};
	ssl_certificate_key {{.}};
	ssl_protocols TLSv1.3;
	ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;
	ssl_session_tickets off;
{{end}}
{{range .Upstreams}}
	upstream {{.Name}} { server {{.Addr}}; keepalive 256; keepalive_requests 1000000000; }
	server {
		listen {{$.Listen}}{{if $.Certificate}} ssl{{end}};
		server_name {{.Host}};
		client_max_body_size 0;
		location / {
			proxy_pass http://{{.Name}};
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $http_host;
			proxy_set_header X-Forwarded-For $remote_addr;
			proxy_set_header X-Forwarded-Proto $scheme;
			proxy_set_header X-Forwarded-Host $http_host;
			proxy_set_header X-Real-IP $remote_addr;
			proxy_set_header X-Request-Id $request_id;
			proxy_request_buffering off;
			proxy_buffers 16 8k;
			proxy_max_temp_file_size 0;
		}
	}
{{end}}
}
`))

// upstream is where a front passes requests for a host.
type upstream struct{ Name, Host, Addr string }

// startNginx starts a separate nginx.
func (b *bench) startNginx(ctx context.Context, name, workers, folder string, upstreams ...upstream) (*target, error) {
	return b.startNginxTLS(ctx, name, workers, folder, "", upstreams...)
}

// startNginxTLS is like startNginx with a file of a certificate and its key; "" for none.
func (b *bench) startNginxTLS(ctx context.Context, name, workers, folder, certificate string, upstreams ...upstream) (*target, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(b.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	conf := filepath.Join(dir, "nginx.conf")
	f, err := os.Create(conf)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	err = nginxConf.Execute(f, map[string]any{
		"Root": os.Geteuid() == 0, "Workers": workers, "Dir": dir, "Listen": addr, "Folder": folder, "Certificate": certificate, "Upstreams": upstreams,
	})
	if err != nil {
		return nil, err
	}
	return b.startServer(ctx, name, addr, nil, "nginx", "-e", "stderr", "-p", dir, "-c", conf)
}

// startBackend starts an nginx with the folder that is asked for.
func (b *bench) startBackend(ctx context.Context) (folder string, backend *target, err error) {
	if folder, err = b.writeFolder(); err != nil {
		return "", nil, err
	}
	backend, err = b.startNginx(ctx, "backend", "1", folder)
	return folder, backend, err
}

// startServer starts a program and waits until it listens.
func (b *bench) startServer(ctx context.Context, name, addr string, env []string, path string, args ...string) (*target, error) {
	p, err := b.startProgram(name, env, path, args...)
	if err != nil {
		return nil, err
	}
	if err := p.listening(ctx, addr); err != nil {
		p.stop()
		return nil, err
	}
	return &target{name: name, process: p, addr: addr}, nil
}

// startFront starts Berth's public listener without the rest of the server.
func (b *bench) startFront(ctx context.Context, folder string, upstreams ...upstream) (*target, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	args := []string{"-listen", addr, "-site", "site=" + folder}
	for _, u := range upstreams {
		args = append(args, "-upstream", u.Name+"="+u.Addr)
	}
	return b.startServer(ctx, "Berth", addr, nil, filepath.Join(b.bin, "front"), args...)
}

// caddyfile configures a single reverse proxy.
const caddyfile = `{
	admin off
	auto_https off
	log {
		output discard
	}
}
http://:%[1]s {
	bind 127.0.0.1
	reverse_proxy %[2]s {
		transport http {
			keepalive_idle_conns_per_host 256
		}
	}
}
`

func (b *bench) startCaddy(ctx context.Context, backend string) (*target, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(b.dir, "Caddyfile")
	_, port, _ := strings.Cut(addr, ":")
	if err := os.WriteFile(conf, fmt.Appendf(nil, caddyfile, port, backend), 0o600); err != nil {
		return nil, err
	}
	home := []string{"HOME=" + b.dir, "XDG_DATA_HOME=" + b.dir, "XDG_CONFIG_HOME=" + b.dir}
	return b.startServer(ctx, "Caddy", addr, home, b.caddy, "run", "--config", conf, "--adapter", "caddyfile")
}

// haproxyConf configures a single reverse proxy on one thread.
const haproxyConf = `global
	nbthread 1
	maxconn 8000
defaults
	mode http
	timeout connect 5s
	timeout client 120s
	timeout server 120s
frontend public
	bind %[1]s
	option forwardfor
	default_backend service
backend service
	http-reuse always
	server one %[2]s
`

func (b *bench) startHAProxy(ctx context.Context, backend string) (*target, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	conf := filepath.Join(b.dir, "haproxy.cfg")
	if err := os.WriteFile(conf, fmt.Appendf(nil, haproxyConf, addr, backend), 0o600); err != nil {
		return nil, err
	}
	return b.startServer(ctx, "HAProxy", addr, nil, "haproxy", "-db", "-f", conf)
}

func (b *bench) startReverseProxy(ctx context.Context, backend string) (*target, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	return b.startServer(ctx, "ReverseProxy", addr, nil, filepath.Join(b.bin, "reverseproxy"), "-listen", addr, "-upstream", backend)
}
