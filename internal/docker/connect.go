package docker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"

	"github.com/docker/docker/client"
	"github.com/docker/go-connections/tlsconfig"

	"github.com/berth-host/berth/internal/engine"
)

// connect returns a client of the engine at host. It sends nothing.
func connect(ctx context.Context, host string, opts ...client.Opt) (*client.Client, error) {
	at, err := client.ParseHostURL(host)
	if err != nil {
		return nil, err
	}
	if at.Scheme != "unix" {
		if err := near(ctx, at); err != nil {
			return nil, fmt.Errorf("%w; set an engine on this machine, such as unix:///path or tcp://127.0.0.1:port", err)
		}
		secure, err := tlsFromEnv()
		if err != nil {
			return nil, err
		}
		if secure != nil { // before the host, which settles how this transport dials
			opts = append(opts, client.WithHTTPClient(&http.Client{
				Transport: &http.Transport{TLSClientConfig: secure}, CheckRedirect: client.CheckRedirect,
			}))
		}
	}
	return client.NewClientWithOpts(append(opts, client.WithHost(host), client.WithVersionFromEnv(), client.WithAPIVersionNegotiation())...)
}

// near returns an error unless a host is this machine, since the addresses of another
// one's containers lead nowhere here. The error is engine.ErrUnreachable for a name that
// cannot be looked up now, as while the machine starts.
func near(ctx context.Context, at *url.URL) error {
	if at.Scheme != "tcp" {
		return fmt.Errorf("an engine cannot be reached with %s://", at.Scheme)
	}
	name, _, err := net.SplitHostPort(at.Host)
	if err != nil {
		return err
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if fault, ok := errors.AsType[*net.DNSError](err); ok && !fault.IsNotFound {
		return fmt.Errorf("%w: %w", engine.ErrUnreachable, err)
	}
	if err != nil {
		return err
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, ip := range found {
		if ip = ip.Unmap(); !ip.IsLoopback() && !ip.IsUnspecified() && !slices.ContainsFunc(own, has(ip)) {
			return fmt.Errorf("the engine at %s is on another machine, whose containers Berth cannot reach", at.Host)
		}
	}
	return nil
}

// has returns a function that reports whether an address of an interface is ip.
func has(ip netip.Addr) func(net.Addr) bool {
	return func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap() == ip
	}
}

// tlsFromEnv returns the TLS settings from DOCKER_CERT_PATH and DOCKER_TLS_VERIFY; nil
// when both are empty.
func tlsFromEnv() (*tls.Config, error) {
	dir, verify := os.Getenv(client.EnvOverrideCertPath), os.Getenv(client.EnvTLSVerify) != ""
	if dir == "" && verify {
		return nil, errors.New("DOCKER_TLS_VERIFY needs DOCKER_CERT_PATH, a folder with ca.pem, cert.pem and key.pem")
	}
	if dir == "" {
		return nil, nil
	}
	files := tlsconfig.Options{CAFile: filepath.Join(dir, "ca.pem"), ExclusiveRootPools: true, InsecureSkipVerify: !verify}
	if _, err := tlsconfig.Client(files); err != nil { // which names the file
		return nil, fmt.Errorf("DOCKER_CERT_PATH: %w", err)
	}
	files.CertFile, files.KeyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	cfg, err := tlsconfig.Client(files)
	if err != nil {
		return nil, fmt.Errorf("DOCKER_CERT_PATH: %s and %s: %w", files.CertFile, files.KeyFile, err)
	}
	return cfg, nil
}
