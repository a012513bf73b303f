package domain

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/stack"
)

// authority is a certificate authority that answers as the test wants. It admits each order
// by begin, as package certs does.
type authority struct {
	begin  func(ctx context.Context, host string) (func(error), error)
	during func() // is called while an order is under way, unless it is nil
	found  func() // is called when there is a certificate already, unless it is nil
	forget func() // is called before a certificate is removed, unless it is nil
	cached bool   // what is issued is in the memory of a node, and another has removed it elsewhere

	mu     sync.Mutex
	fails  error
	issued map[string]time.Time
	orders map[string]int
}

func (a *authority) Obtain(ctx context.Context, host string) error {
	if _, has := a.Until(ctx, host); has {
		if a.found != nil {
			a.found()
		}
		return nil
	}
	ended, err := a.begin(ctx, host)
	if err != nil {
		return err
	}
	if a.during != nil {
		a.during()
	}
	a.mu.Lock()
	a.orders[host]++
	err = a.fails
	if err == nil {
		a.issued[host] = stack.Now().Add(90 * 24 * time.Hour)
	}
	a.mu.Unlock()
	ended(err)
	return err
}

func (a *authority) Until(_ context.Context, host string) (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	until, has := a.issued[host]
	return until, has
}

func (a *authority) Forget(_ context.Context, host string) error {
	if a.forget != nil {
		a.forget()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.issued, host)
	return nil
}

func (a *authority) Names(context.Context) (names []string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cached {
		return nil, nil
	}
	for name := range a.issued {
		names = append(names, name)
	}
	return names, nil
}

func (a *authority) ordered(host string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.orders[host]
}

// quick makes the times of checks so short that a test can wait for them.
func quick(cfg *Config) {
	cfg.Times = stack.DomainTimes{PendingEvery: 20 * time.Millisecond, Pending: time.Minute, Every: 100 * time.Millisecond, Grace: 400 * time.Millisecond}
}

// newRunning returns domains that run with an authority.
func newRunning(t *testing.T, change ...func(*Config)) (*env, *authority) {
	t.Helper()
	a := &authority{issued: map[string]time.Time{}, orders: map[string]int{}}
	e := newEnv(t, append([]func(*Config){quick, func(cfg *Config) { cfg.Certificates = a }}, change...)...)
	a.begin = e.domains.BeginOrder
	return e, a
}

// run runs the domains until the test ends.
func (e *env) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); e.domains.Run(ctx) }()
	e.t.Cleanup(func() { cancel(); <-done })
}

func (e *env) get(k *stack.Stack, host string) View {
	e.t.Helper()
	v, err := e.domains.Get(e.t.Context(), k, host)
	require.NoError(e.t, err)
	return v
}

// eventually waits until a domain is as it should be.
func (e *env) eventually(k *stack.Stack, host string, is func(View) bool) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return is(e.get(k, host)) }, 10*time.Second, 5*time.Millisecond)
}

func TestRun_ChecksOrdersAndLoses(t *testing.T) {
	e, a := newRunning(t)
	k := e.claimed("ana@example.com")
	e.dns.Set(t, host, address)
	e.run()
	proof := e.add(k, host)
	time.Sleep(100 * time.Millisecond)
	require.Zero(t, a.ordered(host), "an order for a pending domain")
	e.prove(host, proof)
	e.eventually(k, host, func(v View) bool { return v.Domain.Status == stack.DomainActive && !v.Until.IsZero() })
	require.Equal(t, 1, a.ordered(host))
	began := time.Now()
	e.prove(host)
	e.eventually(k, host, func(v View) bool { return v.Domain.Status == stack.DomainLost })
	require.Greater(t, time.Since(began), 300*time.Millisecond)
	e.prove(host, proof)
	e.eventually(k, host, func(v View) bool { return v.Domain.Status == stack.DomainActive })
	require.Equal(t, 1, a.ordered(host))
}

// delete deletes a stack.
func (e *env) delete(k *stack.Stack) {
	_, err := e.store.Update(e.t.Context(), k.ID, func(k *stack.Stack) ([]stack.Event, error) { return k.Delete(stack.Now()) })
	require.NoError(e.t, err)
}

