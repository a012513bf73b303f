package stack_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-host/berth/internal/stack"
)

var domainTimes = stack.DomainTimes{PendingEvery: time.Minute, Pending: 7 * 24 * time.Hour, Every: 24 * time.Hour, Grace: 72 * time.Hour}

func finding(proved, leads bool) stack.Finding {
	return stack.Finding{Answered: true, Proves: func(stack.Domain) bool { return proved }, Resolved: true, Leads: leads, Reason: "as it is"}
}

var (
	missing    = finding(false, true)
	elsewhere  = finding(true, false)
	found      = finding(true, true)
	unanswered = stack.Finding{Reason: "no answer"}
)

// aDomain is an active domain, which was found at a time.
func aDomain(at time.Time) stack.Domain {
	d := stack.NewDomain("stk_1", "www.example.com", "web", at)
	d.Checked(found, nil, domainTimes, at)
	return d
}

func TestDomain_PendingIsCheckedEachMinuteForAWeek(t *testing.T) {
	start := stack.Now()
	d := stack.NewDomain("stk_1", "www.example.com", "web", start)
	checks := 0
	for !d.NextCheck.IsZero() {
		now := d.NextCheck
		switch checks++; checks % 3 {
		case 0:
			d.Checked(missing, nil, domainTimes, now)
		case 1:
			d.Checked(elsewhere, nil, domainTimes, now)
		default:
			d.Checked(unanswered, nil, domainTimes, now)
		}
		if d.Status != stack.DomainPending || now.Sub(start) > domainTimes.Pending {
			t.Fatalf("%s after %s", d.Status, now.Sub(start))
		}
	}
	if want := 7*24*60 + 1; checks != want {
		t.Errorf("%d checks in a week, want %d", checks, want)
	}
	later := start.Add(30 * 24 * time.Hour)
	d.Asked(later)
	if d.Checked(missing, nil, domainTimes, later); !d.NextCheck.Equal(later.Add(time.Minute)) {
		t.Errorf("after a check on request the next is at %s", d.NextCheck)
	}
}

func TestDomain_IsLostAfterThreeDaysWithoutProofAndNotBefore(t *testing.T) {
	now := stack.Now()
	d := aDomain(now)
	if d.Status != stack.DomainActive || !d.NextCheck.Equal(now.Add(24*time.Hour)) || !d.NextOrder.Equal(now) {
		t.Fatalf("%+v", d)
	}
	begun := d.NextCheck
	d.Primary = true
	for checks := 1; ; checks++ {
		now = d.NextCheck
		d.Checked(missing, nil, domainTimes, now)
		if d.Status == stack.DomainLost {
			if now.Sub(begun) != domainTimes.Grace || checks != 4 || d.Primary || !d.NextOrder.IsZero() {
				t.Errorf("lost after %s and %d checks: %+v", now.Sub(begun), checks, d)
			}
			break
		}
	}
	if !d.NextCheck.Equal(now.Add(24 * time.Hour)) {
		t.Errorf("a lost domain is checked at %s", d.NextCheck)
	}
	if d.Checked(found, nil, domainTimes, d.NextCheck); d.Status != stack.DomainActive {
		t.Errorf("it does not come back: %s", d.Status)
	}
}

func TestDomain_AProofThatComesBackInTimeCountsAgainFromTheStart(t *testing.T) {
	now := stack.Now()
	d := aDomain(now)
	for range 10 {
		for range 3 {
			now = d.NextCheck
			d.Checked(missing, nil, domainTimes, now)
		}
		now = now.Add(time.Hour)
		d.Checked(found, nil, domainTimes, now)
	}
	if d.Status != stack.DomainActive || !d.MissingSince.IsZero() {
		t.Errorf("%+v", d)
	}
}

func TestDomain_NoAnswerIsNeverAMissingProof(t *testing.T) {
	now := stack.Now()
	d := aDomain(now)
	for range 1000 {
		now = d.NextCheck
		d.Checked(unanswered, nil, domainTimes, now)
	}
	if d.Status != stack.DomainActive || d.Reason != "no answer" || now.Sub(d.CheckedAt) < 24*time.Hour {
		t.Errorf("%+v", d)
	}
	if next := d.NextCheck.Sub(now); next != time.Hour {
		t.Errorf("the next check is after %s", next)
	}
}

