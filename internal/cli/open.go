package cli

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
)

func (a *app) openCommand() *cobra.Command {
	var onlyPrint bool
	cmd := &cobra.Command{
		Use:   "open [STACK] [SERVICE]",
		Short: "Check that a service answers, print its URL and open it in the browser",
		Long:  "Check that a service answers, print its URL and, on a terminal with a browser, open it. Without SERVICE, it opens web or else the first service.",
	}
	cmd.Flags().BoolVar(&onlyPrint, "print", false, "print the URL without opening it")
	return a.onStack(cmd, 1, func(ctx context.Context, t *target, args []string) error {
		return a.open(ctx, t, argument(args, ""), onlyPrint)
	})
}

func (a *app) open(ctx context.Context, t *target, name string, onlyPrint bool) error {
	service, err := pickService(t.stack, name)
	if err != nil {
		return err
	}
	status, err := t.api.Reach(ctx, service.URL)
	if err != nil {
		return err
	}
	if a.json {
		return a.ui.printJSON(map[string]any{"service": service.Name, "url": service.URL, "status": status})
	}
	a.ui.sayf("%s answers %d", service.Name, status)
	if err := a.ui.println(service.URL); err != nil {
		return err
	}
	if onlyPrint || !a.ui.shows {
		return nil
	}
	return a.browse(service.URL)
}

// pickService returns the service with a name; with "", the one that people most likely
// mean.
func pickService(s *client.Stack, name string) (client.Service, error) {
	var names []string
	for _, service := range s.Services {
		if service.Name == name || name == "" && service.Name == "web" {
			return service, nil
		}
		names = append(names, service.Name)
	}
	if name == "" && len(s.Services) > 0 {
		return s.Services[0], nil
	}
	return client.Service{}, &failure{
		code:   exitNotFound,
		detail: fmt.Sprintf("the stack has no service %q; its services are %s", name, strings.Join(names, ", ")),
	}
}

// browse opens a URL in the browser, if there is one.
func (a *app) browse(address string) error {
	var cmd *exec.Cmd
	switch {
	case runtime.GOOS == "darwin":
		cmd = exec.Command("open", address)
	case runtime.GOOS == "windows":
		cmd = exec.Command("rundll32", "url.dll,FileProtocolHandler", address)
	case a.env("DISPLAY") == "" && a.env("WAYLAND_DISPLAY") == "":
		return nil
	default:
		cmd = exec.Command("xdg-open", address)
	}
	if err := cmd.Start(); err != nil {
		a.ui.sayf("could not start a browser: %v", err)
		return nil
	}
	return cmd.Process.Release()
}
