package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/lastlines"
	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/stack"
)

// Limits on what a model has to read.
const (
	maxLog   = 12_000 // bytes
	maxError = 2_000  // characters
)

// maxEvents is how many events one call lists.
const maxEvents = 50

// report describes a stack in lines, and says what to do next.
func report(s *client.Stack) string {
	var b strings.Builder
	fmt.Fprintf(&b, "stack: %s (%s)\nstatus: %s\n", s.ID, s.Name, s.Status)
	for _, service := range s.Services {
		fmt.Fprintf(&b, "%s: %s, %s\n", service.Name, service.Status, s.URLs[service.Name])
	}
	if s.Deploying != nil {
		fmt.Fprintf(&b, "generation %d is being built", *s.Deploying)
		if s.Status == "live" {
			fmt.Fprintf(&b, "; %d serves", s.Generation)
		}
		b.WriteByte('\n')
		b.WriteString(reportDeploy(s.Deploy))
	} else {
		fmt.Fprintf(&b, "generation: %d\n", s.Generation)
	}
	for _, fact := range []struct{ name, value string }{
		{"manage_token", s.ManageToken},
		{"claim_url", s.ClaimURL},
		{"webhook_secret", s.WebhookSecret},
		{"expires_at", moment(s.ExpiresAt)},
		{"kept until", moment(s.RetainedUntil)},
		{"error", shortened(s.Error)},
		{"deploy_error", shortened(s.DeployError)},
	} {
		if fact.value != "" {
			fmt.Fprintf(&b, "%s: %s\n", fact.name, fact.value)
		}
	}
	return b.String() + "next: " + next(s)
}

// reportDeploy describes a deploy that is under way in lines.
func reportDeploy(d *client.Deploy) string {
	if d == nil || d.Phase == nil {
		return ""
	}
	text := fmt.Sprintf("attempt: %d\nphase: %s", d.Attempt, *d.Phase)
	if d.Service != nil {
		text += " of " + *d.Service
	}
	if d.Problem != nil {
		text += "\nproblem: " + *d.Problem
	}
	return text + "\n"
}

// next returns what to do about a stack.
func next(s *client.Stack) string {
	switch {
	case s.Deploy != nil && s.Deploy.Problem != nil:
		return "fix the problem and call redeploy with supersede. If it may pass, such as a slow start, call status with wait."
	case !s.Settled():
		return "call status with wait until the build is done."
	case s.Status == "failed":
		return "read logs with kind build, and with kind run if the build succeeded; fix the source and call redeploy for this stack. Do not call deploy again."
	case s.Status == "expired":
		return "only a claim restores it: ask your human to open the claim URL."
	case s.DeployError != nil:
		return "the redeploy failed and the previous generation serves. Fix what deploy_error says, using logs, and call redeploy."
	case slices.ContainsFunc(s.Services, func(service client.Service) bool { return service.Status == "restarting" }):
		return "call status until no service is restarting, and logs to see what its process writes."
	case s.ManageToken != "" && s.ClaimURL != "":
		return "open the URLs to check that it works. Keep stack and manage_token for later calls, and give claim_url to your human, who can keep the stack with it."
	case s.ManageToken != "":
		return "open the URLs to check that it works. Keep stack and manage_token for later calls."
	case !s.Claimed:
		return "nothing to do. The unclaimed stack stops at expires_at; extend gives it more time."
	}
	return "nothing to do."
}

// unixTime returns a time of the API, to the millisecond.
func unixTime(seconds float64) time.Time { return time.UnixMilli(int64(seconds * 1000)).UTC() }

// moment formats a time and its distance from now.
func moment(seconds *float64) string {
	if seconds == nil {
		return ""
	}
	at := unixTime(*seconds)
	left := time.Until(at).Round(time.Minute)
	if left <= 0 {
		return at.Format(time.RFC3339)
	}
	return fmt.Sprintf("%s (in %s)", at.Format(time.RFC3339), stack.FormatDuration(left))
}

// shortened returns the first line and the end of an error, its most informative parts.
func shortened(text *string) string {
	if text == nil {
		return ""
	}
	return lastlines.Shorten(*text, maxError)
}

// lastOf returns the end of a text, from the beginning of a line if possible.
func lastOf(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return "[earlier output is omitted]\n" + lastlines.Tail(text, most)
}

// reportCommand describes how a command ended, and repeats the end of its output.
func reportCommand(end *client.CommandEnd, timeout, output string) string {
	var b strings.Builder
	switch {
	case end.TimedOut:
		fmt.Fprintf(&b, "timed out: the command ran longer than %s and was ended\n", timeout)
	case end.ExitCode != nil:
		fmt.Fprintf(&b, "exit code: %d\n", *end.ExitCode)
	}
	if end.Error != "" {
		fmt.Fprintf(&b, "error: %s\n", end.Error)
	}
	if output == "" {
		return b.String() + "It printed nothing."
	}
	return b.String() + "output, its last lines if it was long:\n" + output
}

