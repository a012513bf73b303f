package domain

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/berth-host/berth/internal/auth"
	"github.com/berth-host/berth/internal/safetext"
	"github.com/berth-host/berth/internal/stack"
)

// Store holds the rows of domains; package store implements it.
type Store interface {
	Domains(ctx context.Context, stackID string) ([]stack.Domain, error)
	// Domain returns a domain of a stack; NotFound if the stack does not have it.
	Domain(ctx context.Context, stackID, host string) (stack.Domain, error)
	ActiveDomains(ctx context.Context) ([]stack.Domain, error)
	// ActiveDomain returns nil if there is none with the host.
	ActiveDomain(ctx context.Context, host string) (*stack.Domain, error)
	// ProvedDomain reports whether a stack has the host active or lost, or pending in place of
	// an active one of the same account that was removed.
	ProvedDomain(ctx context.Context, host string) (bool, error)
	AddDomain(ctx context.Context, d stack.Domain) (after stack.Domain, added bool, err error)
	UpdateDomain(ctx context.Context, stackID, host string, fn func(d, holder *stack.Domain) error) (stack.Domain, error)
	// RemoveDomain lets pending domains of the account with the same host keep the certificate
	// of an active one, and has them checked at once, as the deletion of a stack does.
	RemoveDomain(ctx context.Context, stackID, host string) error
	// TakeDueDomains returns domains whose check is due, at most as many as most and as each
	// for an account, none of the accounts in busy, and puts their checks off.
	TakeDueDomains(ctx context.Context, now time.Time, putOff time.Duration, most, each int, busy []string) ([]stack.Domain, error)
	DueOrders(ctx context.Context, now time.Time) ([]stack.Domain, error)
	// Watch wakes after each change of a stack; the id "" is for all.
	Watch(id string) (woken <-chan struct{}, stop func())
}

// Certificates are ordered from an authority; package certs implements it.
type Certificates interface {
	// Obtain orders a certificate unless there is one.
	Obtain(ctx context.Context, host string) error
	// Until returns the end of a host's certificate; false if there is none.
	Until(ctx context.Context, host string) (time.Time, bool)
	// Forget removes the certificate of a host, also from the memory of this node.
	Forget(ctx context.Context, host string) error
	// Names returns the names that have certificates.
	Names(ctx context.Context) ([]string, error)
}

// Limiter counts what an account does; package redis implements it.
type Limiter interface {
	Allow(ctx context.Context, account string) bool
}

// Config is what Domains need.
type Config struct {
	Store    Store
	Resolver *Resolver
	Key      auth.Key // of the installation, for the values of TXT records
	URLs     stack.URLs
	Times    stack.DomainTimes
	// Route is called with the active domains whenever they may have changed: the host of
	// each, with the own name of the service that it leads to.
	Route func(hosts map[string]string)
	// Certificates is nil if they do not come from an authority.
	Certificates Certificates
	Orders       Limiter // of certificates, by account
	Checks       Limiter // that are asked for, by account
	Log          *slog.Logger
}

// Domains are the domains of all stacks.
type Domains struct {
	cfg        Config
	base, apps string // names of this server, in lower case
	sweepEvery time.Duration

	checks, orders bell // ring when some may be due

	loading sync.Mutex // held while the active domains are read and routed

	mu       sync.Mutex
	active   map[string]string // the hosts that were routed last
	checking map[string]int    // by account: checks that were due and are under way
	ordering map[string]bool   // hosts whose order is under way
	left     map[string]bool   // hosts that are active no longer and whose certificate was not removed here
}

// New returns Domains that route nothing before Load.
func New(cfg Config) *Domains {
	return &Domains{
		cfg:  cfg,
		base: strings.ToLower(cfg.URLs.Base.Hostname()), apps: strings.ToLower(cfg.URLs.AppsDomain), sweepEvery: sweepEvery,
		checks: newBell(), orders: newBell(), active: map[string]string{}, checking: map[string]int{}, ordering: map[string]bool{}, left: map[string]bool{},
	}
}

// View is a domain as its owner sees it.
type View struct {
	Domain  stack.Domain
	Reason  string // why it is not active, or what is wrong with it; "" for nothing
	Records []Record
	Until   time.Time // end of its certificate; zero if there is none
}

