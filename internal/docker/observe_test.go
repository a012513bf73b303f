package docker

import "testing"

func TestCallName_HasNoNamesOfObjects(t *testing.T) {
	for name, want := range map[string]string{
		"GET /_ping":                                    "GET /_ping",
		"HEAD /_ping":                                   "HEAD /_ping",
		"POST /v1.41/containers/create":                 "POST /containers/create",
		"POST /v1.41/containers/berth-web/start":        "POST /containers/{id}/start",
		"DELETE /v1.41/containers/berth-web":            "DELETE /containers/{id}",
		"GET /v1.41/images/berth/web:1/json":            "GET /images/{id}/json",
		"DELETE /v1.41/images/berth/3f2a9c1b7d4e/web:1": "DELETE /images/{id}",
		"POST /v1.41/networks/create":                   "POST /networks/create",
		"DELETE /v1.41/networks/berth-x":                "DELETE /networks/{id}",
		"POST /v1.41/exec/0a1b/start":                   "POST /exec/{id}/start",
		"GET /v1.41/volumes":                            "GET /volumes",
		"GET /":                                         "GET /{id}",
	} {
		if got := callName(name); got != want {
			t.Errorf("callName(%q) = %q, want %q", name, got, want)
		}
	}
}
