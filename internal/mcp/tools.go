package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/lastlines"
)

// tools holds the tools and what they work with.
type tools struct {
	cfg     Config
	schemas map[string]*jsonschema.Schema // of the arguments, by tool
}

// tool is one tool; its result is text.
type tool struct {
	name, description string
	hints             *sdk.ToolAnnotations
	needs, takes      []string // arguments
	run               func(ctx context.Context, api *client.Client, in arguments) (string, error)
}

// patience is how long a call waits for a build: programs give up on a call after a
// minute.
const patience = 50 * time.Second

// all returns the tools.
func (t *tools) all() []tool {
	yes, no := true, false
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	adds := &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}
	changes := &sdk.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no}
	removes := &sdk.ToolAnnotations{DestructiveHint: &yes, IdempotentHint: true, OpenWorldHint: &no}
	stack, source := []string{"stack"}, []string{"folder", "files", "binary_files", "manifest"}
	return []tool{
		{"deploy", "Deploy a project as a new stack and wait for its public URLs. You need no account. Returns the manage token (keep it) and the claim URL (give it to your human), both only once. For a project that is already deployed, call redeploy.", adds, nil, append([]string{"name", "ttl"}, source...), t.deploy},
		{"redeploy", "Change the source of a stack, build it and replace the running generation at the same URLs. Send only the files that you changed or added: all others stay as they are; name in delete what is to go. A manifest alone builds the same source with it. read_source shows what the stack has. The running generation keeps serving until the new one is healthy, and stays if that fails, which is an error.", adds, stack, append([]string{"token", "base", "delete", "whole", "supersede", "fresh"}, source...), t.redeploy},
		{"read_source", "List the files of a stack's source, or read one of them.", reads, stack, []string{"token", "path"}, t.readSource},
		{"status", "Show a stack's status, URLs and time left, and why it failed.", reads, stack, []string{"token", "wait"}, t.status},
		{"logs", "Read the last lines of a stack's logs: the output of its processes, or with kind build that of its latest build.", reads, stack, []string{"token", "service", "kind", "tail", "timestamps"}, t.logs},
		{"events", "List what happened to a stack: builds, deploys, crashes, expiry, claim.", reads, stack, []string{"token", "after"}, t.events},
		{"list_env", "List the variables that a stack's services are given, by the manifest or by set_env, without their values.", reads, stack, []string{"token"}, t.listEnv},
		{"set_env", "Set or unset variables of a stack without an upload, for one service or for all. They win over the manifest's and stay across redeploys. This starts the next generation; the running one keeps serving if it fails, which is an error. Services with install or build commands are built again.", changes, []string{"stack", "variables"}, []string{"token", "service", "build"}, t.setEnv},
		{"exec", "Run a shell command in the container of a running service, with its environment and folder, and return its output and exit code: to look at files, data and variables, or to run a script. A deploy replaces all files but those in $DATA_DIR.", changes, []string{"stack", "service", "command"}, []string{"token", "timeout"}, t.exec},
		{"restart", "Restart the processes of a live stack, or of one service, without a build. The old process serves until the new one is healthy.", adds, stack, []string{"token", "service"}, t.restart},
		{"extend", "Give an unclaimed stack more time before it stops.", adds, []string{"stack", "ttl"}, []string{"token"}, t.extend},
		{"delete", "Delete a stack with all its data. This cannot be undone.", removes, stack, []string{"token"}, t.deleteStack},
		{"validate", "Check a project and its manifest, or a manifest alone, without building: what would be built and run, and every fault.", reads, nil, source, t.validate},
	}
}

