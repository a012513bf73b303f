package domain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// Resolver asks recursive DNS servers. Unlike the standard library's resolver, it
// distinguishes an answer without a record from a failure to answer.
type Resolver struct {
	server string // host:port; "" for those of the system
	limit  time.Duration
}

const (
	// resolvConf names the system's servers.
	resolvConf = "/etc/resolv.conf"
	// queryLimit is how long a server may take to answer a query.
	queryLimit = 3 * time.Second
	// payload is the size of an answer over UDP, in bytes, that every network passes.
	payload = 1232
)

// NewResolver returns a resolver that asks the server at host:port, or the system's servers
// for "".
func NewResolver(server string) *Resolver { return &Resolver{server: server, limit: queryLimit} }

// servers returns the servers to ask, one after the other.
func (r *Resolver) servers() ([]string, error) {
	if r.server != "" {
		return []string{r.server}, nil
	}
	cfg, err := dns.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("read the system's DNS servers: %w", err)
	}
	var servers []string
	for _, host := range cfg.Servers {
		servers = append(servers, net.JoinHostPort(host, cfg.Port))
	}
	if len(servers) == 0 {
		return nil, errors.New(resolvConf + " names no DNS server")
	}
	return servers, nil
}

// records returns the records of a name of one type, and those that led to them. There may be
// none; an error means that no server answered.
func (r *Resolver) records(ctx context.Context, name string, kind uint16) ([]dns.RR, error) {
	servers, err := r.servers()
	for _, server := range servers {
		var answer *dns.Msg
		if answer, err = r.ask(ctx, server, name, kind); err == nil {
			return answer.Answer, nil
		}
	}
	return nil, fmt.Errorf("the DNS has no answer for %s %s: %w", dns.TypeToString[kind], name, err)
}

// ask asks one server, again over TCP for an answer that is too long for UDP.
func (r *Resolver) ask(ctx context.Context, server, name string, kind uint16) (*dns.Msg, error) {
	query := new(dns.Msg).SetQuestion(dns.Fqdn(name), kind).SetEdns0(payload, false)
	answer, err := r.exchange(ctx, "udp", server, query)
	if err == nil && answer.Truncated {
		answer, err = r.exchange(ctx, "tcp", server, query)
	}
	if err != nil {
		return nil, err
	}
	return answer, fault(answer)
}

func (r *Resolver) exchange(ctx context.Context, network, server string, query *dns.Msg) (*dns.Msg, error) {
	client := &dns.Client{Net: network, UDPSize: payload, Timeout: r.limit}
	answer, _, err := client.ExchangeContext(ctx, query, server)
	return answer, cmp.Or(ctx.Err(), err)
}

// fault returns why a message is not an answer.
func fault(m *dns.Msg) error {
	switch {
	case m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError:
		return fmt.Errorf("the server says %s", cmp.Or(dns.RcodeToString[m.Rcode], fmt.Sprint("code ", m.Rcode)))
	case len(m.Answer) == 0 && !m.Authoritative && !m.RecursionAvailable:
		return errors.New("the server only refers to others")
	}
	return nil
}

// Texts returns the texts of the TXT records of a name.
func (r *Resolver) Texts(ctx context.Context, name string) ([]string, error) {
	records, err := r.records(ctx, name, dns.TypeTXT)
	var texts []string
	for _, record := range records {
		if txt, ok := record.(*dns.TXT); ok {
			texts = append(texts, strings.Join(txt.Txt, ""))
		}
	}
	return texts, err
}

// Addresses returns the addresses of a name, and the names of the CNAME records that lead to
// them, in lower case without a final dot.
func (r *Resolver) Addresses(ctx context.Context, name string) (addrs []netip.Addr, names []string, err error) {
	if addr, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{addr.Unmap()}, nil, nil
	}
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		records, err := r.records(ctx, name, kind)
		if err != nil {
			return nil, nil, err
		}
		for _, record := range records {
			switch record := record.(type) {
			case *dns.A:
				addrs = appendAddr(addrs, record.A)
			case *dns.AAAA:
				addrs = appendAddr(addrs, record.AAAA)
			case *dns.CNAME:
				names = append(names, strings.ToLower(strings.TrimSuffix(record.Target, ".")))
			}
		}
	}
	return addrs, names, nil
}

func appendAddr(addrs []netip.Addr, ip net.IP) []netip.Addr {
	if addr, ok := netip.AddrFromSlice(ip); ok {
		addrs = append(addrs, addr.Unmap())
	}
	return addrs
}
