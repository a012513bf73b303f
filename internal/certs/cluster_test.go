package certs_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/certs"
	"github.com/berth-host/berth/internal/store"
	"github.com/berth-host/berth/internal/store/postgrestest"
)

// TestMain lets the test binary be a node in a separate process, since certmagic keeps the
// challenges that a process began in its memory.
func TestMain(m *testing.M) {
	if os.Getenv("CERTS_TEST_NODE") != "" {
		runNode()
		return
	}
	os.Exit(m.Run())
}

// runNode serves TLS with the certificates of a database, and prints its address, until its
// standard input ends.
func runNode() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	node, err := newNode(context.Background(), os.Getenv("CERTS_TEST_DATABASE"), ln, os.Getenv("CERTS_TEST_DIRECTORY"), os.Getenv("CERTS_TEST_ROOT"))
	if err != nil {
		log.Fatal(err)
	}
	defer node()
	os.Stdout.WriteString(ln.Addr().String() + "\n")
	io.Copy(io.Discard, os.Stdin)
}

// newNode serves TLS at a listener with the certificates of a database.
func newNode(ctx context.Context, database string, ln net.Listener, directory, root string) (end func(), err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(root))
	db, err := store.Open(ctx, store.Options{Postgres: database, Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	a, err := certs.NewACME(certs.ACMEOptions{
		Directory: directory, Roots: roots, Listen: ln.Addr().String(),
		Allowed: func(_ context.Context, name string) bool { return strings.HasSuffix(name, ".ours.test") },
		Log:     slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return nil, err
	}
	a.Share(db)
	server := &http.Server{TLSConfig: a.TLS(), ErrorLog: log.New(io.Discard, "", 0)}
	go server.ServeTLS(ln, "", "")
	return func() { server.Close(); a.Close(); db.Close() }, nil
}

// shown returns the number of the certificate that a node has for a name.
func shown(t *testing.T, addr, name string, issuer *x509.CertPool) string {
	t.Helper()
	dialer := &tls.Dialer{NetDialer: &net.Dialer{Timeout: time.Minute}, Config: &tls.Config{ServerName: name, RootCAs: issuer}}
	conn, err := dialer.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("%s at %s: %v", name, addr, err)
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func TestACME_OrdersOnOneNodeAndIsCheckedAtAnother(t *testing.T) {
	database := postgrestest.Shared(t).Database(t)
	asked, err := net.Listen("tcp", "127.0.0.1:0") // where the authority checks
	if err != nil {
		t.Fatal(err)
	}
	authority := newAuthority(t, 1, asked.Addr().(*net.TCPAddr).Port)
	root := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.server.Raw}))
	end, err := newNode(t.Context(), database, asked, authority.directory, root)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	other := startNode(t, database, authority.directory, root)
	// The other one orders, and the authority comes here.
	first := shown(t, other, "web.ours.test", authority.issues)
	if here := shown(t, asked.Addr().String(), "web.ours.test", authority.issues); here != first {
		t.Errorf("the nodes have the certificates %s and %s", first, here)
	}
}

// startNode starts a node in a separate process and returns its address.
func startNode(t *testing.T, database, directory, root string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "CERTS_TEST_NODE=1", "CERTS_TEST_DATABASE="+database, "CERTS_TEST_DIRECTORY="+directory, "CERTS_TEST_ROOT="+root)
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); cmd.Wait() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
