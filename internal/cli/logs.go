package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
berth logs api -n 20 --timestamps
berth logs stk_3f2a9c1b7d4e --build`,
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new lines")
	cmd.Flags().IntVarP(&q.Tail, "lines", "n", 100, "number of last lines to print for each service")
	cmd.Flags().BoolVar(&q.Timestamps, "timestamps", false, "print the time and generation of each line, and where processes start and end")
	cmd.Flags().BoolVar(&build, "build", false, "print the output of the latest build instead")
	return a.forStack(cmd, 1, func(ctx context.Context, args []string) error {
		q.Service = argument(args, "")
		if build {
			q.Kind = "build"
		}
		if q.Tail < 0 {
			return usagef("-n must be a number of lines, 0 or more, not %d", q.Tail)
		}
		if q.Timestamps && build {
			return usagef("builds have no --timestamps; use it without --build")
		}
		return a.logs(ctx, q, follow)
	})
}

func (a *app) logs(ctx context.Context, q client.LogQuery, follow bool) error {
	t, err := a.target(ctx)
	if err != nil {
		return err
	}
	switch {
	case follow:
		return a.followLogs(ctx, t, q)
	case a.json:
		return a.eachLine(ctx, t, q)
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

// logsEvery is the time between two looks at a server that went away.
const logsEvery = time.Second

// followLogs prints each line as it is written, and takes the stream up again where it
// broke off.
func (a *app) followLogs(ctx context.Context, t *target, q client.LogQuery) error {
	several := len(loggedServices(t.stack, q.Service)) > 1
	var patience client.Patience
	for id := ""; ; {
		began := time.Now()
		last, err := t.api.FollowLogs(ctx, t.stack.ID, q, id, func(line client.LogLine) error {
			return a.printLine(line.Service, q.Kind, line.Line, several)
		})
		if id = last; patience.Over(err) {
			return err
		}
		if !pause.For(ctx, logsEvery-time.Since(began)) {
			return ctx.Err()
		}
	}
}

// eachLine prints the last lines of each service one by one.
func (a *app) eachLine(ctx context.Context, t *target, q client.LogQuery) error {
	for _, name := range loggedServices(t.stack, q.Service) {
		one := q
		one.Service = name
		lines, err := logLines(ctx, t, one)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if err := a.printLine(name, q.Kind, line, false); err != nil {
				return err
			}
		}
	}
	return nil
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

func (a *app) printLine(service, kind, line string, several bool) (err error) {
	switch {
	case a.json:
		return a.ui.printJSON(map[string]string{"service": service, "kind": kind, "line": line})
	case several:
		_, err = fmt.Fprintf(a.ui.out, "%s %s\n", a.ui.paintOut("2", service+" |"), a.ui.cleanOut(line))
	default:
		_, err = fmt.Fprintln(a.ui.out, a.ui.cleanOut(line))
	}
	if err != nil {
		return fmt.Errorf("write: %w", err)
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
