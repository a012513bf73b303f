package peer

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
)

// resumed is how many nodes' sessions are kept, so that a new connection needs no whole
// handshake.
const resumed = 1024

// ServerTLS returns the configuration of the listener for nodes, which speaks versions up to
// protocol. It demands a certificate of the installation's authority; whose it is, Gate looks at
// with each request.
func ServerTLS(certs Certificates, protocol int) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  offered(protocol),
		DynamicRecordSizingDisabled: true,                     // small records are for pages that browsers show in parts
		ClientAuth:                  tls.RequireAnyClientCert, // VerifyConnection asks for the roots of the moment
		GetCertificate:              func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certs.Certificate() },
		VerifyConnection: func(cs tls.ConnectionState) error {
			return verify(cs, certs, x509.ExtKeyUsageClientAuth)
		},
	}
}

// clientTLS returns the configuration for connections to any node. Connect sets its
// ServerName to the node's id.
func clientTLS(certs Certificates, protocol int) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		NextProtos:                  offered(protocol),
		DynamicRecordSizingDisabled: true,
		InsecureSkipVerify:          true, // VerifyConnection does it: nodes are named by id, not by address
		GetClientCertificate:        func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certs.Certificate() },
		ClientSessionCache:          tls.NewLRUClientSessionCache(resumed),
		VerifyConnection: func(cs tls.ConnectionState) error {
			if err := verify(cs, certs, x509.ExtKeyUsageServerAuth); err != nil {
				return err
			}
			if got := nodeOf(cs); got != cs.ServerName {
				return fmt.Errorf("the certificate is that of node %s, not of %s", got, cs.ServerName)
			}
			return nil
		},
	}
}

// verify checks the other side's certificate, also of a session that is resumed.
func verify(cs tls.ConnectionState, certs Certificates, use x509.ExtKeyUsage) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the other side has no certificate")
	}
	roots, err := certs.Roots()
	if err != nil {
		return err
	}
	between := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}

// nodeOf returns the node of the other side's certificate.
func nodeOf(cs tls.ConnectionState) string { return cs.PeerCertificates[0].Subject.CommonName }
