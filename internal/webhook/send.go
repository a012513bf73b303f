package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/berth-host/berth/internal/stack"
	"github.com/berth-host/berth/internal/store"
)

// Limits on what is read of an answer, in bytes: 64 KiB in all.
const (
	maxHead = 16 << 10
	maxBody = 48 << 10
)

// maxWords is how many characters of an answer's body the owner sees.
const maxWords = 200

// newTransport returns a transport that makes a new connection for each request, so
// that the guard checks every attempt. It uses no proxy, and, as any transport, follows
// no redirects and keeps no cookies.
func newTransport(g *guard, resolver *net.Resolver) *http.Transport {
	dialer := &net.Dialer{Control: g.control, Resolver: resolver}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHead,
	}
}

// outcome is the result of one attempt.
type outcome struct {
	status   int           // of the complete answer; 0 without one
	duration time.Duration // until the answer was complete; 0 without one
	words    string
	problem  string // in words for the stack's owner; "" for a success
	retry    bool   // another attempt may succeed
	cause    error  // for the operator's log; nil with an answer
}

// send makes one attempt. The body is the event in the encoding of the events endpoint.
func (d *Dispatcher) send(ctx context.Context, hook store.Webhook, e stack.Event) outcome {
	body, err := e.MarshalJSON()
	if err != nil {
		return d.unanswered(ctx, err)
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	at := time.Now()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
	if err != nil {
		return d.unanswered(ctx, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Berth-Webhook")
	req.Header.Set("X-Service-Event", string(e.Type))
	req.Header.Set("X-Service-Delivery", strconv.FormatInt(e.ID, 10))
	req.Header.Set("X-Service-Signature", sign(hook.Secret, at, body))
	status, text, err := exchange(d.transport, req)
	if err != nil {
		return d.unanswered(ctx, err)
	}
	return answered(status, text, time.Since(at))
}

// exchange sends a request and reads the answer, or as much of it as counts.
func exchange(transport http.RoundTripper, req *http.Request) (status int, body []byte, err error) {
	res, err := transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 599 {
		return 0, nil, fmt.Errorf("status %d is not a valid answer to a POST", res.StatusCode)
	}
	body, err = io.ReadAll(io.LimitReader(res.Body, maxBody))
	return res.StatusCode, body, err
}

// answered returns the outcome of a complete answer (docs/api.md, "Webhook delivery", 2
// to 4).
func answered(status int, body []byte, took time.Duration) outcome {
	o := outcome{status: status, duration: took, words: firstWords(body)}
	switch {
	case status >= 500:
		o.problem, o.retry = fmt.Sprintf("the receiver answered %d", status), true
	case status >= 400:
		o.problem = fmt.Sprintf("the receiver answered %d, which is final; make it answer 2xx to the events that it accepts", status)
	}
	return o
}

// unanswered returns the outcome of an attempt without a complete answer. The owner
// learns only whether time ran out: refused, reset, denied and not found read the same
// and take no time, so that nobody learns from it which addresses and ports exist.
func (d *Dispatcher) unanswered(ctx context.Context, cause error) outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return outcome{problem: fmt.Sprintf("there was no complete answer within %s", d.cfg.Timeout), retry: true, cause: cause}
	}
	return outcome{problem: "there was no answer; the URL must be reachable from the internet, with a valid certificate if it is https", retry: true, cause: cause}
}

// firstWords returns the beginning of a body as one line of text.
func firstWords(body []byte) string {
	text := strings.ToValidUTF8(string(body[:min(len(body), 8*maxWords)]), "�")
	line := strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
	if runes := []rune(line); len(runes) > maxWords {
		return string(runes[:maxWords-1]) + "…"
	}
	return line
}
