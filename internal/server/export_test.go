package server

import (
	"context"
	"log/slog"
)

// New opens a server that does not take the place of one that runs.
func New(ctx context.Context, cfg Config, log *slog.Logger) (*Server, error) {
	return newServer(ctx, cfg, log, nil)
}