// reportEvents lists events, a line each, and says where to continue.
func reportEvents(events []client.Event, after int64) (string, error) {
	if len(events) == 0 {
		return fmt.Sprintf("no events after %d.", after), nil
	}
	var b strings.Builder
	if left := len(events) - maxEvents; left > 0 {
		fmt.Fprintf(&b, "[%d earlier events are omitted]\n", left)
		events = events[left:]
	}
	for _, e := range events {
		fmt.Fprintf(&b, "%d %s %s", e.ID, unixTime(e.CreatedAt).Format("2006-01-02 15:04:05"), e.Type)
		if len(e.Data) > 0 {
			data, err := plainjson.Marshal(e.Data)
			if err != nil {
				return "", fmt.Errorf("write the events: %w", err)
			}
			fmt.Fprintf(&b, " %s", data)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "next: call events with after %d for later events.", events[len(events)-1].ID)
	return b.String(), nil
}

// planFields are the fields of a planned service to list, in order.
var planFields = []string{
	"runtime", "version", "built_with", "root", "install", "build", "release", "start", "port", "health",
	"depends_on", "strategy", "publish", "spa", "paths",
}

// reportPlan describes what would be built and run, and what is wrong with it.
func reportPlan(text []byte) (string, error) {
	var plan struct {
		Valid    bool
		Faults   []string
		Name     string
		Services []map[string]any
	}
	if err := json.Unmarshal(text, &plan); err != nil {
		return "", fmt.Errorf("the response does not contain a plan: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "valid: %t\nname: %s\n", plan.Valid, plan.Name)
	for _, fault := range plan.Faults {
		fmt.Fprintf(&b, "fault: %s\n", fault)
	}
	for _, fields := range plan.Services {
		from, _ := fields["from"].(map[string]any)
		fmt.Fprintf(&b, "service %v:\n", fields["name"])
		for _, name := range planFields {
			if fields[name] == nil || fields[name] == "" {
				continue
			}
			fmt.Fprintf(&b, "  %s: %s", name, planValue(fields[name]))
			if from[name] != nil {
				fmt.Fprintf(&b, " (from %v)", from[name])
			}
			b.WriteByte('\n')
		}
	}
	if plan.Valid {
		return b.String() + "next: call deploy, or redeploy for an existing stack.", nil
	}
	return b.String() + "next: fix the faults and call validate again.", nil
}

// planValue returns a value of a plan as text, a mapping as JSON.
func planValue(v any) string {
	if fields, ok := v.(map[string]any); ok {
		text, _ := plainjson.Marshal(fields) // it was JSON
		return string(text)
	}
	return fmt.Sprint(v)
}

// advise adds to an error of the API what to do with the tools.
func advise(err error) error {
	var away *client.Unreachable
	var asking *url.Error
	switch {
	case errors.As(err, &away) && errors.As(away.Err, &asking):
		return fmt.Errorf("ask %s: %w", away.Server, away.Err)
	case errors.As(err, &away):
		return fmt.Errorf("read the answer of %s: %w", away.Server, away.Err)
	}
	refused, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	if fact, _, ok := strings.Cut(refused.Detail, stack.ReadSource); ok {
		return errors.New(fact + "\nnext: call read_source, and redeploy with what you change in that, or with all files and whole.")
	}
	advice := ""
	switch refused.Status {
	case http.StatusUnauthorized:
		advice = "next: pass the stack's manage_token, or an API key, as token."
	case http.StatusForbidden:
		if strings.Contains(refused.Detail, "; ask ") { // it says what to do
			break
		}
		advice = "next: pass the manage_token that deploy returned for this stack as token."
	case http.StatusNotFound:
		advice = "next: check the id and the names; if the stack is gone, call deploy."
	case http.StatusConflict:
		advice = "next: call status with wait, and continue when the status allows it."
	case http.StatusUnprocessableEntity, http.StatusBadRequest:
		advice = "next: correct that and call again."
	}
	if refused.RetryAfter > 0 {
		advice = fmt.Sprintf("next: wait %d s and call again.", int(refused.RetryAfter.Seconds()))
		if refused.Status == http.StatusConflict {
			advice += " If a build is running that is no longer wanted, call redeploy with supersede."
		}
	}
	return errors.New(strings.TrimSpace(refused.Detail + "\n" + advice))
}

// reportVariables lists variables, a line each.
func reportVariables(variables []client.Variable) string {
	if len(variables) == 0 {
		return "no variables."
	}
	var b strings.Builder
	for _, v := range variables {
		service := "all services"
		if v.Service != nil {
			service = *v.Service
		}
		fmt.Fprintf(&b, "%s: %s, %s", service, v.Name, v.From)
		if v.ChangedAt != nil {
			fmt.Fprintf(&b, " %s", unixTime(*v.ChangedAt).Format(time.RFC3339))
		}
		b.WriteByte('\n')
	}
	return b.String()
}
