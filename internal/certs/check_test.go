package certs

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheckFiles_ReturnsTheEndOfWhatServesAllNames(t *testing.T) {
	dir := t.TempDir()
	cert, key := pairIn(dir)
	writePair(t, cert, key, "*.apps.test")
	end, err := CheckFiles(cert, key, []string{"x.apps.test"})
	if err != nil || time.Until(end) > time.Hour || time.Until(end) < 59*time.Minute {
		t.Errorf("%v, %v", end, err)
	}
	if _, err := CheckFiles(cert, key, []string{"x.apps.test", "berth.test"}); err == nil || !strings.Contains(err.Error(), "berth.test") {
		t.Errorf("a name that it does not have: %v", err)
	}
	writePair(t, filepath.Join(dir, "other"), key, "*.apps.test")
	if _, err := CheckFiles(cert, key, nil); err == nil || !strings.Contains(err.Error(), cert) {
		t.Errorf("another key: %v", err)
	}
}

func TestKept_FindsTheCertificatesOfAnAuthority(t *testing.T) {
	dir := t.TempDir()
	if found, err := Kept(filepath.Join(dir, "none")); err != nil || len(found) != 0 {
		t.Errorf("without a folder: %v, %v", found, err)
	}
	folder := filepath.Join(dir, "certificates", "authority", "berth.test")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	writePair(t, filepath.Join(folder, "berth.test.crt"), filepath.Join(folder, "berth.test.key"), "berth.test")
	found, err := Kept(dir)
	if err != nil || len(found) != 1 || time.Until(found["berth.test"]) < 59*time.Minute {
		t.Errorf("%v, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(folder, "bad.crt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Kept(dir); err == nil || !strings.Contains(err.Error(), "bad.crt") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestPresented_ReturnsTheEndOfWhatAServerShows(t *testing.T) {
	cert, key := pairIn(t.TempDir())
	writePair(t, cert, key, "berth.test")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.(*tls.Conn).Handshake() // the client ends it
			_ = conn.Close()
		}
	}()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	end, err := Presented(t.Context(), listener.Addr().String(), "berth.test")
	if err != nil || !end.Equal(leaf.NotAfter) {
		t.Errorf("%v, %v", end, err)
	}
}