func TestDomain_TimeWithoutAnAnswerIsNoTimeOfGrace(t *testing.T) {
	const hour = time.Hour
	for name, tt := range map[string]struct {
		waits func(misses int) time.Duration // before the next check that is answered
		lost  time.Duration                  // after the first miss
		most  int                            // checks that miss it, with the first
	}{
		"every check is answered, but late":        {func(n int) time.Duration { return 24*hour + time.Duration(n)*time.Minute }, 72*hour + 6*time.Minute, 4},
		"one that was asked for comes early":       {func(n int) time.Duration { return []time.Duration{0, hour, 24 * hour, 24 * hour, 23 * hour}[n] }, 72 * hour, 5},
		"nothing answers for three days":           {func(n int) time.Duration { return []time.Duration{0, 72 * hour, 24 * hour, 24 * hour}[n] }, 120 * hour, 4},
		"nothing answers for a week, twice":        {func(n int) time.Duration { return []time.Duration{0, 168 * hour, 24 * hour, 168 * hour}[n] }, 360 * hour, 4},
		"nothing answers for nine days, each time": {func(int) time.Duration { return 9 * 24 * hour }, 27 * 24 * hour, 4},
	} {
		for _, running := range []bool{true, false} { // while nothing answers
			now := stack.Now()
			d := aDomain(now)
			now = d.NextCheck
			begun, misses := now, 1
			d.Checked(missing, nil, domainTimes, now)
			for d.Status == stack.DomainActive && misses < 10 {
				next := now.Add(tt.waits(misses))
				for at := d.NextCheck; running && at.Before(next); at = d.NextCheck {
					d.Checked(unanswered, nil, domainTimes, at)
				}
				now, misses = next, misses+1
				d.Checked(missing, nil, domainTimes, now)
			}
			if now.Sub(begun) != tt.lost || misses != tt.most {
				t.Errorf("%s, running %t: lost after %s and %d checks, want %s and %d", name, running, now.Sub(begun), misses, tt.lost, tt.most)
			}
		}
	}
}

func TestDomain_LeadingElsewhereIsNotALostProof(t *testing.T) {
	now := stack.Now()
	d := aDomain(now)
	for range 100 {
		now = d.NextCheck
		d.Checked(elsewhere, nil, domainTimes, now)
	}
	if d.Status != stack.DomainActive || d.Trouble() != "as it is" {
		t.Errorf("%+v", d)
	}
}

func TestDomain_AHolderYieldsOnlyWithoutItsProof(t *testing.T) {
	now := stack.Now()
	for name, tt := range map[string]struct {
		holderProves bool
		rival        stack.Finding
		want, holder stack.DomainStatus
	}{
		"both have it":                {true, found, stack.DomainPending, stack.DomainActive},
		"the rival has it":            {false, found, stack.DomainActive, stack.DomainLost},
		"nobody has it":               {false, missing, stack.DomainPending, stack.DomainActive},
		"it leads elsewhere":          {false, elsewhere, stack.DomainPending, stack.DomainActive},
		"there is no answer":          {false, unanswered, stack.DomainPending, stack.DomainActive},
		"where it leads is not known": {false, stack.Finding{Answered: true, Proves: found.Proves, Reason: "x"}, stack.DomainPending, stack.DomainActive},
	} {
		holder := aDomain(now)
		holder.Owner, holder.Primary = "acc_1", true
		d := stack.NewDomain("stk_2", holder.Host, "web", now)
		d.Owner = "acc_2"
		f := tt.rival
		if proves := f.Proves; proves != nil {
			f.Proves = func(of stack.Domain) bool {
				if of.Owner == "acc_1" {
					return tt.holderProves
				}
				return proves(of)
			}
		}
		d.Checked(f, &holder, domainTimes, now)
		if d.Status != tt.want || holder.Status != tt.holder || holder.Primary != (tt.holder == stack.DomainActive) {
			t.Errorf("%s: %s, and the holder %s", name, d.Status, holder.Status)
		}
	}
}