// register adds the tools to a server.
func (t *tools) register(s *sdk.Server) {
	s.AddReceivingMiddleware(t.survive, t.explain)
	for _, d := range t.all() {
		t.schemas[d.name] = d.schema(t.cfg.Pack != nil)
		described := &sdk.Tool{Name: d.name, Description: d.description, Annotations: d.hints, InputSchema: t.schemas[d.name]}
		sdk.AddTool(s, described, func(ctx context.Context, req *sdk.CallToolRequest, in arguments) (*sdk.CallToolResult, any, error) {
			text, err := d.run(ctx, t.as(ctx, req, in), in)
			if err != nil {
				return nil, nil, advise(err)
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
		})
	}
}

func (t *tools) deploy(ctx context.Context, api *client.Client, in arguments) (string, error) {
	start := time.Now()
	u, err := t.newUpload(ctx, in)
	if err != nil {
		return "", err
	}
	made, err := api.Create(ctx, u)
	if err != nil {
		return "", err
	}
	if t.cfg.Created != nil {
		if err := t.cfg.Created(ctx, made); err != nil {
			return "", fmt.Errorf("stack %s was created, but its manage token %s could not be saved: %w", made.ID, made.ManageToken, err)
		}
	}
	now := settle(ctx, api.WithToken(made.ManageToken), made, start)
	now.KeepOneTime(made)
	return report(now), nil
}

func (t *tools) redeploy(ctx context.Context, api *client.Client, in arguments) (string, error) {
	start := time.Now()
	u, note, err := t.newChanges(ctx, api, in)
	if err != nil {
		return "", err
	}
	u.Supersede, u.Fresh = in.Supersede, in.Fresh
	s, err := api.Deploy(ctx, in.Stack, u)
	if err != nil {
		return "", err
	}
	return outcome(ctx, api, s, start, note)
}

// outcome waits for the deploy that a call began at start, which was answered with a stack,
// and returns the result of the call: an error if the deploy did not go live.
func outcome(ctx context.Context, api *client.Client, s *client.Stack, start time.Time, note string) (string, error) {
	now := settle(ctx, api, s, start)
	now.WebhookSecret = s.WebhookSecret
	switch text := note + report(now); {
	case now.BeganAfter(s.Deploy):
		return "", fmt.Errorf("attempt %d, which this call began, has ended: attempt %d took its place, or began after it\n%s", s.Deploy.Attempt, now.Deploy.Attempt, text)
	case now.Settled() && (now.Status != client.Live || now.DeployError != nil):
		return "", errors.New(text)
	default:
		return text, nil
	}
}

// settle waits until nothing of a stack is being built, within the patience of a call
// that began at start. If the stack cannot be requested, it returns the previous one.
func settle(ctx context.Context, api *client.Client, s *client.Stack, start time.Time) *client.Stack {
	if s.Settled() {
		return s
	}
	waiting, cancel := context.WithDeadline(ctx, start.Add(patience))
	defer cancel()
	if now, err := api.Stack(waiting, s.ID, true); err == nil {
		return now
	}
	if now, err := api.Stack(ctx, s.ID, false); err == nil {
		return now
	}
	return s
}

func (t *tools) status(ctx context.Context, api *client.Client, in arguments) (string, error) {
	start := time.Now()
	s, err := api.Stack(ctx, in.Stack, false)
	if err != nil {
		return "", err
	}
	if in.Wait {
		s = settle(ctx, api, s, start)
	}
	return report(s), nil
}

// maxAnswer limits what is read of the logs, in bytes.
const maxAnswer = 4 << 20

func (t *tools) logs(ctx context.Context, api *client.Client, in arguments) (string, error) {
	const defaultTail = 60
	if in.Tail == 0 {
		in.Tail = defaultTail
	}
	body, err := api.Logs(ctx, in.Stack, client.LogQuery{Service: in.Service, Kind: in.Kind, Tail: in.Tail, Timestamps: in.Timestamps})
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", api.Server(), err)
	}
	return lastOf(string(text), maxLog), nil
}

func (t *tools) events(ctx context.Context, api *client.Client, in arguments) (string, error) {
	events, err := api.Events(ctx, in.Stack, in.After, false)
	if err != nil {
		return "", err
	}
	return reportEvents(events, in.After)
}

func (t *tools) exec(ctx context.Context, api *client.Client, in arguments) (string, error) {
	if in.Timeout == "" {
		in.Timeout = patience.String()
	}
	output := lastlines.OfOutput(maxLog)
	end, err := api.Exec(ctx, in.Stack, client.Command{Service: in.Service, Line: in.Command, Timeout: in.Timeout}, func(l client.OutputLine) error {
		if !l.Partial {
			l.Line += "\n"
		}
		_, err := io.WriteString(output, l.Line)
		return err
	})
	if err != nil {
		return "", err
	}
	return reportCommand(end, in.Timeout, output.String()), nil
}

func (t *tools) listEnv(ctx context.Context, api *client.Client, in arguments) (string, error) {
	variables, err := api.Env(ctx, in.Stack)
	if err != nil {
		return "", err
	}
	return reportVariables(variables), nil
}

func (t *tools) setEnv(ctx context.Context, api *client.Client, in arguments) (string, error) {
	start := time.Now()
	build := in.Build == nil || *in.Build
	s, err := api.SetEnv(ctx, in.Stack, client.NewEnvChange(in.Service, in.Variables, build))
	if err != nil {
		return "", err
	}
	if s.Settled() {
		return "note: nothing changes, since the variables were like that before.\n" + report(s), nil
	}
	return outcome(ctx, api, s, start, "")
}

func (t *tools) restart(ctx context.Context, api *client.Client, in arguments) (string, error) {
	s, err := api.Restart(ctx, in.Stack, in.Service)
	if err != nil {
		return "", err
	}
	return report(s), nil
}

func (t *tools) extend(ctx context.Context, api *client.Client, in arguments) (string, error) {
	s, err := api.Extend(ctx, in.Stack, in.TTL)
	if err != nil {
		return "", err
	}
	return report(s), nil
}

func (t *tools) deleteStack(ctx context.Context, api *client.Client, in arguments) (string, error) {
	if err := api.Delete(ctx, in.Stack); err != nil {
		return "", err
	}
	return fmt.Sprintf("Stack %s is deleted. Its URLs, its token and its claim URL no longer work.", in.Stack), nil
}

func (t *tools) validate(ctx context.Context, api *client.Client, in arguments) (string, error) {
	u := client.Upload{Manifest: []byte(in.Manifest)}
	if !in.manifestAlone() {
		var err error
		if u, err = t.newUpload(ctx, in); err != nil {
			return "", err
		}
	}
	plan, err := api.Validate(ctx, u)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return "", fmt.Errorf("read the plan: %w", err)
	}
	return reportPlan(text)
}
