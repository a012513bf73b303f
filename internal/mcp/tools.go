package mcp

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// tools are the tools and what they work with.
type tools struct {
	Config
	schemas map[string]*jsonschema.Schema // of the arguments, by tool
}

// patience is how long one call waits for a build: clients give up on a call
// after a minute.
const patience = 50 * time.Second

// target is the stack that a call is about.
type target struct {
	Stack string `json:"stack" jsonschema:"id of the stack: stk_ and 12 hex characters"`
	Token string `json:"token,omitempty" jsonschema:"manage_token of the stack, as deploy returned it, or an API key; not needed where the connection has one"`
}

type deployArgs struct {
	source
	Name string `json:"name,omitempty" jsonschema:"name of the stack"`
	TTL  string `json:"ttl,omitempty" jsonschema:"how long it lives unclaimed, as in 90m or 2h"`
}

type redeployArgs struct {
	target
	source
}

type statusArgs struct {
	target
	Wait bool `json:"wait,omitempty" jsonschema:"wait for a running build or restore to settle, up to 50 s"`
}

type logsArgs struct {
	target
	Service string `json:"service,omitempty" jsonschema:"only this service"`
	Kind    string `json:"kind,omitempty" jsonschema:"run for what the processes print (the default) or build for the latest build"`
	Tail    int    `json:"tail,omitempty" jsonschema:"last lines of each service, 60 by default"`
}

type eventsArgs struct {
	target
	After int64 `json:"after,omitempty" jsonschema:"only events after this id"`
}

type extendArgs struct {
	target
	TTL string `json:"ttl" jsonschema:"time from now, as in 90m or 2h"`
}

// add registers the tools.
func (t *tools) add(s *sdk.Server) {
	s.AddReceivingMiddleware(t.explain)
	yes, no := true, false
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	adds := &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}
	removes := &sdk.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: true, OpenWorldHint: &no}
	add(t, s, "deploy", "Deploy a project as a new stack and wait for its public URLs. No account is needed. Returns the manage token (keep it) and the claim URL (give it to your human), both only this once. For a project that is already deployed, call redeploy.", adds, t.deploy)
	add(t, s, "redeploy", "Build the changed source of a stack and replace what runs, at the same URLs. What runs keeps serving until the new build is healthy, and stays if it fails.", adds, t.redeploy)
	add(t, s, "status", "Show how a stack is: status, URLs, time left, and why it failed.", reads, t.status)
	add(t, s, "logs", "Read the last lines of a stack's logs: what its processes print, or with kind build the output of its latest build.", reads, t.logs)
	add(t, s, "events", "List what happened to a stack: builds, deploys, crashes, expiry, claim.", reads, t.events)
	add(t, s, "extend", "Give an unclaimed stack more time before it stops.", adds, t.extend)
	add(t, s, "delete", "Delete a stack with all its data. It cannot be undone.", removes, t.remove)
	add(t, s, "validate", "Check a project and its manifest without building: what would be built and run, and every fault.", reads, t.validate)
}

// add registers one tool whose result is text. The arguments' schema follows
// from their type; folder is left out of it where no folder can be read.
func add[In any](t *tools, s *sdk.Server, name, description string, hints *sdk.ToolAnnotations, run func(context.Context, *sdk.CallToolRequest, In) (string, error)) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // the types are our own
	}
	if t.Pack == nil {
		delete(schema.Properties, "folder")
	}
	t.schemas[name] = schema
	tool := &sdk.Tool{Name: name, Description: description, Annotations: hints, InputSchema: schema}
	sdk.AddTool(s, tool, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		text, err := run(ctx, req, in)
		if err != nil {
			return nil, nil, advise(err)
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
	})
}

func (t *tools) deploy(ctx context.Context, req *sdk.CallToolRequest, in deployArgs) (string, error) {
	if err := in.check(t.Pack != nil); err != nil {
		return "", err
	}
	start := time.Now()
	body, contentType := t.form(ctx, in.source, map[string]string{"name": in.Name, "ttl": in.TTL, "manifest": in.Manifest})
	defer body.Close()
	who := t.caller(ctx, req, "", "")
	made, err := t.stack(ctx, who, http.MethodPost, "/v0/stacks", contentType, body)
	if err != nil {
		return "", err
	}
	if t.Created != nil {
		if err := t.Created(ctx, made); err != nil {
			return "", fmt.Errorf("stack %s is created, with the manage token %s, but that could not be kept: %w", made.ID, made.ManageToken, err)
		}
	}
	who.header.Set("Authorization", "Bearer "+made.ManageToken)
	now := t.settle(ctx, who, made, start)
	now.ManageToken, now.ClaimURL, now.WebhookSecret = made.ManageToken, made.ClaimURL, made.WebhookSecret
	return report(now), nil
}

