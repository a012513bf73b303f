package stack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berth-host/berth/internal/safetext"
)

// EnvChange is a change of the variables that are set outside the manifest.
type EnvChange struct {
	Values map[string]map[string]*string // by service, "" for all, and name; nil unsets the variable
	AsIs   bool                          // take over every image, even if a build could have read what changed
}

// Configure accepts a next generation with other variables than those of the served one
// (docs/api.md, "PATCH /v0/stacks/{id}/env"). It takes over the source, and what was
// built where no command could have read a variable that changed. The row keeps the
// variables of before until the generation is live. If the change changes nothing there
// is no next generation, and its number is 0. The error is a Conflict if the state does
// not allow a deploy, or if a build needs the source and none is kept; it is
// Unprocessable if a variable is refused.
func (s *Stack) Configure(change EnvChange, urls URLs, now time.Time) (next Generation, events []Event, err error) {
	deploying := *s
	if err := deploying.applyDeploy(now, tryAgain); err != nil {
		return Generation{}, nil, err
	}
	if err := s.checkChange(change.Values); err != nil {
		return Generation{}, nil, err
	}
	next = s.Generation
	next.Variables = next.Variables.with(change.Values, now)
	if err := next.checkVariables(); err != nil {
		return Generation{}, nil, err
	}
	next.Services = slices.Clone(next.Services)
	for i := range next.Services {
		next.Services[i].PublicHost = s.PrimaryHosts[next.Services[i].Spec.Name]
	}
	next.Services = s.configured(&next, change.AsIs, urls)
	switch {
	case next.Variables.equal(s.Generation.Variables) && next.Built():
		return Generation{}, nil, nil
	case !next.Built() && next.Source.Folder == "":
		return Generation{}, nil, s.errNoSource()
	}
	if s.Status = deploying.Status; s.Status == Building {
		s.Error = ""
		s.setServices(Pending)
	}
	event := s.beginDeploy(s.Generation.Number+1, next.Services, now)
	next.Number, next.Attempt = s.Deploying, s.Attempt
	return next, []Event{event}, nil
}

// errNoSource returns the error for a change that needs the source, which is not kept.
func (s *Stack) errNoSource() error {
	deploy := "POST /v0/stacks/" + s.ID + "/deploy"
	if s.Generation.Built() {
		return NewError(Conflict, "the source of this stack is not kept, so it cannot be built again: send the whole source to "+deploy+`, or take over what was built with "build": false`)
	}
	return NewError(Conflict, "no build of this stack is left that could start with other variables, and its source is not kept: put the variables into the manifest, as env of the service, and send it with the whole source to "+deploy+"; once the stack is live, its variables can be changed without a deploy")
}

// CheckConfigure returns the Conflict of Configure if the state does not allow a deploy.
func (s *Stack) CheckConfigure(now time.Time) error {
	deploying := *s
	return deploying.applyDeploy(now, tryAgain)
}

// takeVariables checks services that are about to be deployed together with the variables
// that are set outside the manifest, and dates theirs.
func (s *Stack) takeVariables(services []Service, now time.Time) error {
	next := Generation{Services: services, Variables: s.Generation.Variables}
	if err := next.checkVariables(); err != nil {
		return err
	}
	s.Generation.date(services, now)
	return nil
}

// configured returns the services of a next generation that differs in its variables. A
// service is to be built again if it has commands that get other variables than they got;
// asIs leaves that out, and what it was built from is not known then.
func (s *Stack) configured(next *Generation, asIs bool, urls URLs) []Service {
	before := Environment{Stack: s, Generation: &s.Generation, URLs: urls}
	after := Environment{Stack: s, Generation: next, URLs: urls}
	services := make([]Service, len(s.Generation.Services))
	for i := range services {
		service := s.Generation.Services[i].takenOver()
		if spec := &service.Spec; spec.Builds() {
			switch same := maps.Equal(before.Build(spec), after.Build(spec)); {
			case asIs && !same:
				service.Fingerprint = ""
			case !asIs && (!same || service.Fingerprint == ""):
				service = Service{Spec: *spec, Status: Pending}
			}
		}
		services[i] = service
	}
	return services
}

// checkChange returns an Unprocessable error for variables that are wrong by themselves,
// or are for a service that the stack does not have.
func (s *Stack) checkChange(values map[string]map[string]*string) error {
	var faults faults
	known := s.ServiceNames()
	for _, service := range slices.Sorted(maps.Keys(values)) {
		if _, kept := s.Generation.Variables[service]; service != "" && !kept && !slices.Contains(known, service) {
			faults.addf("there is no service %s; the services are %s", safetext.Name(service), strings.Join(known, ", "))
			continue
		}
		if svc := s.Service(service); svc != nil && svc.Spec.Database() != nil {
			faults.addf("%s: it is %s, which has no variables of its own; set them for the services that use it", whose(service), svc.Spec.Database().Title)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(values[service])) {
			value := values[service][name]
			if value == nil { // it does no harm, whatever the name
				continue
			}
			if fault := EnvFault(name, Env{Value: *value}); fault != "" {
				faults.addf("%s: env %s", whose(service), fault)
			}
		}
	}
	return faults.err()
}

// checkVariables returns an Unprocessable error if services have too many variables
// together with those set outside the manifest, or a set one refers to something that is
// missing.
func (g *Generation) checkVariables() error {
	if len(g.Variables) == 0 || len(g.Services) == 0 {
		return nil // the manifest's were checked with it
	}
	var faults faults
	specs := make([]Spec, len(g.Services))
	for i := range g.Services {
		specs[i] = g.Services[i].Spec
		if fault := EnvsFault(g.env(&specs[i])); fault != "" {
			faults.addf("service %s has %s, with those that are set outside the manifest", specs[i].Name, fault)
		}
	}
	add := func(sentence string) { faults.addf("%s (it is set outside the manifest)", sentence) }
	checkReferences(whose(""), g.Variables[""], specs, specs, add)
	for i := range specs {
		checkReferences(whose(specs[i].Name), g.Variables[specs[i].Name], specs[i:i+1], specs, add)
	}
	if size := g.Variables.size(); size > maxSetSize {
		faults.addf("%d bytes of variables are set; a stack has at most %d MiB, so unset those of services that it has no more", size, maxSetSize>>20)
	}
	return faults.err()
}

// whose names the service of a variable, "" for all, at the beginning of a fault.
func whose(service string) string {
	if service == "" {
		return "all services"
	}
	return "service " + safetext.Name(service)
}

// faults collects the sentences of an Unprocessable error, a line each.
type faults []string

// mostFaults is how many faults an error has.
const mostFaults = 40

func (f *faults) addf(format string, args ...any) {
	if len(*f) < mostFaults {
		*f = append(*f, fmt.Sprintf(format, args...))
	}
}

func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return NewError(Unprocessable, strings.Join(f, "\n"))
}