// forgotten waits until a host has no certificate any more.
func (a *authority) forgotten(t *testing.T, host string) {
	t.Helper()
	require.Eventually(t, func() bool { _, has := a.Until(t.Context(), host); return !has }, 10*time.Second, 5*time.Millisecond)
}

// addMany adds a number of pending domains to new stacks of an account.
func (e *env) addMany(owner, domain string, n int) (added []stack.Domain) {
	e.t.Helper()
	var k *stack.Stack
	for i := range n {
		if i%stack.MaxDomains == 0 {
			k = e.stackOf(owner)
		}
		d, _, err := e.store.AddDomain(e.t.Context(), stack.NewDomain(k.ID, fmt.Sprintf("h%d.%s", i, domain), "web", stack.Now()))
		require.NoError(e.t, err)
		added = append(added, d)
	}
	return added
}

func TestRun_SlowNamesHoldUpNobodyElses(t *testing.T) {
	e, _ := newRunning(t, func(cfg *Config) { cfg.Times = testTimes })
	e.domains.cfg.Resolver.limit = 3 * time.Second // of the silence
	ana, bob, cat := e.claimed("ana@example.com"), e.claimed("bob@example.com"), e.claimed("cat@example.com")
	slow := e.addMany(ana.Owner, "example.org", stack.MaxAccountDomains)
	for _, d := range slow {
		e.dns.Silence("_berth." + d.Host)
	}
	quick := e.addMany(cat.Owner, "example.net", checksAtOnce)
	e.dns.Set(t, host, address)
	e.prove(host, e.add(bob, host))
	e.run()
	unchecked := func(domains []stack.Domain) (n int) {
		for _, d := range domains {
			d, err := e.store.Domain(t.Context(), d.StackID, d.Host)
			require.NoError(t, err)
			if d.Reason == slow[0].Reason {
				n++
			}
		}
		return n
	}
	require.Eventually(t, func() bool { return !e.get(bob, host).Until.IsZero() && unchecked(quick) == 0 }, time.Minute, 50*time.Millisecond)
	require.NotZero(t, unchecked(slow), "100 checks of 3 s, a few at a time")
}

func TestCheckDue_MakesFewChecksOfAnAccountAtATime(t *testing.T) {
	e := newEnv(t)
	e.domains.cfg.Resolver.limit = 5 * time.Second // of the silence, in which the rounds must end
	ana, bob := e.claimed("ana@example.com"), e.claimed("bob@example.com")
	for _, k := range []*stack.Stack{ana, bob} {
		for _, d := range e.addMany(k.Owner, k.Hex()+".example", checksAtOnce) {
			e.dns.Silence("_berth." + d.Host)
		}
	}
	var running sync.WaitGroup
	for range 3 {
		e.domains.checkDue(t.Context(), &running)
		room, busy := e.domains.room()
		require.Equal(t, checksAtOnce-2*ChecksOfAccount, room)
		require.ElementsMatch(t, []string{ana.Owner, bob.Owner}, busy)
	}
	running.Wait()
	require.NotEmpty(t, e.domains.checks, "the end of a check looks for more")
	room, busy := e.domains.room()
	require.Equal(t, checksAtOnce, room)
	require.Empty(t, busy)
}

func TestRun_ADeletedStackFreesItsHostsAndCertificates(t *testing.T) {
	e, a := newRunning(t)
	k, rival := e.claimed("ana@example.com"), e.claimed("bob@example.com")
	e.dns.Set(t, host, address)
	e.run()
	e.prove(host, e.add(k, host))
	e.eventually(k, host, func(v View) bool { return !v.Until.IsZero() })
	e.add(rival, host) // which has not proved anything
	e.delete(k)
	a.forgotten(t, host)
	has, err := e.store.ProvedDomain(t.Context(), host)
	require.NoError(t, err)
	require.False(t, has)
}

func TestRun_ADeletedStackFreesTheCertificatesOfLostDomains(t *testing.T) {
	e, a := newRunning(t)
	k := e.claimed("ana@example.com")
	e.domains.sweepEvery = 10 * time.Millisecond
	e.dns.Set(t, host, address)
	e.run()
	e.prove(host, e.add(k, host))
	e.eventually(k, host, func(v View) bool { return !v.Until.IsZero() })
	e.prove(host)
	e.eventually(k, host, func(v View) bool { return v.Domain.Status == stack.DomainLost })
	time.Sleep(100 * time.Millisecond)
	_, has := a.Until(t.Context(), host)
	require.True(t, has, "a lost domain may come back")
	e.delete(k)
	a.forgotten(t, host)
}

