package domain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// recordPrefix comes before a host in the name of the record with its proof.
const recordPrefix = "_berth."

// Record is a record that an owner enters at the DNS.
type Record struct {
	Type, Name, Value string
}

// checkLimit is how long all look-ups of one check may take.
const checkLimit = 20 * time.Second

// look returns what the DNS says about a domain.
func (d *Domains) look(ctx context.Context, of stack.Domain) stack.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	texts, err := d.cfg.Resolver.Texts(ctx, recordPrefix+of.Host)
	if err != nil {
		return stack.Finding{Reason: err.Error()}
	}
	f := stack.Finding{Answered: true, Proves: func(claim stack.Domain) bool {
		return slices.Contains(texts, d.proof(claim))
	}}
	var wrong []string
	if !f.Proves(of) {
		wrong = append(wrong, fmt.Sprintf("the TXT record %s%s with the value %s is not there", recordPrefix, of.Host, d.proof(of)))
	}
	elsewhere, err := d.elsewhere(ctx, of.Host)
	switch {
	case err != nil:
		wrong = append(wrong, err.Error())
	case elsewhere != "":
		f.Resolved = true
		wrong = append(wrong, elsewhere)
	default:
		f.Resolved, f.Leads = true, true
	}
	f.Reason = strings.Join(wrong, "; ")
	return f
}

// proof returns the value of the TXT record of a domain.
func (d *Domains) proof(of stack.Domain) string { return d.cfg.Key.DomainProof(of.Owner, of.Host) }

// elsewhere returns why the addresses of a host do not lead to this server, "" if they do. A
// host leads here if a name of this server is among those of its CNAME records, or if each
// of its addresses is one of the base URL's host.
func (d *Domains) elsewhere(ctx context.Context, host string) (why string, err error) {
	addrs, names, err := d.cfg.Resolver.Addresses(ctx, host)
	if err != nil || slices.ContainsFunc(names, d.public) {
		return "", err
	}
	if len(addrs) == 0 {
		return host + " has no address yet", nil
	}
	here, err := d.here(ctx)
	if err != nil {
		return "", err
	}
	for _, addr := range addrs {
		if !slices.Contains(here, addr) {
			return fmt.Sprintf("%s leads to %s, and this server is at %s", host, addr, listed(here)), nil
		}
	}
	return "", nil
}

// here returns the addresses of the base URL's host.
func (d *Domains) here(ctx context.Context) ([]netip.Addr, error) {
	addrs, _, err := d.cfg.Resolver.Addresses(ctx, d.base)
	if err == nil && len(addrs) == 0 {
		err = fmt.Errorf("this server's own name, %s, has no address at the DNS; tell its operator", d.base)
	}
	return addrs, err
}

func listed(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	return strings.Join(texts, " and ")
}
