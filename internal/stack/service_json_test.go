package stack_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/berth-host/berth/internal/stack"
)

// servicesText is how databases hold two services: one object for each, the
// fields of its spec first.
const servicesText = `[{"name":"web","label":"node","runtime":{"name":"node","version":"22"},"builder":{"name":"node","version":"22"},` +
	`"root":".","install":"npm ci","build":"npm run build","release":"node migrate.js","start":"node a.js \u0026\u0026 node \u003cb\u003e.js",` +
	`"port":3000,"health":"/healthz","depends_on":["api"],"strategy":"recreate","stop_timeout":10000000000,"build_env":{"CI":"1"},` +
	`"origin":{"start":"stack.yaml"},"lost":[{"entry":"\"dev/null\"","reason":"a device"}],` +
	`"Status":"restarting","Image":"berth/1:g2","Site":0,"SiteFiles":0,"SiteBytes":0,"Fingerprint":"f1",` +
	`"Crashes":["2026-01-02T03:04:05.000006Z"],"Unhealthy":1,"LastExit":137,"InPlace":true,"Replaced":2},` +
	`{"name":"docs","label":"static","runtime":{"name":"static"},"builder":{"name":""},"root":"docs","publish":"dist","spa":"true",` +
	`"Status":"running","Image":"","Site":2,"SiteFiles":3,"SiteBytes":4096,"Fingerprint":"",` +
	`"Crashes":null,"Unhealthy":0,"LastExit":null,"InPlace":false,"Replaced":0}]`

func TestService_JSONIsThatOfDatabasesMadeBefore(t *testing.T) {
	code := 137
	services := []stack.Service{
		{
			Spec: stack.Spec{
				Name: "web", Label: "node", Runtime: stack.Runtime{Name: "node", Version: "22"}, Builder: stack.Runtime{Name: "node", Version: "22"},
				Root: ".", Install: "npm ci", Build: "npm run build", Release: "node migrate.js", Start: "node a.js && node <b>.js",
				Port: 3000, Health: "/healthz", DependsOn: []string{"api"},
				Strategy: stack.Recreate, StopTimeout: 10 * time.Second, BuildEnv: map[string]string{"CI": "1"},
				Origin: map[string]string{"start": "stack.yaml"}, Lost: []stack.Lost{{Entry: `"dev/null"`, Reason: "a device"}},
			},
			Status: stack.Restarting, Image: "berth/1:g2", Fingerprint: "f1",
			Crashes: []time.Time{time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)}, Unhealthy: 1, LastExit: &code, InPlace: true, Replaced: 2,
		},
		{
			Spec:   stack.Spec{Name: "docs", Label: "static", Runtime: stack.Runtime{Name: stack.Static}, Root: "docs", Publish: "dist", SPA: stack.SPAOn},
			Status: stack.Running, Site: 2, SiteFiles: 3, SiteBytes: 4096,
		},
	}
	text, err := json.Marshal(services)
	if err != nil || string(text) != servicesText {
		t.Errorf("services are written as %s, %v", text, err)
	}
	var read []stack.Service
	if err := json.Unmarshal([]byte(servicesText), &read); err != nil || !reflect.DeepEqual(read, services) {
		t.Errorf("services are read as %+v, %v", read, err)
	}
	if err := json.Unmarshal([]byte(`[{"name": 1}]`), &read); err == nil {
		t.Error("a service whose name is a number is read")
	}
}