// moving returns two stacks of an account: the first has the host active, with a certificate, and
// the second has it pending, for the only reason that the first has it.
func (e *env) moving() (first, second *stack.Stack) {
	e.t.Helper()
	first = e.claimed("ana@example.com")
	second = e.stackOf(first.Owner)
	e.dns.Set(e.t, host, address)
	e.prove(host, e.add(first, host))
	of := e.check(first, host)
	require.Equal(e.t, stack.DomainActive, of.Status)
	e.domains.order(e.t.Context(), of)
	e.add(second, host)
	e.add(e.claimed("bob@example.com"), host)
	pending := e.check(second, host)
	require.Contains(e.t, pending.Reason, "remove it there first")
	require.Greater(e.t, time.Until(pending.NextCheck), 30*time.Second)
	<-e.domains.checks // rung by add
	return first, second
}

// moves are the ways in which the first of two stacks makes room for the second.
var moves = map[string]func(e *env, k *stack.Stack){
	"the domain is removed": func(e *env, k *stack.Stack) { require.NoError(e.t, e.domains.Remove(e.t.Context(), k, host)) },
	"the stack is deleted": func(e *env, k *stack.Stack) {
		e.delete(k)
		require.NoError(e.t, e.domains.Load(e.t.Context()))
	},
}

func TestMove_OfAHostWithinAnAccountKeepsItsCertificate(t *testing.T) {
	for name, move := range moves {
		t.Run(name, func(t *testing.T) {
			e, a := newRunning(t, func(cfg *Config) { cfg.Times, cfg.Orders = testTimes, &some{left: map[string]int{}} })
			first, second := e.moving()
			until, _ := a.Until(t.Context(), host)
			move(e, first)
			require.Len(t, e.domains.checks, 1, "nobody looks for the check that is due")
			e.domains.sweep(t.Context())
			e.run()
			e.eventually(second, host, func(v View) bool { return v.Domain.Status == stack.DomainActive && v.Domain.NextOrder.IsZero() })
			require.Equal(t, until, e.get(second, host).Until)
			require.Equal(t, 1, a.ordered(host))
		})
	}
}

func TestMove_ThatFailsLeavesNoCertificate(t *testing.T) {
	for name, fail := range map[string]func(e *env, k *stack.Stack){
		"the domain is removed": moves["the domain is removed"],
		"the stack is deleted":  moves["the stack is deleted"],
		"the proof is gone": func(e *env, k *stack.Stack) {
			e.prove(host)
			require.Equal(e.t, stack.DomainPending, e.check(k, host).Status)
		},
		"it is given up": func(e *env, k *stack.Stack) {
			e.dns.Fail("_berth."+host, dns.RcodeServerFailure)
			of, err := e.store.UpdateDomain(e.t.Context(), k.ID, host, func(d, _ *stack.Domain) error { d.WatchedSince = d.WatchedSince.Add(-testTimes.Pending); return nil })
			require.NoError(e.t, err)
			after, err := e.domains.check(e.t.Context(), of, false)
			require.NoError(e.t, err)
			require.True(e.t, after.NextCheck.IsZero())
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, a := newRunning(t, func(cfg *Config) { cfg.Times = testTimes })
			first, second := e.moving()
			require.NoError(t, e.domains.Remove(t.Context(), first, host))
			_, has := a.Until(t.Context(), host)
			require.True(t, has)
			fail(e, second)
			e.domains.sweep(t.Context())
			_, has = a.Until(t.Context(), host)
			require.False(t, has)
		})
	}
}

func TestSweep_RemovesWhatAnotherNodeHasRemovedFromMemory(t *testing.T) {
	e, a := newRunning(t, func(cfg *Config) { cfg.Times = testTimes })
	a.cached = true
	k := e.claimed("ana@example.com")
	e.dns.Set(t, host, address)
	e.prove(host, e.add(k, host))
	e.domains.order(t.Context(), e.check(k, host))
	_, err := e.store.UpdateDomain(t.Context(), k.ID, host, func(d, _ *stack.Domain) error { d.Status = stack.DomainLost; return nil })
	require.NoError(t, err)
	require.NoError(t, e.domains.Load(t.Context()))
	e.domains.sweep(t.Context())
	_, has := a.Until(t.Context(), host)
	require.True(t, has, "a lost domain may come back")
	e.delete(k)
	e.domains.sweep(t.Context())
	_, has = a.Until(t.Context(), host)
	require.False(t, has)
	require.Empty(t, e.domains.left)
}

