package mail

import (
	"io"
	"mime/quotedprintable"
	netmail "net/mail"
)

// newQuotedReader reads the body of a mail, whichever way it is encoded.
func newQuotedReader(m *netmail.Message) io.Reader {
	if m.Header.Get("Content-Transfer-Encoding") == "quoted-printable" {
		return quotedprintable.NewReader(m.Body)
	}
	return m.Body
}
