// Command berth is the client of a Berth server; see package cli.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/berth-host/berth/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second one ends it at once
	code := cli.Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}
