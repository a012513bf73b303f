package docker

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/engine"
)

// authority signs certificates for an engine and its clients.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string // with ca.pem, cert.pem and key.pem of a client
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{dir: t.TempDir()}
	a.cert, a.key = a.issue(t, "ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	cert, key := a.issue(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"ca.pem":   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
		"cert.pem": {Type: "CERTIFICATE", Bytes: cert.Raw},
		"key.pem":  {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		a.write(t, name, pem.EncodeToMemory(block))
	}
	return a
}

func (a *authority) write(t *testing.T, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(a.dir, name), content, 0o600))
}

// issue makes a certificate of a's, or one that signs itself before a has any.
func (a *authority) issue(t *testing.T, serial string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template.SerialNumber = new(big.Int).SetBytes([]byte(serial))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert, key
}

// listen returns a listener, and its address as an engine's, that asks clients for a
// certificate of a's.
func (a *authority) listen(t *testing.T) (listener net.Listener, host string) {
	t.Helper()
	cert, key := a.issue(t, "engine", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	clients := x509.NewCertPool()
	clients.AddCert(a.cert)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		ClientCAs:    clients, ClientAuth: tls.RequireAndVerifyClientCert,
	})
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener, "tcp://" + listener.Addr().String()
}

func TestOpen_SpeaksTLSWithAnEngineThatAsksForACertificate(t *testing.T) {
	b := aloneBench(t)
	a := newAuthority(t)
	listener, host := a.listen(t)
	b.relay(t, listener)
	t.Setenv("DOCKER_HOST", host)
	t.Setenv("DOCKER_TLS_VERIFY", "1")

	t.Setenv("DOCKER_CERT_PATH", a.dir)
	opened, err := Open(t.Context(), quiet)
	require.NoError(t, err)
	defer opened.Close()
	remote := NewDriver(opened, Info{}, DriverOptions{})
	require.NoError(t, remote.Accepts(t.Context()))
	id := b.run(t, b.spec("serve"))
	var out strings.Builder
	_, err = remote.Exec(t.Context(), id, helper("env", "FROM_IMAGE"), &out, &out)
	require.NoError(t, err)
	require.Equal(t, "yes\n", out.String())

	t.Setenv("DOCKER_CERT_PATH", newAuthority(t).dir)
	_, err = Open(t.Context(), quiet)
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	t.Setenv("DOCKER_TLS_VERIFY", "") // the engine may be anybody, and this client is not its own
	_, err = Open(t.Context(), quiet)
	require.ErrorContains(t, err, "remote error: tls: unknown certificate authority")
	t.Setenv("DOCKER_CERT_PATH", "")
	_, err = Open(t.Context(), quiet)
	require.Error(t, err)
}

func TestOpen_NamesTheFileThatIsWrong(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	t.Setenv("DOCKER_TLS_VERIFY", "1")
	_, err := Open(t.Context(), quiet)
	require.ErrorContains(t, err, "DOCKER_TLS_VERIFY needs DOCKER_CERT_PATH")
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem"} {
		for fault, harm := range map[string]func(path string) error{
			"missing": os.Remove,
			"a folder": func(path string) error {
				if err := os.Remove(path); err != nil {
					return err
				}
				return os.Mkdir(path, 0o700)
			},
			"empty":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
			"nonsense": func(path string) error { return os.WriteFile(path, []byte("-----BEGIN nonsense"), 0o600) },
		} {
			a := newAuthority(t)
			t.Setenv("DOCKER_CERT_PATH", a.dir)
			path := filepath.Join(a.dir, name)
			require.NoError(t, harm(path))
			_, err := Open(t.Context(), quiet)
			require.ErrorContains(t, err, path, "%s is %s", name, fault)
			require.NotErrorIs(t, err, engine.ErrUnreachable, "it would be waited for")
			require.NotContains(t, err.Error(), "\n")
		}
	}
}

func TestOpen_TakesOnlyAnEngineOfThisMachine(t *testing.T) {
	for host, reason := range map[string]string{
		"tcp://192.0.2.1:2376":     "the engine at 192.0.2.1:2376 is on another machine",
		"tcp://[2001:db8::1]:2376": "the engine at [2001:db8::1]:2376 is on another machine",
		"tcp://192.0.2.1":          "missing port",
		"ssh://root@192.0.2.1":     "cannot be reached with ssh://",
		"ssh://localhost":          "cannot be reached with ssh://",
		"npipe:////./pipe/docker":  "cannot be reached with npipe://",
		"nonsense":                 "unable to parse docker host",
	} {
		_, err := open(t.Context(), host, quiet)
		require.ErrorContains(t, err, reason)
		require.NotErrorIs(t, err, engine.ErrUnreachable, host)
		require.NotContains(t, err.Error(), "\n")
	}
	for _, host := range append(ownHosts(t), "localhost", "127.0.0.1", "127.9.9.9", "[::1]", "0.0.0.0") {
		_, err := open(t.Context(), "tcp://"+host+":1", quiet)
		require.ErrorIs(t, err, engine.ErrUnreachable, host)
	}
}

// ownHosts returns the addresses of this machine as they stand in a URL, but not those
// of bridges, which come and go with the networks of other tests.
func ownHosts(t *testing.T) (hosts []string) {
	t.Helper()
	interfaces, err := net.Interfaces()
	require.NoError(t, err)
	for _, i := range interfaces {
		if strings.HasPrefix(i.Name, "br-") {
			continue
		}
		addrs, err := i.Addrs()
		require.NoError(t, err)
		for _, a := range addrs {
			if ip := a.(*net.IPNet).IP; ip.To4() != nil {
				hosts = append(hosts, ip.String())
			}
		}
	}
	return hosts
}

// While a machine starts, its resolver may not answer yet.
func TestOpen_WaitsForAResolverButNotForAnUnknownName(t *testing.T) {
	usual := net.DefaultResolver
	defer func() { net.DefaultResolver = usual }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, syscall.ENETUNREACH
	}}
	_, err := open(t.Context(), "tcp://engine.test:2376", quiet)
	require.ErrorIs(t, err, engine.ErrUnreachable)

	net.DefaultResolver = resolver(t, func(question []byte) {
		const response, noSuchName = 0x80, 3
		question[2] |= response
		question[3] = noSuchName
	})
	_, err = open(t.Context(), "tcp://engine.test:2376", quiet)
	require.ErrorContains(t, err, "no such host")
	require.NotErrorIs(t, err, engine.ErrUnreachable)
}

// resolver returns one that sends every question back, changed by answer.
func resolver(t *testing.T, answer func([]byte)) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	go func() {
		defer close(done)
		b := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(b)
			if err != nil {
				return
			}
			answer(b[:n])
			_, _ = server.WriteTo(b[:n], from) // who asked asks again
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}
