package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestDoctor_SaysWhatFailsAndExitsWithOne(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(t.TempDir(), "docker.sock"))
	stdout, stderr, err := berthd(t, t.TempDir(), "doctor", "--listen", "127.0.0.1:0")
	if err == nil || stderr != "berthd: a check failed\n" || !strings.HasPrefix(stdout, "fail  engine ") || !strings.Contains(stdout, "→ start the Docker engine") {
		t.Errorf("stdout %q, stderr %q, %v", stdout, stderr, err)
	}
	stdout, _, err = berthd(t, t.TempDir(), "doctor", "--json", "--listen", "127.0.0.1:0")
	var report struct {
		OK     *bool
		Checks []struct{ Name, Status, Detail, Fix string }
	}
	if jsonErr := json.Unmarshal([]byte(stdout), &report); err == nil || jsonErr != nil {
		t.Fatalf("%q: %v, %v", stdout, err, jsonErr)
	}
	if report.OK == nil || *report.OK || len(report.Checks) != 13 || report.Checks[0].Name != "engine" || report.Checks[0].Status != "fail" || report.Checks[0].Fix == "" {
		t.Errorf("%+v", report)
	}
}
