package mail

import (
	"crypto/tls"
	"errors"
	"net"
	"net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	gomail "github.com/wneessen/go-mail"
)

// Server is where mails are handed in: a server that speaks SMTP. The zero Server is none.
type Server struct {
	host     string
	port     int
	user     string
	password string
	tls      bool // from the first byte on, rather than by STARTTLS
}

// ParseServer reads an address of the form smtp://[user:password@]host:port, or smtps:// for
// TLS from the first byte on. Its errors do not repeat the address, which has a password.
func ParseServer(text string) (Server, error) {
	errForm := errors.New("write it as smtp://user:password@host:587, or smtps://user:password@host:465; characters such as @ and / of the password as %40 and %2F")
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "smtp" && u.Scheme != "smtps" {
		return Server{}, errForm
	}
	if u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return Server{}, errors.New("it ends with the port; " + errForm.Error())
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil || port < 1 || port > 65535 {
		return Server{}, errors.New("the port is missing or wrong; " + errForm.Error())
	}
	password, _ := u.User.Password()
	if (u.User.Username() == "") != (password == "") {
		return Server{}, errors.New("give both a user and a password, or neither")
	}
	return Server{host: u.Hostname(), port: port, user: u.User.Username(), password: password, tls: u.Scheme == "smtps"}, nil
}

// ParseSender reads the address that mails come from: berth@example.com, or with a name,
// Berth <berth@example.com>.
func ParseSender(text string) (mail.Address, error) {
	sender, err := mail.ParseAddress(text)
	if err != nil {
		return mail.Address{}, errors.New("it must be an address such as berth@example.com, or Berth <berth@example.com>")
	}
	return *sender, nil
}

// local reports whether the server is on this machine.
func (s Server) local() bool {
	address, err := netip.ParseAddr(s.host)
	return s.host == "localhost" || err == nil && address.IsLoopback()
}

// address returns the server's address without the password, for the log.
func (s Server) address() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// sendTimeout limits how long a server may take for each step of a mail.
const sendTimeout = 30 * time.Second

// client returns a client for one mail. A password leaves this machine only over TLS. The
// certificate of a server on this machine is not checked: the connection never leaves it, and a
// fresh Postfix offers STARTTLS with a certificate that it made itself.
func (s Server) client() (*gomail.Client, error) {
	options := []gomail.Option{gomail.WithPort(s.port), gomail.WithTimeout(sendTimeout)}
	if s.local() {
		options = append(options, gomail.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}))
	}
	switch {
	case s.tls:
		options = append(options, gomail.WithSSL())
	case s.password != "" && !s.local():
		options = append(options, gomail.WithTLSPolicy(gomail.TLSMandatory))
	default:
		options = append(options, gomail.WithTLSPolicy(gomail.TLSOpportunistic))
	}
	if s.password != "" {
		options = append(options, gomail.WithUsername(s.user), gomail.WithPassword(s.password), gomail.WithOpportunisticSMTPAuth(s.mechanisms()...))
	}
	return gomail.NewClient(s.host, options...)
}

// mechanisms are the ways to log in, the best first.
func (s Server) mechanisms() []gomail.SMTPAuthType {
	ways := []gomail.SMTPAuthType{gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthSCRAMSHA1, gomail.SMTPAuthCramMD5}
	if s.local() && !s.tls {
		return append(ways, gomail.SMTPAuthPlainNoEnc, gomail.SMTPAuthLoginNoEnc)
	}
	return append(ways, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin)
}
