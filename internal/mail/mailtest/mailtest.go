// Package mailtest runs a server that takes mails, for tests.
package mailtest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Mail is a mail that a Mailbox took.
type Mail struct {
	From, To string // of the envelope
	Header   mail.Header
	Body     string // decoded, with \n at the end of each line
}

// Mailbox is a server that speaks SMTP on loopback.
type Mailbox struct {
	URL string // for BERTH_SMTP_URL

	mu       sync.Mutex
	mails    []Mail
	refusal  error // of the next recipients
	password string
	logins   int
	secured  int // mails that came over TLS
}

// Start runs a mailbox until the test ends. With a password, it takes mails from the user
// berth only.
func Start(t testing.TB, password string) *Mailbox {
	t.Helper()
	return start(t, password, nil)
}

// StartTLS is Start for a mailbox that offers STARTTLS with a certificate that nobody has
// signed but itself.
func StartTLS(t testing.TB, password string) *Mailbox {
	t.Helper()
	return start(t, password, &tls.Config{Certificates: []tls.Certificate{selfSigned(t)}})
}

func start(t testing.TB, password string, offered *tls.Config) *Mailbox {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &Mailbox{URL: "smtp://" + listener.Addr().String(), password: password}
	if password != "" {
		b.URL = "smtp://" + url.UserPassword("berth", password).String() + "@" + listener.Addr().String()
	}
	server := smtp.NewServer(opener{b})
	server.AllowInsecureAuth = true
	server.TLSConfig = offered
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return b
}

func selfSigned(t testing.TB) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"mail.invalid"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Refuse makes the server answer err to every recipient; nil ends that.
func (b *Mailbox) Refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refusal = err
}

// Take returns all mails so far, and forgets them.
func (b *Mailbox) Take() []Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.mails
	b.mails = nil
	return all
}

// Logins returns how often a client has logged in.
func (b *Mailbox) Logins() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logins
}

// Secured returns how many mails came over TLS.
func (b *Mailbox) Secured() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.secured
}

type opener struct{ box *Mailbox }

// NewSession implements smtp.Backend.
func (o opener) NewSession(c *smtp.Conn) (smtp.Session, error) {
	return &session{box: o.box, conn: c, open: o.box.password == ""}, nil
}

type session struct {
	box  *Mailbox
	conn *smtp.Conn
	open bool
	mail Mail
}

// AuthMechanisms implements smtp.AuthSession.
func (s *session) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth implements smtp.AuthSession.
func (s *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != "berth" || password != s.box.password {
			return smtp.ErrAuthFailed
		}
		s.box.mu.Lock()
		defer s.box.mu.Unlock()
		s.box.logins++
		s.open = true
		return nil
	}), nil
}

// Mail implements smtp.Session.
func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if !s.open {
		return smtp.ErrAuthRequired
	}
	s.mail.From = from
	return nil
}

// Rcpt implements smtp.Session.
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.mail.To = to
	return s.box.refusal
}

// Data implements smtp.Session.
func (s *session) Data(r io.Reader) error {
	m, err := mail.ReadMessage(bufio.NewReader(r))
	if err != nil {
		return err
	}
	body, err := io.ReadAll(decoded(m))
	if err != nil {
		return err
	}
	s.mail.Header, s.mail.Body = m.Header, strings.ReplaceAll(string(body), "\r\n", "\n")
	s.box.mu.Lock()
	defer s.box.mu.Unlock()
	s.box.mails = append(s.box.mails, s.mail)
	if _, ok := s.conn.TLSConnectionState(); ok {
		s.box.secured++
	}
	return nil
}

// Reset implements smtp.Session.
func (s *session) Reset() {}

// Logout implements smtp.Session.
func (s *session) Logout() error { return nil }

// decoded reads the body of a mail, whichever way it is encoded.
func decoded(m *mail.Message) io.Reader {
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		return quotedprintable.NewReader(m.Body)
	}
	return m.Body
}
