package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/pause"
)

func (a *app) logsCommand() *cobra.Command {
	q := client.LogQuery{Kind: "run"}
	var build, follow bool
	cmd := &cobra.Command{
		Use:   "logs [STACK] [SERVICE]",
		Short: "Print the logs of the services or of their builds",
		Example: `berth logs -f
berth logs api -n 20
berth logs stk_3f2a9c1b7d4e --build`,
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines")
	cmd.Flags().IntVarP(&q.Tail, "lines", "n", 100, "number of last lines to print for each service")
	cmd.Flags().BoolVar(&build, "build", false, "print the output of the latest build instead")
	return a.forStack(cmd, 1, func(ctx context.Context, args []string) error {
		q.Service = argument(args, "")
		if build {
			q.Kind = "build"
		}
		if q.Tail < 0 {
			return usagef("-n must be a number of lines, 0 or more, not %d", q.Tail)
		}
		return a.logs(ctx, q, follow)
	})
}

func (a *app) logs(ctx context.Context, q client.LogQuery, follow bool) error {
	t, err := a.target(ctx)
	if err != nil {
		return err
	}
	if follow || a.json {
		return a.followLogs(ctx, t, q, follow)
	}
	body, err := t.api.Logs(ctx, t.stack.ID, q)
	if err != nil {
		return err
	}
	defer body.Close()
	return a.copyText(body)
}

// copyText prints a text, without sequences that could control a terminal if standard
// output is one.
func (a *app) copyText(from io.Reader) error {
	if !a.ui.shows {
		if _, err := io.Copy(a.ui.out, from); err != nil {
			return fmt.Errorf("read the logs: %w", err)
		}
		return nil
	}
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadString('\n')
		fmt.Fprint(a.ui.out, a.ui.clean(line))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the logs: %w", err)
		}
	}
}

const (
	logsEvery = time.Second
	logWindow = 2000 // lines that are read at each look; more between two looks are lost
)

// followLogs prints each service's lines one by one, and continues if asked to.
func (a *app) followLogs(ctx context.Context, t *target, q client.LogQuery, follow bool) error {
	names := loggedServices(t.stack, q.Service)
	seen := map[string][]string{}
	var patience client.Patience
	for first := true; ; first = false {
		err := a.lookAtLogs(ctx, t, q, names, seen, first)
		switch {
		case patience.Over(err) || err != nil && first:
			return err
		case !follow:
			return nil
		case !pause.For(ctx, logsEvery):
			return ctx.Err()
		}
	}
}

// loggedServices returns the names of the services to read. The server decides whether
// a requested service has a log: a failed redeploy may have built services that the
// stack does not list.
func loggedServices(s *client.Stack, requested string) []string {
	if requested != "" {
		return []string{requested}
	}
	var names []string
	for _, service := range s.Services {
		names = append(names, service.Name)
	}
	return names
}

func (a *app) lookAtLogs(ctx context.Context, t *target, q client.LogQuery, names []string, seen map[string][]string, first bool) error {
	for _, name := range names {
		lines, err := logLines(ctx, t, client.LogQuery{Service: name, Kind: q.Kind, Tail: max(q.Tail, logWindow)})
		if err != nil {
			return err
		}
		fresh := newLines(seen[name], lines)
		if first {
			fresh = lines[max(0, len(lines)-q.Tail):]
		}
		seen[name] = lines
		if err := a.printLines(name, q.Kind, fresh, len(names) > 1); err != nil {
			return err
		}
	}
	return nil
}

// newLines returns the lines of now that are not in before; both are the end of the
// same growing log.
func newLines(before, now []string) []string {
	for i := range before {
		if common := before[i:]; len(common) <= len(now) && slices.Equal(common, now[:len(common)]) {
			return now[len(common):]
		}
	}
	return now
}

func (a *app) printLines(service, kind string, lines []string, several bool) error {
	for _, line := range lines {
		var err error
		switch {
		case a.json:
			err = a.ui.printJSON(map[string]string{"service": service, "kind": kind, "line": line})
		case several:
			_, err = fmt.Fprintf(a.ui.out, "%s %s\n", a.ui.paintOut("2", service+" |"), a.ui.cleanOut(line))
		default:
			_, err = fmt.Fprintln(a.ui.out, a.ui.cleanOut(line))
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
	}
	return nil
}

// cleanOut is like clean if standard output is a terminal; otherwise it returns s.
func (u *ui) cleanOut(s string) string {
	if u.shows {
		return u.clean(s)
	}
	return s
}
