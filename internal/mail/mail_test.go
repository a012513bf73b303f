package mail

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/stretchr/testify/require"
	gomail "github.com/wneessen/go-mail"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/mail/mailtest"
	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// env is a sender with its database and a mailbox.
type env struct {
	t       *testing.T
	store   *store.Store
	box     *mailtest.Mailbox
	sender  *Sender
	results []string
	ana     store.Account
}

func newEnv(t *testing.T, password string) *env {
	t.Helper()
	return newEnvWith(t, mailtest.Start(t, password))
}

func newEnvWith(t *testing.T, box *mailtest.Mailbox) *env {
	t.Helper()
	e := &env{t: t, box: box}
	var err error
	e.store, err = store.Open(t.Context(), store.Options{
		Path: filepath.Join(t.TempDir(), "db"), Sealer: auth.NewSealer(auth.Key{1}), Log: slog.New(slog.DiscardHandler), Mails: true,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.store.Close()) })
	address, err := ParseServer(e.box.URL)
	require.NoError(t, err)
	from, err := ParseSender("Berth <berth@host.example>")
	require.NoError(t, err)
	e.sender = New(Config{
		Store: e.store, Server: address, From: from, Base: "https://berth.example/", Log: slog.New(slog.DiscardHandler),
		Observe: func(result string) { e.results = append(e.results, result) },
	})
	t.Cleanup(e.sender.Close)
	e.ana, err = e.store.CreateAccount(t.Context(), "Ana@example.com", "", store.Key{Hash: []byte("key")})
	require.NoError(t, err)
	return e
}

// stack makes a stack of ana's, with a name as its tenant chose it.
func (e *env) stack(name string) *stack.Stack {
	e.t.Helper()
	k := stack.New(name, []stack.Spec{{Name: "web"}}, stack.Now())
	k.Owner = e.ana.ID
	require.NoError(e.t, e.store.Create(e.t.Context(), k, nil))
	return k
}

func (e *env) fail(k *stack.Stack, why string) {
	e.t.Helper()
	_, err := e.store.Update(e.t.Context(), k.ID, func(*stack.Stack) ([]stack.Event, error) {
		return []stack.Event{{Type: stack.EventFailed, Data: map[string]any{"error": why}}}, nil
	})
	require.NoError(e.t, err)
}

// one sends what is due, and returns the only mail of that.
func (e *env) one() mailtest.Mail {
	e.t.Helper()
	require.True(e.t, e.sender.sendNext())
	mails := e.box.Take()
	require.Len(e.t, mails, 1)
	require.False(e.t, e.sender.sendNext())
	return mails[0]
}

func TestNotice_SaysWhatFailedAndKeepsATenantsTextOutOfHeaders(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "")
	k := e.stack("shop\r\nBcc: eve@example.com")
	e.fail(k, "line one\r\n.\r\nBcc: eve@example.com\x1b[2J")
	m := e.one()
	require.Equal(t, "berth@host.example", m.From)
	require.Equal(t, "Ana@example.com", m.To)
	require.Equal(t, "Stack "+k.ID+" failed", m.Header.Get("Subject"))
	require.Equal(t, `"Berth" <berth@host.example>`, m.Header.Get("From"))
	require.Empty(t, m.Header.Get("Bcc"))
	for key, values := range m.Header {
		require.NotContains(t, strings.Join(values, " "), "eve@", key)
		require.NotContains(t, strings.Join(values, " "), "shop", key)
	}
	require.Contains(t, m.Body, `The stack "shop\r\nBcc: eve@example.com" (`+k.ID+") failed")
	require.Contains(t, m.Body, "    line one\n    .\n    Bcc: eve@example.com\\x1b[2J\n")
	require.Contains(t, m.Body, "https://berth.example/dashboard/stacks/"+k.ID+"\n")
	require.Contains(t, m.Body, "https://berth.example/dashboard/account.\n")
	require.Equal(t, []string{"sent"}, e.results)
}

func TestNotice_HasTheFiguresOfAStackThatIsTooLarge(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "")
	k := e.stack("shop")
	require.NoError(t, e.store.SetDisk(t.Context(), k.ID, stack.Disk{At: stack.Now()}, "the stack takes 12 MB and may take 10 MB"))
	m := e.one()
	require.Equal(t, "Stack "+k.ID+" takes too much of the disk", m.Header.Get("Subject"))
	require.Contains(t, m.Body, "    the stack takes 12 MB and may take 10 MB\n")
}

func TestNotice_GoesToNobodyOnceTheStackIsGone(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "")
	k := e.stack("shop")
	e.fail(k, "why")
	_, err := e.store.Update(t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	require.NoError(t, err)
	require.True(t, e.sender.sendNext())
	require.Empty(t, e.box.Take())
	require.False(t, e.sender.sendNext())
}

var link = regexp.MustCompile(`https://berth\.example/(signin/reset|signup/confirm)/(mail_[0-9A-Za-z]{32})\n`)

// token returns the token of a mail's link.
func token(t *testing.T, m mailtest.Mail, path string) string {
	t.Helper()
	found := link.FindStringSubmatch(m.Body)
	require.NotNil(t, found, m.Body)
	require.Equal(t, path, found[1])
	return found[2]
}

func TestReset_SendsALinkThatWorksToThoseWhoHaveAnAccount(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "")
	require.NoError(t, e.store.AskMail(t.Context(), store.Mail{Kind: store.MailReset, Address: "nobody@example.com"}))
	require.True(t, e.sender.sendNext())
	require.Empty(t, e.box.Take())
	require.NoError(t, e.store.AskMail(t.Context(), store.Mail{Kind: store.MailReset, Address: "ana@EXAMPLE.com"}))
	m := e.one()
	require.Equal(t, "Ana@example.com", m.To)
	used, err := e.store.ResetPassword(t.Context(), auth.Hash(token(t, m, "signin/reset")), "new hash", store.Key{Hash: []byte("new key")})
	require.NoError(t, err)
	require.Equal(t, e.ana.ID, used.Account.ID)
}

