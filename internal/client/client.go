// Package client speaks the HTTP API of a Berth server, which docs/api.md
// describes.
//
// A Client is bound to one server and one token. A refusal by the server is an *Error
// with the server's words; a server that does not answer is an *Unreachable. The
// package itself resolves names under localhost to loopback, since not every system's
// resolver knows them. Code in this package touches the network only; it shows nothing
// and remembers nothing, which package cli does.
package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// mostBody limits what is read of a JSON answer, in bytes.
const mostBody = 16 << 20

// Client sends requests to one server with one token.
type Client struct {
	base   *url.URL
	http   *http.Client
	header http.Header // of every request
}

// New returns a client of the server at an address such as https://berth.example.com.
// The default scheme is http for names of this machine and https for others. It has no
// token; see WithToken.
func New(server string) (*Client, error) { return NewOver(newHTTPClient(), server) }

// NewOver is like New for requests that h sends.
func NewOver(h *http.Client, server string) (*Client, error) {
	base, err := parseServer(server)
	if err != nil {
		return nil, err
	}
	return &Client{base: base, http: h, header: http.Header{"User-Agent": {"berth"}}}, nil
}

func parseServer(server string) (*url.URL, error) {
	text := strings.TrimSpace(server)
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if host, _, _ := strings.Cut(text, ":"); isLoopback(host) {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the address of a server; write it like https://berth.example.com", server)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return u, nil
}

// WithToken returns a client of the same server with another token, "" for none.
func (c *Client) WithToken(token string) *Client {
	authorization := http.Header{"Authorization": nil}
	if token != "" {
		authorization.Set("Authorization", "Bearer "+token)
	}
	return c.WithHeader(authorization)
}

// WithHeader returns a client of the same server that sends these headers with each
// request, in place of those of the same names. A header without values is not sent.
func (c *Client) WithHeader(header http.Header) *Client {
	other := *c
	other.header = c.header.Clone()
	maps.Copy(other.header, header)
	return &other
}

// Server returns the server's address, without a slash at its end.
func (c *Client) Server() string { return c.base.String() }

// request makes a request of the API; the path begins with a slash.
func (c *Client) request(ctx context.Context, method, path string, query url.Values, body io.Reader) (*http.Request, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	req.Header = c.header.Clone()
	return req, nil
}

// send returns the response of a success; the caller closes its body.
func (c *Client) send(req *http.Request) (*http.Response, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return nil, cmp.Or(req.Context().Err(), error(&Unreachable{Server: c.Server(), Err: err}))
	}
	if res.StatusCode >= 200 && res.StatusCode <= 299 {
		return res, nil
	}
	defer res.Body.Close()
	return nil, readError(res)
}

// open sends a request without a body and returns the body of a success; the caller closes it.
func (c *Client) open(ctx context.Context, method, path string, query url.Values) (io.ReadCloser, error) {
	req, err := c.request(ctx, method, path, query, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.send(req)
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// call sends a request with a JSON body, or none, and returns the JSON answer.
func call[T any](ctx context.Context, c *Client, method, path string, query url.Values, in any) (*T, error) {
	var body io.Reader
	if in != nil {
		text, _ := json.Marshal(in) // texts always encode
		body = bytes.NewReader(text)
	}
	req, err := c.request(ctx, method, path, query, body)
	if err != nil {
		return nil, err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return exchange[T](c, req)
}

// exchange sends a request and returns the JSON of a success.
func exchange[T any](c *Client, req *http.Request) (*T, error) {
	res, err := c.send(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); kind != "application/json" {
		return nil, &Error{Status: http.StatusBadGateway, Detail: fmt.Sprintf(
			"%s answered %s instead of JSON, so it is not a Berth server, or another program answers for it", c.Server(), cmp.Or(kind, "nothing"))}
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, mostBody))
	if err != nil {
		return nil, cmp.Or(req.Context().Err(), error(&Unreachable{Server: c.Server(), Err: err}))
	}
	answer := new(T)
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, &Error{Status: http.StatusBadGateway, Detail: fmt.Sprintf("%s sent an answer that cannot be read: %v", c.Server(), err)}
	}
	if s, ok := any(answer).(*Stack); ok {
		s.Digest = digestOf(res)
	}
	return answer, nil
}

// Error is a refusal of the server.
type Error struct {
	Status     int           // HTTP status
	Detail     string        // the server's sentence
	RetryAfter time.Duration // 0 if the server gives none
}

// Error returns the server's sentence.
func (e *Error) Error() string { return e.Detail }

// IsStatus reports whether err is a refusal with one of the statuses.
func IsStatus(err error, statuses ...int) bool {
	refusal, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(statuses, refusal.Status)
}

// IsNoStack reports whether err is the API's answer that no stack has this id. Another
// 404 says nothing about the stack: it may come from a proxy or another server.
func IsNoStack(err error, id string) bool {
	refusal, ok := errors.AsType[*Error](err)
	if !ok || refusal.Status != http.StatusNotFound {
		return false
	}
	sentence, _, _ := strings.Cut(refusal.Detail, ";")
	return sentence == "there is no stack "+id
}

// Unreachable is a server that does not answer, or whose answer broke off.
type Unreachable struct {
	Server string
	Err    error
}

// IsUnreachable reports whether err is that of a server that does not answer.
func IsUnreachable(err error) bool {
	_, is := errors.AsType[*Unreachable](err)
	return is
}

// Error names the server and the cause.
func (e *Unreachable) Error() string {
	cause := e.Err
	if u, ok := errors.AsType[*url.Error](cause); ok {
		cause = u.Err // the address and the method do not help a user
	}
	return fmt.Sprintf("the server at %s does not answer: %v", e.Server, cause)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// longestAbsence is how long a server may be away, for example to restart.
const longestAbsence = time.Minute

// Patience decides how long to go on asking a server that is away. The zero value is
// ready to use.
type Patience struct {
	lost time.Time // when the server was first found to be away; zero if it is there
}

// Over reports whether to give up after a request that ended with err: the server
// refused it, or has been away for a minute. A server that is starting is away, too, as is one
// that what stands before it cannot reach.
func (p *Patience) Over(err error) bool {
	if !IsUnreachable(err) && !IsStatus(err, http.StatusBadGateway, http.StatusServiceUnavailable) {
		p.lost = time.Time{}
		return err != nil
	}
	if p.lost.IsZero() {
		p.lost = time.Now()
	}
	return time.Since(p.lost) > longestAbsence
}

// mostDetail limits what is read of an error's body, in bytes.
const mostDetail = 64 << 10

func readError(res *http.Response) error {
	e := &Error{Status: res.StatusCode}
	if seconds, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	text, _ := io.ReadAll(io.LimitReader(res.Body, mostDetail)) // what arrived is enough
	var body struct {
		Detail string `json:"detail"`
	}
	if json.Unmarshal(text, &body) == nil {
		e.Detail = body.Detail
	}
	if e.Detail == "" {
		e.Detail = fmt.Sprintf("%s answered %s without a reason", res.Request.URL.Redacted(), res.Status)
	}
	return e
}
