package stack

import (
	"os"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	vars := func(ref string) (string, bool) {
		v, ok := map[string]string{"services.api.url": "http://api", "stack.id": "stk_1", "stack.name": "${stack.id}"}[ref]
		return v, ok
	}
	for value, want := range map[string]string{
		"":                                      "",
		"plain":                                 "plain",
		"${services.api.url}/v1":                "http://api/v1",
		"${stack.id}${stack.id}":                "stk_1stk_1",
		"a ${stack.id} b ${services.api.url} c": "a stk_1 b http://api c",
		"$${stack.id}":                          "${stack.id}",
		"$$${stack.id}":                         "$${stack.id}",
		"$${${stack.id}}":                       "${stk_1}",
		"${stack.name}":                         "${stack.id}", // what is put in is not read again
		"${HOME} $HOME $5 $":                    "${HOME} $HOME $5 $",
		"$$ $$$":                                "$$ $$$",
		"${stack.unknown}":                      "${stack.unknown}",
		"${stack.id":                            "${stack.id",
		"${ stack.id }":                         "${ stack.id }",
		"${HOME ${stack.id}}":                   "${HOME stk_1}",
		"${}":                                   "${}",
		"é${stack.id}ü":                         "éstk_1ü",
	} {
		if got := expand(value, vars); got != want {
			t.Errorf("expand(%q) = %q, want %q", value, got, want)
		}
	}
}

func TestReferences_AreAllInTheReference(t *testing.T) {
	text, err := os.ReadFile("../../docs/manifest.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, property := range serviceProperties.names() {
		all = append(all, "`${services.<name>."+property+"}`")
	}
	for _, property := range stackProperties.names() {
		all = append(all, "`${stack."+property+"}`")
	}
	for _, reference := range all {
		if !strings.Contains(string(text), "| "+reference+" |") {
			t.Errorf("docs/manifest.md does not list %s", reference)
		}
	}
}
