package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	moves    = 3
	moveGoal = 3000 // milliseconds of the longest request
	moveRest = 3 * time.Second

	// movedData makes 200 files of 1 MB.
	movedData = `for n in $(seq 200); do head -c 1000000 /dev/urandom >$DATA_DIR/file$n || exit 1; done`
)

// measureMoves moves a stack with 200 MB of data between two nodes, and measures the longest
// request meanwhile.
func (b *bench) measureMoves(ctx context.Context) error {
	return b.withThree(ctx, nil, func(ctx context.Context, c *three) error {
		program, err := pageArchive(b.tools)
		if err != nil {
			return err
		}
		if err := c.placeOn(ctx, c.servers[1]); err != nil {
			return err
		}
		made, _, err := c.servers[1].berth.create(ctx, program)
		if err != nil {
			return err
		}
		var out struct {
			ExitCode int    `json:"exit_code"`
			Output   string `json:"output"`
		}
		path := "/v0/stacks/" + made.ID + "/services/web/exec"
		if err := c.servers[1].berth.send(ctx, http.MethodPost, path, made.Token, map[string]string{"command": movedData, "timeout": "2m"}, &out); err != nil || out.ExitCode != 0 {
			return fmt.Errorf("make the data: %s: %w", out.Output, err)
		}
		if err := c.awaitPushed(ctx, made, 2); err != nil {
			return err
		}
		var longest []float64
		for n := range moves {
			waited, err := c.moveUnderLoad(ctx, made, c.servers[1+(n+1)%2])
			if err != nil {
				return err
			}
			longest = append(longest, inMillis(waited))
			if err := pause(ctx, moveRest); err != nil { // the node before removes what it had
				return err
			}
		}
		b.table.worst("move of a stack with 200 MB of data: longest request", millis, longest, moveGoal)
		return nil
	})
}

// moveUnderLoad moves a stack to a node while it is asked all the time through a third one,
// and returns how long the longest request took.
func (c *three) moveUnderLoad(ctx context.Context, made deployed, to *labServer) (longest time.Duration, err error) {
	moved := make(chan error, 1)
	go func() {
		_, err := c.command(ctx, c.servers[0], "stacks", "move", made.ID, to.node.Name)
		moved <- err
	}()
	for {
		begun := time.Now()
		status, _, err := get(ctx, "http://"+c.servers[0].berth.target.addr+"/", made.host())
		if err != nil || status != http.StatusOK {
			return 0, fmt.Errorf("a request during the move: status %d, %w", status, err)
		}
		longest = max(longest, time.Since(begun))
		select {
		case err := <-moved:
			return longest, err
		case <-time.After(pollEvery):
		}
	}
}