func (t *tools) redeploy(ctx context.Context, req *sdk.CallToolRequest, in redeployArgs) (string, error) {
	if err := in.check(t.Pack != nil); err != nil {
		return "", err
	}
	start := time.Now()
	body, contentType := t.form(ctx, in.source, map[string]string{"manifest": in.Manifest})
	defer body.Close()
	who := t.caller(ctx, req, in.Stack, in.Token)
	s, err := t.stack(ctx, who, http.MethodPost, path(in.Stack, "deploy"), contentType, body)
	if err != nil {
		return "", err
	}
	now := t.settle(ctx, who, s, start)
	now.WebhookSecret = s.WebhookSecret
	return report(now), nil
}

// settle waits until nothing of a stack is being built, within the patience of
// a call that began at start. When it cannot be asked, it is as it was.
func (t *tools) settle(ctx context.Context, who caller, s Stack, start time.Time) Stack {
	if s.settled() {
		return s
	}
	waiting, cancel := context.WithDeadline(ctx, start.Add(patience))
	defer cancel()
	now, err := t.stack(waiting, who, http.MethodGet, path(s.ID)+"?wait=true", "", nil)
	if err == nil {
		return now
	}
	if now, err = t.show(ctx, who, s.ID); err == nil {
		return now
	}
	return s
}

func (t *tools) status(ctx context.Context, req *sdk.CallToolRequest, in statusArgs) (string, error) {
	start := time.Now()
	who := t.caller(ctx, req, in.Stack, in.Token)
	s, err := t.show(ctx, who, in.Stack)
	if err != nil {
		return "", err
	}
	if in.Wait {
		s = t.settle(ctx, who, s, start)
	}
	return report(s), nil
}

func (t *tools) logs(ctx context.Context, req *sdk.CallToolRequest, in logsArgs) (string, error) {
	const defaultTail = 60
	if in.Tail == 0 {
		in.Tail = defaultTail
	}
	query := url.Values{"tail": {strconv.Itoa(in.Tail)}}
	if in.Kind != "" {
		query.Set("kind", in.Kind)
	}
	if in.Service != "" {
		query.Set("service", in.Service)
	}
	text, err := t.send(ctx, t.caller(ctx, req, in.Stack, in.Token), http.MethodGet, path(in.Stack, "logs")+"?"+query.Encode(), "", nil)
	if err != nil {
		return "", err
	}
	return lastOf(string(text), maxLog), nil
}

func (t *tools) events(ctx context.Context, req *sdk.CallToolRequest, in eventsArgs) (string, error) {
	query := "?after=" + strconv.FormatInt(in.After, 10)
	text, err := t.send(ctx, t.caller(ctx, req, in.Stack, in.Token), http.MethodGet, path(in.Stack, "events")+query, "", nil)
	if err != nil {
		return "", err
	}
	return reportEvents(text, in.After)
}

func (t *tools) extend(ctx context.Context, req *sdk.CallToolRequest, in extendArgs) (string, error) {
	s, err := t.extendStack(ctx, t.caller(ctx, req, in.Stack, in.Token), in.Stack, in.TTL)
	if err != nil {
		return "", err
	}
	return report(s), nil
}

func (t *tools) remove(ctx context.Context, req *sdk.CallToolRequest, in target) (string, error) {
	if _, err := t.send(ctx, t.caller(ctx, req, in.Stack, in.Token), http.MethodDelete, path(in.Stack), "", nil); err != nil {
		return "", err
	}
	return fmt.Sprintf("Stack %s is deleted. Its URLs, its token and its claim URL no longer work.", in.Stack), nil
}

func (t *tools) validate(ctx context.Context, req *sdk.CallToolRequest, in source) (string, error) {
	if err := in.check(t.Pack != nil); err != nil {
		return "", err
	}
	body, contentType := t.form(ctx, in, map[string]string{"manifest": in.Manifest})
	defer body.Close()
	text, err := t.send(ctx, t.caller(ctx, req, "", ""), http.MethodPost, "/v0/validate", contentType, body)
	if err != nil {
		return "", err
	}
	return reportPlan(text)
}