func TestOrder_OfAHostThatIsRemovedMeanwhileLeavesNoCertificate(t *testing.T) {
	for name, tt := range map[string]struct {
		during func(e *env, k *stack.Stack)
		kept   bool
	}{
		"the stack is deleted":  {(*env).delete, false},
		"the domain is removed": {func(e *env, k *stack.Stack) { require.NoError(e.t, e.domains.Remove(e.t.Context(), k, host)) }, false},
		"the domain is lost": {func(e *env, k *stack.Stack) {
			_, err := e.store.UpdateDomain(e.t.Context(), k.ID, host, func(d, _ *stack.Domain) error { d.Status = stack.DomainLost; return nil })
			require.NoError(e.t, err)
		}, true},
		"nothing happens": {func(*env, *stack.Stack) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			e, a := newRunning(t)
			k := e.claimed("ana@example.com")
			e.dns.Set(t, host, address)
			e.prove(host, e.add(k, host))
			e.add(e.claimed("bob@example.com"), host)
			of := e.check(k, host)
			require.Equal(t, stack.DomainActive, of.Status)
			a.during = func() { tt.during(e, k) }
			e.domains.order(t.Context(), of)
			require.Equal(t, 1, a.ordered(host))
			_, has := a.Until(t.Context(), host)
			require.Equal(t, tt.kept, has)
		})
	}
}

func TestForget_OrdersAnewForWhoeverGetsTheHostMeanwhile(t *testing.T) {
	for name, noted := range map[string]bool{ // before the certificate is removed
		"the old certificate is found and noted":         true,
		"the old certificate is found but not yet noted": false,
	} {
		t.Run(name, func(t *testing.T) {
			e, a := newRunning(t, func(cfg *Config) { cfg.Times = testTimes })
			ana, bob := e.claimed("ana@example.com"), e.claimed("bob@example.com")
			e.dns.Set(t, host, address)
			hers, his := e.add(ana, host), e.add(bob, host)
			e.prove(host, hers, his)
			e.domains.order(t.Context(), e.check(ana, host))
			var ordering sync.WaitGroup
			found, removed := make(chan struct{}), make(chan struct{})
			a.forget = func() {
				a.forget = nil
				of := e.check(bob, host)
				require.Equal(t, stack.DomainActive, of.Status)
				<-e.domains.orders // rung by check
				a.found = func() { close(found); <-removed }
				if noted {
					close(removed)
				}
				ordering.Go(func() { e.domains.order(t.Context(), of) })
				if <-found; noted {
					ordering.Wait()
					require.Zero(t, e.get(bob, host).Domain.NextOrder)
				}
			}
			<-e.domains.orders // rung by check
			require.NoError(t, e.domains.Remove(t.Context(), ana, host))
			if !noted {
				close(removed)
			}
			ordering.Wait()
			a.found = nil
			require.Len(t, e.domains.orders, 1, "nobody looks for the order that is due")
			e.run()
			e.eventually(bob, host, func(v View) bool { return !v.Until.IsZero() && v.Domain.NextOrder.IsZero() })
			require.Equal(t, 2, a.ordered(host))
		})
	}
}

func TestOrder_WhoseCertificateIsRemovedBeforeItEndsIsMadeAnew(t *testing.T) {
	e, _ := newRunning(t)
	k := e.claimed("ana@example.com")
	e.dns.Set(t, host, address)
	e.prove(host, e.add(k, host))
	require.Equal(t, stack.DomainActive, e.check(k, host).Status)
	ended, err := e.domains.BeginOrder(t.Context(), host)
	require.NoError(t, err)
	require.NoError(t, e.domains.orderAnew(t.Context(), host))
	ended(nil)
	require.NotZero(t, e.get(k, host).Domain.NextOrder)
}

