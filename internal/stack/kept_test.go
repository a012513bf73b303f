package stack_test

import (
	"testing"

	"github.com/berth-host/berth/internal/stack"
)

func TestKeepsCaches_OfServicesThatTheNextBuildMayHave(t *testing.T) {
	s := live(t)
	s.Attempted = []string{"new"}
	served := s.ServiceNames()[0]
	for service, keeps := range map[string]bool{served: true, "new": true, "gone": false} {
		if s.KeepsCaches(service) != keeps {
			t.Errorf("caches of %s are kept: %t", service, !keeps)
		}
	}
	s.Status = stack.Expired
	if s.KeepsCaches(served) {
		t.Error("those of an expired stack are kept")
	}
}

func TestRebuild_ForgetsWhatEarlierBuildsLeft(t *testing.T) {
	s := live(t)
	_, _, err := s.Rebuild(now)
	wantKind(t, err, stack.Conflict, "not kept")
	s.Generation.Source = stack.Source{Folder: "kept", Digest: "digest"}
	s.Generation.Services[0].Fingerprint = "built"
	s.Layers = map[string]stack.Layer{s.ServiceNames()[0]: {Image: "layer", Inputs: map[string]string{"command": "x"}}}
	next, events, err := s.Rebuild(now)
	if err != nil || len(events) != 1 || events[0].Type != stack.EventRedeploying {
		t.Fatalf("events %v, %v", events, err)
	}
	if next.Number != 2 || next.Attempt != 2 || s.Deploying != 2 || next.Source != s.Generation.Source || next.Built() {
		t.Errorf("next %+v", next)
	}
	if s.CachesDropped != 1 || s.Layers != nil || s.Generation.Services[0].Fingerprint != "" {
		t.Errorf("kept: %d, %v, %q", s.CachesDropped, s.Layers, s.Generation.Services[0].Fingerprint)
	}
	if !s.LastDeploy.Fresh {
		t.Error("the attempt does not say that it is fresh")
	}
	_, _, err = s.Rebuild(now)
	wantKind(t, err, stack.Conflict, "already running")
	if s.CachesDropped != 1 {
		t.Error("a refused one drops the caches")
	}
}
