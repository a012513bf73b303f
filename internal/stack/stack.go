package stack

import (
	"crypto/rand"
	"time"

	"github.com/berth-host/berth/internal/stackid"
)

// Status is the state of a stack (docs/api.md, "States and transitions").
type Status string

// The statuses of a stack. A deleted stack is never returned by the API; the
// row stays so that its events keep a parent.
const (
	Building Status = "building"
	Live     Status = "live"
	Failed   Status = "failed"
	Expired  Status = "expired"
	Deleted  Status = "deleted"
)

// ServiceStatus is the state of one service's process.
type ServiceStatus string

// The statuses of a service: pending until it starts, running once healthy, restarting
// from a crash until healthy again, stopped with its stack.
const (
	Pending    ServiceStatus = "pending"
	Running    ServiceStatus = "running"
	Restarting ServiceStatus = "restarting"
	Stopped    ServiceStatus = "stopped"
)

// Stack is a deployed application of one to four services. Times are in UTC with
// microseconds; the zero time stands for null.
type Stack struct {
	ID     string // stk_ and 12 hex characters
	Seq    int64  // 1, 2, 3 … in order of creation over the whole server; never used twice
	Name   string
	Status Status

	Owner      string // account id; "" while unclaimed
	ClaimEmail string // only this email may claim; "" for anyone with the code
	Network    string // client network that created it, as the cap counts: an IPv4 address or an IPv6 /64

	Node  string // id of the node that owns it, which alone touches its objects and files; "" on one machine
	Epoch int64  // counts the owners; a change that an earlier one asks for is refused

	ManageTokenHash  []byte // see package auth; empty once revoked or deleted
	RevokedTokenHash []byte // what ManageTokenHash was until the owner revoked it; empty once deleted
	ClaimCodeHash    []byte // empty if there never was a code; a used one stays, unlike an unknown one

	CreatedAt     time.Time
	DeployedAt    time.Time // last time a generation went live
	ExpiresAt     time.Time // zero once claimed
	ExpiredAt     time.Time
	RetainedUntil time.Time
	Noticed       bool // stack.expiring was recorded for this ExpiresAt

	Generation  Generation // served, or being built the first time
	Deploying   int        // number of the generation being built; 0 when none is
	Attempt     int        // number of the latest build; see Generation.Attempt
	LastDeploy  Deploy     // the latest build: how far it is, or how it ended
	Error       string     // why the stack is failed
	DeployError string     // why the last redeploy was rolled back

	Webhook       string // URL; "" when there is none
	WebhookSecret string // whsec_…; sealed at rest by the store

	Layers        map[string]Layer // what was installed, by service
	CachesDropped int              // how often the build caches were dropped; it is in the names of those in use

	// Secrets are the values made for {generate: true}, by "<service>/<KEY>", and the
	// passwords of databases, by "<service>/<runtime>@<version>"; sealed at rest.
	Secrets map[string]string

	DataVolumes map[string]int // number of the data volume by service; none for the first
	Disk        Disk           // what it takes on the disk of its node

	DataKey []byte // of what a registry has of it; nil before the first push and once deleted; sealed at rest
	Pushed  bool   // the registry may have something of it

	Snapshot     Snapshot          // the last one; zero for none
	Regained     Snapshot          // with which it began on another node, once its own was lost; zero if it never did
	PrimaryHosts map[string]string // by service: the domain whose URL the next generations get as the service's

	Attempted []string // names of the services of the last redeploy, in the manifest's order, unless it went live
}

// New returns a stack that is about to build generation 1.
func New(name string, specs []Spec, now time.Time) *Stack {
	services := Services(specs)
	(&Generation{}).date(services, now)
	s := &Stack{
		ID:         stackid.New(),
		Name:       name,
		Status:     Building,
		CreatedAt:  now,
		Generation: Generation{Number: 1, Attempt: 1, Services: services},
		Secrets:    map[string]string{},
	}
	s.beginAttempt(1, now)
	return s
}

// Hex returns the id without its prefix, as in host, container and image names.
func (s *Stack) Hex() string { return stackid.Hex(s.ID) }

// Claimed reports whether the stack belongs to an account.
func (s *Stack) Claimed() bool { return s.Owner != "" }

// UID returns the Unix user and group that everything of this stack runs as. Each stack
// has its own, so no two share the kernel's per-user limits.
func (s *Stack) UID() int { return firstUID + int(s.Seq) }

const firstUID = 200_000

// SeqOf returns the Seq of the stack whose UID is uid; below 1 if there can be none.
func SeqOf(uid int) int64 { return int64(uid - firstUID) }

// Explains reports whether the row accounts for a generation of the stack: it is or was
// served, or its build has begun and it has not gone live. Whatever exists of any other
// generation was made under a later copy of the row.
func (s *Stack) Explains(generation int) bool {
	last := max(s.Generation.Number, s.Deploying)
	if len(s.Attempted) > 0 {
		last = max(last, s.Generation.Number+1)
	}
	return generation <= last
}

// ExplainsAttempt is Explains for what a build made, by the number of the attempt.
func (s *Stack) ExplainsAttempt(attempt int) bool { return attempt <= s.Attempt }

// Settled reports whether nothing is being built or restored ("wait=true").
func (s *Stack) Settled() bool { return s.Status != Building && s.Deploying == 0 }

// Service returns the service with a name, or nil.
func (s *Stack) Service(name string) *Service {
	for i := range s.Generation.Services {
		if s.Generation.Services[i].Spec.Name == name {
			return &s.Generation.Services[i]
		}
	}
	return nil
}

// LogNames returns the names of the services with logs of a kind, run or build. A
// redeploy that is under way or failed has build logs although it is not served.
func (s *Stack) LogNames(kind string) []string {
	names := s.ServiceNames()
	if kind != "build" {
		return names
	}
	for _, name := range s.Attempted {
		if s.Service(name) == nil {
			names = append(names, name)
		}
	}
	return names
}

// ServiceNames returns the names in the manifest's order.
func (s *Stack) ServiceNames() []string {
	names := make([]string, len(s.Generation.Services))
	for i := range s.Generation.Services {
		names[i] = s.Generation.Services[i].Spec.Name
	}
	return names
}

// Now returns the current time as stacks store it: in UTC, in whole microseconds.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// Notify sets where events are delivered. The secret is used for the first webhook of a
// stack; a later webhook keeps it. An empty webhook changes nothing (docs/api.md,
// "Webhook delivery").
func (s *Stack) Notify(webhook, secret string) {
	if webhook == "" {
		return
	}
	s.Webhook = webhook
	if s.WebhookSecret == "" {
		s.WebhookSecret = secret
	}
}

// MakeSecrets makes a value for each {generate: true} of services and for the password of
// each database that does not have one yet. Values survive redeploys, for the life of the
// stack.
func (s *Stack) MakeSecrets(services []Service) {
	for _, svc := range services {
		if svc.Spec.Database() != nil {
			s.makePassword(&svc.Spec)
		}
		for key, value := range svc.Spec.Env {
			name := secretName(svc.Spec.Name, key)
			if value.Generate && s.Secrets[name] == "" {
				s.Secrets[name] = makeSecret()
			}
		}
	}
}

// makeSecret returns 32 characters of base32, 160 random bits. It is as long as a
// key of AES-256, since frameworks such as Laravel take no other length.
func makeSecret() string { return (rand.Text() + rand.Text())[:32] }

// secretName returns the key in Stack.Secrets of a service's generated variable.
func secretName(service, key string) string { return service + "/" + key }