// List returns the domains of a claimed stack.
func (d *Domains) List(ctx context.Context, s *stack.Stack) ([]View, error) {
	all, err := d.cfg.Store.Domains(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	views, here := make([]View, len(all)), d.lookUpHere(ctx)
	for i := range all {
		views[i] = d.view(ctx, s, all[i], here)
	}
	return views, nil
}

// Get returns a domain of a stack; NotFound if it does not have it.
func (d *Domains) Get(ctx context.Context, s *stack.Stack, host string) (View, error) {
	found, err := d.cfg.Store.Domain(ctx, s.ID, d.canonical(host))
	if err != nil {
		return View{}, err
	}
	return d.view(ctx, s, found, d.lookUpHere(ctx)), nil
}

// Add adds a domain to a claimed stack, and reports whether the stack did not have it. One
// that the stack has already leads to the service from now on. An unusable host or an
// unknown service is Unprocessable; too many domains are a Conflict.
func (d *Domains) Add(ctx context.Context, s *stack.Stack, host, service string) (v View, added bool, err error) {
	if host, err = d.Host(host); err != nil {
		return View{}, false, err
	}
	found := s.Service(service)
	if found == nil {
		return View{}, false, stack.NewError(stack.Unprocessable, fmt.Sprintf("there is no service %s; the services are %s", safetext.Name(service), strings.Join(s.ServiceNames(), ", ")))
	}
	if db := found.Spec.Database(); db != nil {
		return View{}, false, stack.NewError(stack.Unprocessable, service+" is a database, which speaks no HTTP, so no domain can lead to it; name a service that does")
	}
	after, added, err := d.cfg.Store.AddDomain(ctx, stack.NewDomain(s.ID, host, service, stack.Now()))
	if err != nil {
		return View{}, false, err
	}
	d.checks.ring()
	return d.view(ctx, s, after, d.lookUpHere(ctx)), added, d.Load(ctx)
}

// Remove removes a domain of a stack with its certificate, unless the domain is active and
// another stack of the account has the host pending: that one is checked at once and keeps the
// certificate. NotFound if the stack does not have it.
func (d *Domains) Remove(ctx context.Context, s *stack.Stack, host string) error {
	host = d.canonical(host)
	if err := d.cfg.Store.RemoveDomain(ctx, s.ID, host); err != nil {
		return err
	}
	d.forget(ctx, host)
	return d.Load(ctx)
}

// SetPrimary makes the URL of an active domain that of its service in the environment of the
// next generations, in place of any other domain's, or no longer. A domain that is not active
// is a Conflict.
func (d *Domains) SetPrimary(ctx context.Context, s *stack.Stack, host string, primary bool) (View, error) {
	after, err := d.cfg.Store.UpdateDomain(ctx, s.ID, d.canonical(host), func(domain, _ *stack.Domain) error {
		if primary && domain.Status != stack.DomainActive {
			return stack.NewError(stack.Conflict, fmt.Sprintf("%s is %s, and only an active domain can be primary: %s", domain.Host, domain.Status, domain.Trouble()))
		}
		domain.Primary = primary
		return nil
	})
	if err != nil {
		return View{}, err
	}
	return d.view(ctx, s, after, d.lookUpHere(ctx)), nil
}

// Check checks a domain now.
func (d *Domains) Check(ctx context.Context, s *stack.Stack, host string) (View, error) {
	found, err := d.cfg.Store.Domain(ctx, s.ID, d.canonical(host))
	if err != nil {
		return View{}, err
	}
	if !d.cfg.Checks.Allow(ctx, found.Owner) {
		return View{}, stack.NewTooMany(time.Minute)
	}
	after, err := d.check(ctx, found, true)
	if err != nil {
		return View{}, err
	}
	return d.view(ctx, s, after, d.lookUpHere(ctx)), nil
}

// canonical returns a host of a stack as the database has it, whichever way it is written. A
// host that is refused is nobody's.
func (d *Domains) canonical(typed string) string {
	if host, err := ascii.ToASCII(strings.TrimSuffix(typed, ".")); err == nil {
		return host
	}
	return typed
}

// view adds to a domain what its owner enters at the DNS, and the end of its certificate. here
// returns the addresses of the base URL's host.
func (d *Domains) view(ctx context.Context, s *stack.Stack, of stack.Domain, here func() []netip.Addr) View {
	v := View{Domain: of, Reason: of.Trouble(), Records: d.records(s, of, here)}
	if of.Status == stack.DomainPending && of.NextCheck.IsZero() {
		v.Reason += "; nobody looks for it any more: add the domain again once it is there"
	}
	if v.Reason == "" && s.Service(of.Service) == nil {
		v.Reason = fmt.Sprintf("the stack has no service %s any more, so requests get 404: add the domain again for one of its services, or deploy with that one", of.Service)
	}
	if d.cfg.Certificates != nil && of.Status == stack.DomainActive {
		v.Until, _ = d.cfg.Certificates.Until(ctx, of.Host)
	}
	return v
}

// records returns what the owner of a domain enters at the DNS. A registered name, which
// cannot have a CNAME record, gets the addresses of the base URL's host, as far as they are
// known.
func (d *Domains) records(s *stack.Stack, of stack.Domain, here func() []netip.Addr) []Record {
	proof := Record{"TXT", recordPrefix + of.Host, d.proof(of)}
	if apex, err := publicsuffix.EffectiveTLDPlusOne(of.Host); err != nil || apex != of.Host {
		return []Record{{"CNAME", of.Host, d.cfg.URLs.Hostname(s, of.Service)}, proof}
	}
	var records []Record
	for _, addr := range here() {
		kind := "A"
		if addr.Is6() {
			kind = "AAAA"
		}
		records = append(records, Record{kind, of.Host, addr.String()})
	}
	slices.SortFunc(records, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Value, b.Value)) })
	return append(records, proof)
}

// lookUpHere returns a function that looks up the addresses of the base URL's host when it is
// first called; it returns none if they are not known.
func (d *Domains) lookUpHere(ctx context.Context) func() []netip.Addr {
	return sync.OnceValue(func() []netip.Addr {
		ctx, cancel := context.WithTimeout(ctx, queryLimit)
		defer cancel()
		here, err := d.here(ctx)
		if err != nil {
			d.cfg.Log.Warn("the addresses for the records of domains are not known", "error", err)
		}
		return here
	})
}
