package stack

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Generation is what a stack serves: a source, what was built from it, and the
// configuration in which that runs. The next generation may take over each of them from
// the one before, by naming the same source, image or folder. So all that belongs to a
// generation is named here, and nothing follows from its number.
type Generation struct {
	Number   int       // 1, 2, 3 …; the next attempt gets it again if the generation does not go live
	Attempt  int       // number of the build that made it, which counts every build of the stack
	Source   Source    // what it was deployed from
	Services []Service // what was built, and what the manifest says of it; in the manifest's order

	Variables Variables // set outside the manifest; sealed at rest
}

// Source is an unpacked source tree that is kept with its generation.
type Source struct {
	Folder string `json:"folder,omitempty"` // its name; "" if none is kept
	Digest string `json:"digest,omitempty"` // of the tree; see package source
}

// ReadSource begins the advice of CheckBase and CheckDigest for an outdated change.
const ReadSource = "; read its source with GET "

// CheckBase returns why changes cannot be laid over the generation of a number: it is not
// the one that the stack serves, or last served, or its source is not kept.
func (s *Stack) CheckBase(number int) error {
	switch {
	case s.Generation.Source.Folder == "": // perhaps nothing was ever served
		return NewError(Conflict, fmt.Sprintf("the source of generation %d is not kept; send the whole source, without base", s.Generation.Number))
	case s.Generation.Number != number:
		return NewError(Conflict, fmt.Sprintf("base is generation %d, but generation %d is served%s/v0/stacks/%s/source and send what you change in that, or send the whole source, without base",
			number, s.Generation.Number, ReadSource, s.ID))
	}
	return nil
}

// CheckDigest returns why a request that asks for the source with a digest cannot be
// carried out: the stack has another one, or none. Any digest is "*".
func (s *Stack) CheckDigest(digest string) error {
	switch kept := s.Generation.Source; {
	case kept.Folder == "":
		return NewError(Changed, "If-Match asks for a kept source, and this stack has none; send the whole source, without If-Match")
	case digest != "*" && digest != kept.Digest:
		return NewError(Changed, fmt.Sprintf("the source of this stack has changed: generation %d is served, whose ETag is %q%s/v0/stacks/%s/source, or send the whole source, without base and If-Match",
			s.Generation.Number, kept.Digest, ReadSource, s.ID))
	}
	return nil
}

// UsesImage reports whether a service of the generation runs from an image, by
// reference.
func (g *Generation) UsesImage(ref string) bool {
	return slices.ContainsFunc(g.Services, func(s Service) bool { return s.Image == ref })
}

// UsesSite reports whether a service of the generation serves the folder that an
// attempt published.
func (g *Generation) UsesSite(service string, attempt int) bool {
	return slices.ContainsFunc(g.Services, func(s Service) bool { return s.Spec.Name == service && s.Site == attempt })
}

// Built reports whether every service of the generation can start without a build.
func (g *Generation) Built() bool {
	return !slices.ContainsFunc(g.Services, func(s Service) bool { return !s.Built() })
}

// Service is one service of a generation.
type Service struct {
	Spec   Spec `json:"-"` // its fields are the first of the service's own in JSON
	Status ServiceStatus
	Image  string // image that its containers are made from; "" for a static service
	Site   int    // attempt whose published folder is served; 0 for a process

	// Linked reports whether the published folder is a link into the source of the
	// generation, which has the files.
	Linked bool `json:",omitempty"`

	// PublicHost is the domain that was primary when the generation was accepted: its URL is
	// the service's in the environment. "" is the service's own name.
	PublicHost string `json:",omitempty"`

	// Copied reports whether the source of the generation is copied into each container of
	// the service before it starts, since Image does not have it. Image has the Installed
	// files of it, as the install command left them: these are not copied.
	Copied    bool     `json:",omitempty"`
	Installed []string `json:",omitempty"` // paths in the source, sorted

	SiteFiles int   // that the published folder held; 0 where that is not known
	SiteBytes int64 // of those files

	// Fingerprint identifies what the service was built from: a service with the same
	// fingerprint would be built the same way. See package supervisor.
	Fingerprint string
	Crashes     []time.Time // within the window, oldest first
	Unhealthy   int         // restarts in a row that did not get healthy, however long ago
	LastExit    *int        // exit code of the last crash; nil when none is known
	InPlace     bool        // the last restart that its owner asked for ends the process before it starts it again
	Replaced    int         // how often such a restart put another process in place of the one before
}

// MarshalJSON returns one object with the fields of the spec and of the service.
func (s Service) MarshalJSON() ([]byte, error) {
	type own Service // has no such method
	spec, err := json.Marshal(&s.Spec)
	if err != nil {
		return nil, err
	}
	rest, err := json.Marshal((*own)(&s))
	if err != nil {
		return nil, err
	}
	spec[len(spec)-1] = ','
	return append(spec, rest[1:]...), nil
}

// UnmarshalJSON parses what MarshalJSON returns.
func (s *Service) UnmarshalJSON(text []byte) error {
	type own Service
	return errors.Join(json.Unmarshal(text, &s.Spec), json.Unmarshal(text, (*own)(s)))
}

// NeedsSource reports whether the generation cannot start without its source: a service is
// still to be built from it, gets it copied into each container, or serves files of it.
func (g *Generation) NeedsSource() bool {
	return slices.ContainsFunc(g.Services, func(s Service) bool { return !s.Built() || s.Copied || s.Linked })
}

// Built reports whether the service can start without a build.
func (s *Service) Built() bool { return s.Image != "" || s.Site != 0 }

// takenOver returns the service as a next generation takes it over: as it was built, and
// not started yet.
func (s Service) takenOver() Service {
	s.Status, s.Crashes, s.Unhealthy, s.LastExit = Pending, nil, 0, nil
	s.InPlace, s.Replaced = false, 0
	return s
}

// Ending reports whether the host may have asked the service's process to end, to make
// way for the next generation's or to restart it in place.
func (s *Service) Ending() bool {
	return s.Status == Stopped || s.Status == Restarting && (s.InPlace || len(s.Crashes) > 0)
}

// Services returns new services that are about to be built.
func Services(specs []Spec) []Service {
	services := make([]Service, len(specs))
	for i, spec := range specs {
		services[i] = Service{Spec: spec, Status: Pending}
	}
	return services
}
