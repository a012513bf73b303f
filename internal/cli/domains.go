package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/berth-host/berth/internal/client"
)

func (a *app) domainsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "domains [STACK]",
		Short: "List, add and remove your own domains",
		Long:  "List the domains of a claimed stack, your own names that lead to its services, and what to enter at the DNS for those that are not active. Domains need your API key.",
		Example: `berth domains
berth domains add www.example.com --service web
berth domains remove www.example.com`,
	}
	a.onOwnStack(cmd, 0, func(ctx context.Context, c *client.Client, id string, _ []string) error {
		return a.listDomains(ctx, c, id)
	})
	cmd.AddCommand(a.addDomainCommand(), a.removeDomainCommand())
	return cmd
}

func (a *app) addDomainCommand() *cobra.Command {
	var service string
	cmd := &cobra.Command{
		Use:     "add [STACK] HOST",
		Short:   "Add a domain, and print what to enter at the DNS",
		Long:    "Add a domain that leads to a service, and print the records to enter where you manage its DNS. The server looks for them every minute for a week, and berth domains shows once they are found; adding the domain again has it look again.",
		Example: `berth domains add www.example.com --service web`,
	}
	cmd.Flags().StringVar(&service, "service", "", "service that it leads to (default: the stack's only one)")
	a.onOwnStack(cmd, 1, func(ctx context.Context, c *client.Client, id string, args []string) error {
		return a.addDomain(ctx, c, id, args, service)
	})
	cmd.GroupID = ""
	return cmd
}

func (a *app) removeDomainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "remove [STACK] HOST",
		Short:   "Remove a domain",
		Long:    "Remove a domain with its certificate. Its records at the DNS are of no use afterwards.",
		Example: `berth domains remove www.example.com`,
	}
	a.onOwnStack(cmd, 1, func(ctx context.Context, c *client.Client, id string, args []string) error {
		if len(args) == 0 {
			return usagef("name the domain, as in %s", cmd.Example)
		}
		if err := c.RemoveDomain(ctx, id, args[0]); err != nil {
			return err
		}
		return a.report(map[string]string{"host": args[0], "status": "removed"}, "%s was removed from %s", args[0], id)
	})
	cmd.GroupID = ""
	return cmd
}

func (a *app) addDomain(ctx context.Context, c *client.Client, id string, args []string, service string) error {
	if len(args) == 0 {
		return usagef("name the domain, as in berth domains add www.example.com --service web")
	}
	if service == "" {
		s, err := c.Stack(ctx, id, false)
		if err != nil {
			return err
		}
		if service = s.Services[0].Name; len(s.Services) > 1 {
			return usagef("the stack has several services; choose one with --service")
		}
	}
	d, err := c.AddDomain(ctx, id, args[0], service)
	if err != nil {
		return err
	}
	if a.json {
		return a.ui.printJSON(d)
	}
	if d.Status == "active" {
		a.ui.sayf("%s is active and leads to %s", d.Host, d.Service)
		return nil
	}
	a.ui.sayf("%s is %s; enter these records where you manage its DNS, then look with berth domains", d.Host, d.Status)
	return a.printRecords(d.Records)
}

func (a *app) printRecords(records []client.DomainRecord) error {
	w := tabwriter.NewWriter(a.ui.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TYPE\tNAME\tVALUE")
	for _, r := range records {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.Type, r.Name, r.Value)
	}
	return flush(w)
}

// listDomains prints the domains of a stack, why some are not active, and what to enter for
// these.
func (a *app) listDomains(ctx context.Context, c *client.Client, id string) error {
	domains, err := c.Domains(ctx, id)
	if err != nil {
		return err
	}
	if a.json {
		return a.ui.printJSON(map[string]any{"domains": domains})
	}
	if len(domains) == 0 {
		a.ui.sayf("no domains; add one with berth domains add HOST --service NAME")
		return nil
	}
	w := tabwriter.NewWriter(a.ui.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tSERVICE\tSTATUS\tCHECKED\tCERTIFICATE UNTIL\tREASON")
	var records []client.DomainRecord
	for _, d := range domains {
		status := d.Status
		if status != "active" {
			records = append(records, d.Records...)
		}
		if d.Primary {
			status += ", primary"
		}
		reason := "-"
		if d.Reason != nil {
			reason = strings.Join(strings.Fields(*d.Reason), " ")
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Host, d.Service, status, changedAt(d.CheckedAt), changedAt(d.CertificateUntil), reason)
	}
	if err := flush(w); err != nil || records == nil {
		return err
	}
	a.ui.sayf("enter these records where you manage the DNS of the domains that are not active")
	return a.printRecords(records)
}

func flush(w *tabwriter.Writer) error {
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
