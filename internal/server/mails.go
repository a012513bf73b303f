package server

import "github.com/berth-host/berth/internal/mail"

// The limits on mails with links, in an hour (docs/api.md, "Rate limits").
const (
	mailsToAddress = 3  // to one address
	mailsByNetwork = 10 // caused by one client network
)

// mails reports whether mails are sent.
func (c *Config) mails() bool { return c.SMTP != mail.Server{} }

// openMails begins to send mails, if the operator has named a server for them. It does not
// contact that server.
func (s *Server) openMails() {
	if !s.cfg.mails() {
		return
	}
	s.mails = mail.New(mail.Config{
		Store:   s.store,
		Server:  s.cfg.SMTP,
		From:    s.cfg.MailFrom,
		Base:    s.cfg.BaseURL.String(),
		Log:     s.log,
		Observe: s.metrics.Mail,
	})
	s.mails.Start()
}
