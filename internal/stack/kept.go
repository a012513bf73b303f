package stack

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Layer is what the install command of a service left, kept for the next builds.
type Layer struct {
	Image      string `json:"image,omitempty"` // reference; "" if it left nothing but build caches
	Generation int    `json:"generation"`      // that was being built

	// Inputs has a keyed hash of each thing that the command can see, by its name. Another
	// run with the same inputs would leave the same.
	Inputs map[string]string `json:"inputs"`

	// Whole says why the command must see the whole source although it reads no more than
	// Inputs by itself; nothing is kept then. It is "" for what is kept.
	Whole string `json:"whole,omitempty"`

	Source SourceLayer `json:"source,omitzero"` // on top of Image; zero for none
}

// SourceLayer is an image of a layer and a source that was served with it: the next
// source, if it is large, need not be copied whole.
type SourceLayer struct {
	Image  string `json:"image"`  // reference
	Digest string `json:"digest"` // of the source
}

// Installed returns the files of the source that are in the layer's image, as the install
// command left them, sorted; false if the image has the whole source or there is no layer.
func (l *Layer) Installed() (files []string, ok bool) {
	if l.Image == "" {
		return nil, l.Inputs != nil
	}
	for name := range l.Inputs {
		if name == WholeSource {
			return nil, false
		}
		if file, ok := strings.CutPrefix(name, "/"); ok {
			files = append(files, file)
		}
	}
	slices.Sort(files)
	return files, true
}

// WholeSource is the name of the whole source among a layer's inputs. The names of files
// begin with a slash.
const WholeSource = "source"

// DropKept makes the builds from now on begin without what earlier ones left for them:
// the build caches and the layers.
func (s *Stack) DropKept() {
	s.CachesDropped++
	s.Layers = nil
}

// BuildFresh makes the attempt that has just begun do without anything that earlier builds
// left: the build caches, the layers, and what is served.
func (s *Stack) BuildFresh() {
	s.LastDeploy.Fresh = true
	s.DropKept()
	for i := range s.Generation.Services {
		s.Generation.Services[i].Fingerprint = ""
	}
}

// Rebuild accepts a next generation of the served source and configuration, built without
// anything that earlier builds left. The error is a Conflict if the state does not allow a
// deploy, or if no source is kept.
func (s *Stack) Rebuild(now time.Time) (next Generation, events []Event, err error) {
	if s.Generation.Source.Folder == "" {
		return Generation{}, nil, NewError(Conflict, "the source of this stack is not kept, so it cannot be built again; deploy the whole source once more")
	}
	if err := s.applyDeploy(now, tryAgain); err != nil {
		return Generation{}, nil, err
	}
	next = s.Generation
	next.Services = make([]Service, len(s.Generation.Services))
	for i := range next.Services {
		next.Services[i] = Service{Spec: s.Generation.Services[i].Spec, Status: Pending}
	}
	if s.Status == Building {
		s.Error = ""
		s.setServices(Pending)
	}
	event := s.beginDeploy(s.Generation.Number+1, next.Services, now)
	s.BuildFresh()
	next.Number, next.Attempt = s.Deploying, s.Attempt
	return next, []Event{event}, nil
}

// Keep records the layer of a service in place of the one before; one without inputs
// means that there is none.
func (s *Stack) Keep(service string, layer Layer) {
	layers := maps.Clone(s.Layers)
	if layers == nil {
		layers = map[string]Layer{}
	}
	layers[service] = layer
	if layer.Inputs == nil {
		delete(layers, service)
	}
	s.Layers = layers
}

// KeepsListing reports whether a source with a digest is in a layer, so that its listing
// is needed.
func (s *Stack) KeepsListing(digest string) bool {
	for _, layer := range s.Layers {
		if layer.Source.Digest == digest {
			return true
		}
	}
	return false
}

// dropLayers drops the layers of services that the generation does not have, or that are
// databases by now.
func (s *Stack) dropLayers() {
	for service := range s.Layers {
		if svc := s.Service(service); svc == nil || svc.Spec.Database() != nil {
			s.Keep(service, Layer{})
		}
	}
}

// UnusedLayers returns the images that are kept for the next build of a service, by
// reference, if no service of the generation runs from them. One comes before the image
// that it is on top of.
func (s *Stack) UnusedLayers(service string) []string {
	layer := s.Layers[service]
	if s.Generation.UsesImage(layer.Image) {
		return nil // a container may have been made from the layer with a source, too
	}
	return slices.DeleteFunc([]string{layer.Source.Image, layer.Image}, func(ref string) bool { return ref == "" })
}

// HasUnusedLayer reports whether there is a layer that no service of the generation runs
// from.
func (s *Stack) HasUnusedLayer() bool {
	for _, layer := range s.Layers {
		if layer.Source.Image != "" || layer.Image != "" && !s.Generation.UsesImage(layer.Image) {
			return true
		}
	}
	return false
}

// KeepsImage reports whether an image, by reference, is used by the generation or kept
// for the next build.
func (s *Stack) KeepsImage(ref string) bool {
	if s.Generation.UsesImage(ref) {
		return true
	}
	for service, layer := range s.Layers {
		if (layer.Image == ref || layer.Source.Image == ref) && s.KeepsCaches(service) {
			return true
		}
	}
	return false
}

// KeepsCaches reports whether the build caches and the layer of a service are kept for
// its next build.
// The last redeploy may have had services that are not served.
func (s *Stack) KeepsCaches(service string) bool {
	known := s.Service(service) != nil || slices.Contains(s.Attempted, service)
	return known && s.Status != Expired
}
