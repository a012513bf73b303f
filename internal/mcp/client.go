package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
)

// Stack is the stack object of the API, with its one-time fields.
type Stack struct {
	ID            string            `json:"id"`
	Name          string            `json:"name"`
	Status        string            `json:"status"`
	Claimed       bool              `json:"claimed"`
	URLs          map[string]string `json:"urls"`
	Services      []Service         `json:"services"`
	ExpiresAt     *float64          `json:"expires_at"`     // Unix seconds
	RetainedUntil *float64          `json:"retained_until"` // Unix seconds
	Generation    int               `json:"generation"`
	Deploying     *int              `json:"deploying"`
	Error         *string           `json:"error"`
	DeployError   *string           `json:"deploy_error"`

	ManageToken   string `json:"manage_token"`
	ClaimCode     string `json:"claim_code"`
	ClaimURL      string `json:"claim_url"`
	WebhookSecret string `json:"webhook_secret"`
}

// Service is one service of a stack.
type Service struct {
	Name   string `json:"name"`
	Status string `json:"status"`
}

// settled tells whether nothing of the stack is being built or restored.
func (s Stack) settled() bool { return s.Status != "building" && s.Deploying == nil }

// event is one line of a stack's history.
type event struct {
	ID        int64           `json:"id"`
	Type      string          `json:"type"`
	Data      json.RawMessage `json:"data"`
	CreatedAt float64         `json:"created_at"` // Unix seconds
}

// apiError is what the API answered instead of what was asked for.
type apiError struct {
	status     int
	detail     string
	retryAfter int // seconds; 0 when waiting does not help
}

func (e *apiError) Error() string { return e.detail }

// maxAnswer bounds what is read of one answer, in bytes.
const maxAnswer = 4 << 20

// send asks the API and returns the body of its answer.
func (t *tools) send(ctx context.Context, who caller, method, path, contentType string, body io.Reader) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, t.BaseURL+path, body)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", t.BaseURL, err)
	}
	req.Header = who.header.Clone()
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := t.Client.Do(req)
	var unpacked *sourceError
	if errors.As(err, &unpacked) {
		return nil, unpacked.error
	}
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", t.BaseURL, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", t.BaseURL, err)
	}
	if res.StatusCode >= 300 {
		return nil, refusal(res, text)
	}
	return text, nil
}

func refusal(res *http.Response, text []byte) *apiError {
	e := &apiError{status: res.StatusCode, detail: http.StatusText(res.StatusCode)}
	var body struct{ Detail string }
	if json.Unmarshal(text, &body) == nil && body.Detail != "" {
		e.detail = body.Detail
	}
	e.retryAfter, _ = strconv.Atoi(res.Header.Get("Retry-After"))
	return e
}

// stack asks for something that the API answers with a stack.
func (t *tools) stack(ctx context.Context, who caller, method, path, contentType string, body io.Reader) (Stack, error) {
	text, err := t.send(ctx, who, method, path, contentType, body)
	if err != nil {
		return Stack{}, err
	}
	var s Stack
	if err := json.Unmarshal(text, &s); err != nil {
		return Stack{}, fmt.Errorf("%s does not answer as Berth does: %w", t.BaseURL, err)
	}
	return s, nil
}

// show asks for a stack as it is.
func (t *tools) show(ctx context.Context, who caller, id string) (Stack, error) {
	return t.stack(ctx, who, http.MethodGet, path(id), "", nil)
}

// extendStack replaces the time that a stack has left.
func (t *tools) extendStack(ctx context.Context, who caller, id, ttl string) (Stack, error) {
	body, err := json.Marshal(map[string]string{"ttl": ttl})
	if err != nil {
		return Stack{}, fmt.Errorf("write the request: %w", err)
	}
	return t.stack(ctx, who, http.MethodPatch, path(id), "application/json", bytes.NewReader(body))
}

// path is the address of a stack, or of something below it.
func path(id string, below ...string) string {
	p := "/v0/stacks/" + url.PathEscape(id)
	for _, part := range below {
		p += "/" + part
	}
	return p
}