func TestConfirm_NamesTheStackThatItClaims(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "")
	require.NoError(t, e.store.AskMail(t.Context(), store.Mail{Kind: store.MailConfirm, Account: e.ana.ID, StackID: "stk_0123456789ab"}))
	m := e.one()
	require.Contains(t, m.Header.Get("Subject"), "stk_0123456789ab")
	used, err := e.store.ConfirmAddress(t.Context(), auth.Hash(token(t, m, "signup/confirm")))
	require.NoError(t, err)
	require.Equal(t, "stk_0123456789ab", used.StackID)
}

func TestSend_LogsInAndTriesAgainWhatIsRefusedForNow(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "p@ss:word")
	e.fail(e.stack("shop"), "why")
	e.box.Refuse(&smtp.SMTPError{Code: 451, Message: "later"})
	require.True(t, e.sender.sendNext())
	require.Equal(t, []string{"retried"}, e.results)
	require.False(t, e.sender.sendNext(), "it waits")
	e.box.Refuse(&smtp.SMTPError{Code: 550, Message: "no such user"})
	e.fail(e.stack("another"), "why")
	require.True(t, e.sender.sendNext())
	require.Equal(t, []string{"retried", "failed"}, e.results)
	require.Empty(t, e.box.Take())
	require.Equal(t, 2, e.box.Logins())
}

// A fresh Postfix offers STARTTLS with a certificate that it made itself.
func TestSend_TakesAnyCertificateOfAServerOnThisMachine(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"", "p@ss:word"} {
		e := newEnvWith(t, mailtest.StartTLS(t, password))
		e.fail(e.stack("shop"), "why")
		e.one()
		require.Equal(t, 1, e.box.Secured())
		require.Equal(t, []string{"sent"}, e.results)
	}
}

func TestClient_ChecksTheCertificateOfAnotherMachine(t *testing.T) {
	t.Parallel()
	box := mailtest.StartTLS(t, "")
	server, err := ParseServer(box.URL)
	require.NoError(t, err)
	address := server.address()
	server.host = "mail.example.com"
	client, err := server.client()
	require.NoError(t, err)
	require.NoError(t, gomail.WithDialContextFunc(func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	})(client))
	var unknown *tls.CertificateVerificationError
	require.ErrorAs(t, client.DialWithContext(t.Context()), &unknown)
}

func TestRetryAfter_GrowsAndEndsWithTheHour(t *testing.T) {
	t.Parallel()
	broken := errors.New("connection refused")
	m := store.Mail{CreatedAt: stack.Now()}
	var waits []time.Duration
	for m.Tries = 1; m.Tries <= 9; m.Tries++ {
		wait, again := retryAfter(m, broken)
		require.True(t, again)
		waits = append(waits, wait/time.Second)
	}
	require.Equal(t, []time.Duration{10, 20, 40, 80, 160, 320, 600, 600, 600}, waits)
	m.CreatedAt = m.CreatedAt.Add(time.Minute - store.MailLife)
	_, again := retryAfter(m, broken)
	require.False(t, again)
}

func TestSender_SendsInTheBackgroundUntilItIsClosed(t *testing.T) {
	t.Parallel()
	e := newEnv(t, "")
	sent := make(chan string, 10)
	e.sender.cfg.Observe = func(result string) { sent <- result }
	e.fail(e.stack("shop"), "why")
	e.sender.Start()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case result := <-sent:
		require.Equal(t, "sent", result)
	case <-ctx.Done():
		t.Fatal("nothing was sent")
	}
	e.sender.Close()
	require.Len(t, e.box.Take(), 1)
}

func TestParseServer(t *testing.T) {
	t.Parallel()
	good, err := ParseServer("smtps://berth:p%40ss@mail.example.com:465")
	require.NoError(t, err)
	require.Equal(t, Server{host: "mail.example.com", port: 465, user: "berth", password: "p@ss", tls: true}, good)
	require.NotContains(t, good.address(), "p@ss")
	for _, bad := range []string{
		"", "mail.example.com:25", "http://mail.example.com:25", "smtp://mail.example.com", "smtp://mail.example.com:0",
		"smtp://user@mail.example.com:25", "smtp://:secret@mail.example.com:25", "smtp://u:secret@h:25/path", "smtp://u:secret@h:25?x=1", "smtp://u:secret@ h:25",
	} {
		_, err := ParseServer(bad)
		require.Error(t, err, bad)
		require.NotContains(t, err.Error(), "secret")
		require.NotContains(t, err.Error(), "\n")
	}
}

// A password must not leave this machine in the clear.
func TestClient_NeedsTLSForAPasswordUnlessTheServerIsHere(t *testing.T) {
	t.Parallel()
	for address, policy := range map[string]string{
		"smtp://u:p@mail.example.com:587": "TLSMandatory",
		"smtp://mail.example.com:25":      "TLSOpportunistic",
		"smtp://u:p@127.0.0.1:25":         "TLSOpportunistic",
		"smtp://u:p@localhost:25":         "TLSOpportunistic",
		"smtp://u:p@[::1]:25":             "TLSOpportunistic",
	} {
		server, err := ParseServer(address)
		require.NoError(t, err)
		client, err := server.client()
		require.NoError(t, err)
		require.Equal(t, policy, client.TLSPolicy(), address)
	}
}
