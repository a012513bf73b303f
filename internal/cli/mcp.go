package cli

import (
	"cmp"
	"context"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
	"github.com/berth-host/berth/internal/mcp"
	"github.com/berth-host/berth/internal/pack"
)

func (a *app) mcpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mcp",
		Short: "Serve tools for agents over the Model Context Protocol",
		Long: "Serve the Model Context Protocol on standard input and output, for programs that run agents: " +
			"tools to deploy a folder of this machine, redeploy it, and see how it runs. " +
			"The tokens of the stacks that it creates are remembered, as after berth deploy.",
		Example: `# In the configuration of the agent
{"mcpServers": {"berth": {"command": "berth", "args": ["mcp"]}}}`,
		Args: cobra.NoArgs,
		RunE: a.runCommand(func(ctx context.Context, _ []string) error { return a.serveTools(ctx) }),
	}
}

// serveTools answers the tools' calls until standard input ends.
func (a *app) serveTools(ctx context.Context) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	return mcp.Serve(ctx, mcp.Config{
		API:     c,
		Version: version(),
		Log:     slog.Default(),
		Token:   func(_ context.Context, stackID string) string { return a.likelyToken(c.Server(), stackID) },
		Created: func(_ context.Context, s *client.Stack) error {
			return a.memory.update(c.Server(), func(known *onServer) { known.keep("", s) })
		},
		Pack: func(ctx context.Context, folder string, out io.Writer) error {
			_, err := pack.Write(ctx, folder, nil, out)
			return err
		},
	})
}

// likelyToken returns the token to try for a stack, or for a new one if stackID is "";
// "" for none.
func (a *app) likelyToken(server, stackID string) string {
	known, err := a.memory.load(server)
	if err != nil {
		return a.env("BERTH_TOKEN")
	}
	return cmp.Or(a.tokens(known, stackID)...)
}