func TestDomain_PendingKeepsACertificateUntilItsClaimFails(t *testing.T) {
	now := stack.Now()
	for name, tt := range map[string]struct {
		found  stack.Finding
		holder bool
		after  time.Duration
		kept   bool
	}{
		"it is found":                 {found, false, 0, true},
		"it leads elsewhere":          {elsewhere, false, 0, true},
		"there is no answer":          {unanswered, false, 0, true},
		"the proof is missing":        {missing, false, 0, false},
		"another stack has the host":  {found, true, 0, false},
		"it leads elsewhere too long": {elsewhere, false, domainTimes.Pending, false},
		"nothing answers too long":    {unanswered, false, domainTimes.Pending, false},
	} {
		d := stack.NewDomain("stk_2", "www.example.com", "web", now)
		d.NextOrder = now
		var holder *stack.Domain
		if tt.holder {
			active := aDomain(now)
			holder = &active
		}
		d.Checked(tt.found, holder, domainTimes, now.Add(tt.after))
		if kept := !d.NextOrder.IsZero(); kept != tt.kept {
			t.Errorf("%s: kept: %t", name, kept)
		}
	}
}

func TestDomain_FailedOrdersWaitForADayAtMost(t *testing.T) {
	now := stack.Now()
	d := aDomain(now)
	var waits []string
	for range 9 {
		d.OrderFailed("refused", now)
		waits = append(waits, d.NextOrder.Sub(now).String())
	}
	want := []string{"1m0s", "4m0s", "16m0s", "1h4m0s", "4h16m0s", "17h4m0s", "24h0m0s", "24h0m0s", "24h0m0s"}
	if diff := cmp.Diff(want, waits); diff != "" {
		t.Error(diff)
	}
	d.Reason = ""
	if d.Trouble() != "refused" {
		t.Errorf("the trouble is %q", d.Trouble())
	}
	d.Ordered()
	if d.Trouble() != "" || !d.NextOrder.IsZero() || d.FailedOrders != 0 {
		t.Errorf("%+v", d)
	}
}

func TestPrimaryHosts_CountFromTheNextGeneration(t *testing.T) {
	s := stack.New("shop", []stack.Spec{{Name: "web", Build: "x"}, {Name: "api"}}, stack.Now())
	s.Owner, s.Status, s.Deploying = "acc_1", stack.Live, 0
	for i := range s.Generation.Services {
		s.Generation.Services[i].Image = "image"
	}
	env := func(g *stack.Generation, service int) map[string]string {
		return (&stack.Environment{Stack: s, Generation: g, URLs: urls}).Process(&g.Services[service].Spec)
	}
	before := env(&s.Generation, 0)["PUBLIC_URL"]
	s.PrimaryHosts = map[string]string{"web": "www.example.com"}
	if got := env(&s.Generation, 0)["PUBLIC_URL"]; got != before {
		t.Errorf("the served generation gets %s", got)
	}
	services := stack.Services([]stack.Spec{{Name: "web"}, {Name: "api", Env: map[string]stack.Env{"SELF": {Value: "${services.web.url}/x"}}}})
	if _, err := s.Deploy(services, stack.Now()); err != nil {
		t.Fatal(err)
	}
	next := stack.Generation{Number: 2, Services: services}
	want := urls.OfHost("www.example.com")
	if web, api := env(&next, 0), env(&next, 1); web["PUBLIC_URL"] != want || api["WEB_URL"] != want || api["SELF"] != want+"/x" || strings.Contains(api["PUBLIC_URL"], "www.example.com") {
		t.Errorf("%v\n%v", web, api)
	}
	if urls.All(s)["web"] != before {
		t.Error("the public URL has changed")
	}
	if _, err := s.Deployed(next, urls, stack.Now()); err != nil {
		t.Fatal(err)
	}
	s.PrimaryHosts = nil // the domain is lost, or removed
	if got := env(&s.Generation, 0)["PUBLIC_URL"]; got != want {
		t.Errorf("once the domain is lost the served generation gets %s, want %s", got, want)
	}
	services = stack.Services([]stack.Spec{{Name: "web"}, {Name: "api"}})
	if _, err := s.Deploy(services, stack.Now()); err != nil {
		t.Fatal(err)
	}
	if got := env(&stack.Generation{Number: 3, Services: services}, 0)["PUBLIC_URL"]; got != before {
		t.Errorf("the generation after that gets %s, want %s", got, before)
	}
}
