package client

import (
	"net/http"
	"testing"
)

func TestSourceFile_StaysBelowTheSource(t *testing.T) {
	var asked []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.RequestURI)
		reply(w, 404, `{"detail": "there is no such file"}`)
	})
	for name, want := range map[string]string{
		"../logs":    "/v0/stacks/stk_1/source/%2E%2E/logs",
		"a/../../x":  "/v0/stacks/stk_1/source/a/%2E%2E/%2E%2E/x",
		"a/[id].js/": "/v0/stacks/stk_1/source/a/%5Bid%5D.js",
	} {
		asked = nil
		if _, _, _, err := c.SourceFile(t.Context(), "stk_1", name, 10); !IsStatus(err, 404) {
			t.Errorf("%s: %v", name, err)
		}
		if len(asked) != 1 || asked[0] != want {
			t.Errorf("%s: asked %v, want %s", name, asked, want)
		}
	}
}
