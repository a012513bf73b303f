// Package mailtest runs a server that takes mails, for tests.
package mailtest

import (
	"bufio"
	"io"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/url"
	"strings"
	"sync"
	"testing"

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
}

// Start runs a mailbox until the test ends. With a password, it takes mails from the user
// berth only.
func Start(t testing.TB, password string) *Mailbox {
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
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return b
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

type opener struct{ box *Mailbox }

// NewSession implements smtp.Backend.
func (o opener) NewSession(*smtp.Conn) (smtp.Session, error) {
	return &session{box: o.box, open: o.box.password == ""}, nil
}

type session struct {
	box  *Mailbox
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
