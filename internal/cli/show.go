package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/stack"
)

// show prints a stack: in JSON as the API returns it, or as rows for people.
func (a *app) show(s *client.Stack) error {
	if a.json {
		return a.ui.printJSON(s)
	}
	w := tabwriter.NewWriter(a.ui.out, 0, 0, 2, ' ', 0)
	for _, row := range a.stackRows(s, time.Now()) {
		fmt.Fprintln(w, a.ui.clean(row))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if s.ClaimURL != "" && !s.Claimed {
		a.ui.showQR(s.ClaimURL)
	}
	return nil
}

// stackRows returns the lines about a stack, with a tab between their columns.
func (a *app) stackRows(s *client.Stack, now time.Time) []string {
	rows := []string{
		fmt.Sprintf("stack\t%s (%s)", s.Name, s.ID),
		"status\t" + a.statusText(s),
	}
	for _, service := range s.Services {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s, %s", service.Name, service.URL, service.Runtime, service.Status))
	}
	for _, text := range []*string{s.Error, s.DeployError} {
		if text != nil {
			rows = append(rows, "error\t"+strings.Join(strings.Fields(*text), " "))
		}
	}
	rows = append(rows, deployRows(s.Deploy)...)
	rows = append(rows, lifetimeRows(s, now)...)
	if s.ClaimURL != "" && !s.Claimed {
		rows = append(rows, "claim\t"+s.ClaimURL)
	}
	return rows
}

// deployRows returns the lines about a deploy that is under way.
func deployRows(d *client.Deploy) []string {
	if d == nil || d.Outcome != client.Running {
		return nil
	}
	rows := []string{fmt.Sprintf("deploy\tattempt %d%s", d.Attempt, phaseText(d))}
	if d.Problem != nil {
		rows = append(rows, "problem\t"+*d.Problem)
	}
	return rows
}

// phaseText returns what a deploy is doing, to stand behind its name; "" if that is not
// known.
func phaseText(d *client.Deploy) string {
	switch {
	case d.Phase == nil:
		return ""
	case d.Service == nil:
		return ", " + *d.Phase
	}
	return ", " + *d.Phase + " of " + *d.Service
}

func (a *app) statusText(s *client.Stack) string {
	text := a.ui.paintOut(statusColor(s.Status), s.Status)
	if s.Status == client.Live || s.Status == client.Failed {
		text += fmt.Sprintf(", generation %d", s.Generation)
	}
	if s.Deploying != nil && s.Status == client.Live {
		text += fmt.Sprintf(", building generation %d", *s.Deploying)
	}
	if s.Claimed {
		text += ", claimed"
	}
	return text
}

func statusColor(status string) string {
	switch status {
	case client.Live:
		return "32"
	case client.Failed, client.Expired:
		return "31"
	}
	return "33"
}

// lifetimeRows returns the lines about how long an unclaimed stack stays.
func lifetimeRows(s *client.Stack, now time.Time) []string {
	switch {
	case s.Status == client.Expired && s.RetainedUntil != nil:
		return []string{"deleted\t" + left(*s.RetainedUntil, now)}
	case s.ExpiresAt != nil && !s.Claimed:
		return []string{"expires\t" + left(*s.ExpiresAt, now)}
	}
	return nil
}

func left(seconds float64, now time.Time) string {
	at := unixTime(seconds)
	layout := "15:04"
	if at.Sub(now) > 20*time.Hour {
		layout = "Mon 2 Jan 15:04"
	}
	return fmt.Sprintf("in %s, at %s", stack.RoughDuration(at.Sub(now)), at.Local().Format(layout))
}