func TestRun_RemovesCertificatesOfDomainsThatWereRemovedMeanwhile(t *testing.T) {
	e, a := newRunning(t)
	k := e.claimed("ana@example.com")
	for name, status := range map[string]stack.DomainStatus{host: stack.DomainActive, "lost.example.com": stack.DomainLost, "pending.example.com": stack.DomainPending} {
		e.add(k, name)
		_, err := e.store.UpdateDomain(t.Context(), k.ID, name, func(d, _ *stack.Domain) error { d.Status = status; return nil })
		require.NoError(t, err)
		a.issued[name] = time.Now()
	}
	for _, name := range []string{"gone.example.com", "berth.host.example", "web-3f2a9c1b7d4e.apps.example.net"} {
		a.issued[name] = time.Now()
	}
	e.run()
	for _, name := range []string{"gone.example.com", "pending.example.com"} {
		a.forgotten(t, name)
	}
	names, _ := a.Names(t.Context())
	require.ElementsMatch(t, []string{host, "lost.example.com", "berth.host.example", "web-3f2a9c1b7d4e.apps.example.net"}, names)
}

func TestOrders_OfAFailedOneWait(t *testing.T) {
	e, a := newRunning(t)
	a.fails = errors.New("the authority says no")
	k := e.claimed("ana@example.com")
	e.dns.Set(t, host, address)
	e.run()
	e.prove(host, e.add(k, host))
	e.eventually(k, host, func(v View) bool { return v.Domain.OrderError != "" })
	time.Sleep(200 * time.Millisecond)
	require.Equal(t, 1, a.ordered(host))
	v := e.get(k, host)
	require.Contains(t, v.Domain.Trouble(), "the authority says no")
	require.Greater(t, time.Until(v.Domain.NextOrder), 50*time.Second)
	_, err := e.domains.BeginOrder(t.Context(), host) // as a handshake asks for it
	require.ErrorIs(t, err, errPutOff)
}

// some admits a number of requests for each account.
type some struct {
	mu   sync.Mutex
	left map[string]int
}

func (s *some) Allow(_ context.Context, account string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.left[account]; !known {
		s.left[account] = OrdersPerHour
	}
	s.left[account]--
	return s.left[account] >= 0
}

func TestOrders_AreLimitedByAccount(t *testing.T) {
	e, a := newRunning(t, func(cfg *Config) { cfg.Orders = &some{left: map[string]int{}} })
	ana, bob := e.claimed("ana@example.com"), e.claimed("bob@example.com")
	e.run()
	hosts := []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com", "e.example.com", "f.example.com", "g.example.com"}
	for _, h := range hosts {
		e.dns.Set(t, h, address)
		e.prove(h, e.add(ana, h))
		e.eventually(ana, h, func(v View) bool { return !v.Until.IsZero() || v.Domain.OrderError != "" })
	}
	ordered := 0
	for _, h := range hosts {
		ordered += a.ordered(h)
	}
	require.Equal(t, OrdersPerHour, ordered)
	require.Contains(t, e.get(ana, "g.example.com").Domain.Trouble(), "ordered 5 certificates within an hour")
	require.Equal(t, stack.DomainActive, e.get(ana, "g.example.com").Domain.Status)
	e.dns.Set(t, host, address)
	e.prove(host, e.add(bob, host))
	e.eventually(bob, host, func(v View) bool { return !v.Until.IsZero() })
}

func TestRun_OfTwoServersMakesEachCheckOnce(t *testing.T) {
	e, _ := newRunning(t, func(cfg *Config) {
		cfg.Times = stack.DomainTimes{PendingEvery: time.Second, Pending: time.Minute, Every: time.Minute, Grace: time.Minute}
	})
	k := e.claimed("ana@example.com")
	other := New(e.domains.cfg)
	routed := make(chan map[string]string, 10)
	other.cfg.Route = func(hosts map[string]string) { routed <- hosts }
	e.dns.Set(t, host, address)
	e.prove(host, e.add(k, host))
	asked := e.dns.Asked()
	two := *e
	two.domains = other
	e.run()
	two.run()
	e.eventually(k, host, func(v View) bool { return v.Domain.Status == stack.DomainActive })
	require.Contains(t, <-routed, host, "the other server routes it")
	require.LessOrEqual(t, e.dns.Asked()-asked, 5, "one check asks for a text, two kinds of addresses here and there")
}
