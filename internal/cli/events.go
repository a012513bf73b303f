package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/pause"
)

func (a *app) eventsCommand() *cobra.Command {
	var follow bool
	var after int64
	cmd := &cobra.Command{
		Use:   "events [STACK]",
		Short: "List the events of a stack, oldest first",
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "keep printing new events")
	cmd.Flags().Int64Var(&after, "after", 0, "only events with a greater id")
	return a.onStack(cmd, 0, func(ctx context.Context, t *target, _ []string) error {
		return a.events(ctx, t, after, follow)
	})
}

func (a *app) events(ctx context.Context, t *target, after int64, follow bool) error {
	var patience client.Patience
	for {
		began := time.Now()
		page, err := t.api.Events(ctx, t.stack.ID, after, follow)
		if patience.Over(err) || err != nil && !follow {
			return err
		}
		for _, e := range page {
			after = e.ID
			if err := a.printEvent(e); err != nil {
				return err
			}
		}
		switch {
		case len(page) == client.EventPage: // there may be more
		case !follow:
			return nil
		case !pause.For(ctx, logsEvery-time.Since(began)):
			return ctx.Err()
		}
	}
}

func (a *app) printEvent(e client.Event) error {
	if a.json {
		return a.ui.printJSON(e)
	}
	line := fmt.Sprintf("%s  %-20s %s", unixTime(e.CreatedAt).Local().Format(time.DateTime), e.Type, dataText(e.Data))
	return a.ui.println(a.ui.clean(strings.TrimRight(line, " ")))
}

// dataText returns an event's data on one line.
func dataText(data map[string]any) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(data)) {
		value, err := json.Marshal(data[key])
		if text, ok := data[key].(string); ok && !strings.ContainsAny(text, " \n\"") {
			value = []byte(text)
		}
		if seconds, ok := data[key].(float64); ok && (strings.HasSuffix(key, "_at") || strings.HasSuffix(key, "_until")) {
			value = []byte(unixTime(seconds).Local().Format(time.TimeOnly))
		}
		if err == nil {
			words = append(words, key+"="+string(value))
		}
	}
	return strings.Join(words, " ")
}
