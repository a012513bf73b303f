package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-host/berth/internal/pause"
)

// Stack is the stack object (docs/api.md, "The stack") with the one-time fields
// of a create. Times are Unix seconds.
type Stack struct {
	ID            string            `json:"id"`
	Name          string            `json:"name"`
	Status        string            `json:"status"`
	Claimed       bool              `json:"claimed"`
	URLs          map[string]string `json:"urls"`
	Services      []Service         `json:"services"`
	CreatedAt     float64           `json:"created_at"`
	ExpiresAt     *float64          `json:"expires_at"`
	ExpiredAt     *float64          `json:"expired_at"`
	RetainedUntil *float64          `json:"retained_until"`
	Generation    int               `json:"generation"`
	Deploying     *int              `json:"deploying"`
	Error         *string           `json:"error"`
	DeployError   *string           `json:"deploy_error"`
	Deploy        *Deploy           `json:"deploy"`
	Role          string            `json:"role,omitempty"`

	ManageToken   string `json:"manage_token,omitempty"`
	ClaimCode     string `json:"claim_code,omitempty"`
	ClaimURL      string `json:"claim_url,omitempty"`
	Note          string `json:"note,omitempty"`
	WebhookSecret string `json:"webhook_secret,omitempty"`

	Digest string `json:"-"` // of the source, in the answer to an upload
}

// Deploy is the latest attempt to deploy a stack (docs/api.md, "The deploy").
type Deploy struct {
	Generation int      `json:"generation"`
	Attempt    int      `json:"attempt"` // counts every build of the stack
	Outcome    string   `json:"outcome"`
	Phase      *string  `json:"phase"`
	Service    *string  `json:"service"`
	Problem    *string  `json:"problem"`
	Error      *string  `json:"error"`
	StartedAt  *float64 `json:"started_at"`
	EndedAt    *float64 `json:"ended_at"`
}

// Running is the outcome of a deploy that is under way.
const Running = "running"

// The states of a stack.
const (
	Building = "building"
	Live     = "live"
	Failed   = "failed"
	Expired  = "expired"
)

// Service is an entry of a stack's services.
type Service struct {
	Name    string `json:"name"`
	Runtime string `json:"runtime"`
	Status  string `json:"status"`
	URL     string `json:"url"`
}

// Settled reports whether nothing of the stack is being built or restored.
func (s *Stack) Settled() bool { return s.Status != Building && s.Deploying == nil }

// BeganAfter reports whether the latest deploy is another one than that of an earlier
// answer: it has superseded that, or began after its end. Servers older than the field
// deploy have none.
func (s *Stack) BeganAfter(earlier *Deploy) bool {
	return earlier != nil && s.Deploy != nil && s.Deploy.Attempt > earlier.Attempt
}

// KeepOneTime copies the one-time fields of an earlier answer.
func (s *Stack) KeepOneTime(from *Stack) {
	s.ManageToken, s.ClaimCode, s.ClaimURL = from.ManageToken, from.ClaimCode, from.ClaimURL
	s.Note, s.WebhookSecret = from.Note, from.WebhookSecret
}

// Event is an entry of a stack's history (docs/api.md, "The event").
type Event struct {
	ID        int64          `json:"id"`
	StackID   string         `json:"stack_id"`
	Type      string         `json:"type"`
	Data      map[string]any `json:"data"`
	CreatedAt float64        `json:"created_at"`
}

// Account is the account of the client's API key.
type Account struct {
	Email  string  `json:"email"`
	Stacks []Stack `json:"stacks"`
}

func stackPath(id string) string { return "/v0/stacks/" + url.PathEscape(id) }

// Stack returns a stack; with wait, once it has settled or the server's waiting time is
// over.
func (c *Client) Stack(ctx context.Context, id string, wait bool) (*Stack, error) {
	query := url.Values{}
	if wait {
		query.Set("wait", "true")
	}
	return call[Stack](ctx, c, http.MethodGet, stackPath(id), query, nil)
}

// Settled waits until nothing of the stack is being built or restored.
func (c *Client) Settled(ctx context.Context, id string) (*Stack, error) {
	var patience Patience
	for {
		began := time.Now()
		s, err := c.Stack(ctx, id, true)
		switch {
		case patience.Over(err):
			return nil, err
		case err == nil && s.Settled():
			return s, nil
		case !pause.For(ctx, time.Second-time.Since(began)):
			return nil, ctx.Err()
		}
	}
}

// Extend sets a stack's expiry to now plus a duration such as 90m.
func (c *Client) Extend(ctx context.Context, id, ttl string) (*Stack, error) {
	return call[Stack](ctx, c, http.MethodPatch, stackPath(id), nil, map[string]string{"ttl": ttl})
}

// Restart restarts the processes of a live stack, or only that of a service unless it is
// "". It returns the stack, whose services are then restarting.
func (c *Client) Restart(ctx context.Context, id, service string) (*Stack, error) {
	query := url.Values{}
	if service != "" {
		query.Set("service", service)
	}
	return call[Stack](ctx, c, http.MethodPost, stackPath(id)+"/restart", query, nil)
}

// Delete deletes a stack with everything that it has.
func (c *Client) Delete(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, stackPath(id), nil, nil)
	return err
}

// Claim moves the stack of a claim code into the account of the client's key.
func (c *Client) Claim(ctx context.Context, code string) (*Stack, error) {
	return call[Stack](ctx, c, http.MethodPost, "/v0/claim", nil, map[string]string{"claim_code": code})
}

// Me returns the account of the client's key with its stacks, newest first.
func (c *Client) Me(ctx context.Context) (*Account, error) {
	return call[Account](ctx, c, http.MethodGet, "/v0/me", nil, nil)
}

// EventPage is the greatest number of events in one answer.
const EventPage = 200

// Events returns at most EventPage events with ids above after, oldest first; with
// wait, a server that supports it holds the answer until there is one.
func (c *Client) Events(ctx context.Context, id string, after int64, wait bool) ([]Event, error) {
	query := url.Values{"after": {strconv.FormatInt(after, 10)}}
	if wait {
		query.Set("wait", "true")
	}
	page, err := call[struct {
		Events []Event `json:"events"`
	}](ctx, c, http.MethodGet, stackPath(id)+"/events", query, nil)
	if err != nil {
		return nil, err
	}
	return page.Events, nil
}

// LogQuery selects what to read of the logs.
type LogQuery struct {
	Service    string // "" for all
	Kind       string // run or build; "" for run
	Tail       int    // last lines per service
	Timestamps bool   // with the time and generation of each line
}

// Logs returns the logs as text, with a section for each service; the caller closes
// them.
func (c *Client) Logs(ctx context.Context, id string, q LogQuery) (io.ReadCloser, error) {
	return c.open(ctx, http.MethodGet, logsPath(id), q.values())
}

func logsPath(id string) string { return stackPath(id) + "/logs" }

func (q LogQuery) values() url.Values {
	query := url.Values{"tail": {strconv.Itoa(q.Tail)}}
	if q.Kind != "" {
		query.Set("kind", q.Kind)
	}
	if q.Service != "" {
		query.Set("service", q.Service)
	}
	if q.Timestamps {
		query.Set("timestamps", "true")
	}
	return query
}

// Reach requests a public URL once, without following redirects, and returns the status
// of the answer.
func (c *Client) Reach(ctx context.Context, address string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, fmt.Errorf("make a request: %w", err)
	}
	direct := *c.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := direct.Do(req)
	if err != nil {
		return 0, &Unreachable{Server: address, Err: err}
	}
	return res.StatusCode, res.Body.Close()
}
