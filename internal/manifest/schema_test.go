package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/berth-host/berth/internal/docs"
)

// manifestSchema is the JSON Schema of the manifest as the server serves it.
func manifestSchema(t *testing.T) (tree map[string]any, schema *jsonschema.Schema) {
	t.Helper()
	d, err := docs.New(docs.Values{Base: &url.URL{Scheme: "https", Host: "berth.example"}})
	if err != nil {
		t.Fatal(err)
	}
	text := d.Text("/schema/stack.json")
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("stack.json", document); err != nil {
		t.Fatal(err)
	}
	if schema, err = compiler.Compile("stack.json"); err != nil {
		t.Fatal(err)
	}
	return tree, schema
}

func TestSchema_HasTheDecodersFields(t *testing.T) {
	tree, _ := manifestSchema(t)
	at := func(path string) map[string]any {
		var v any = tree
		for key := range strings.SplitSeq(path, "/") {
			v = v.(map[string]any)[key]
		}
		return v.(map[string]any)
	}
	path := at("$defs/service/properties/paths/additionalProperties")["anyOf"].([]any)[1].(map[string]any)
	generated := at("$defs/service/properties/env/additionalProperties")["anyOf"].([]any)[1].(map[string]any)
	for _, c := range []struct {
		properties any
		want       []string
	}{
		{at("properties"), manifestFields},
		{at("properties/notify/properties"), notifyFields},
		{at("$defs/service/properties"), serviceFields},
		{generated["properties"], envFields},
		{path["properties"], pathFields},
	} {
		got := slices.Sorted(maps.Keys(c.properties.(map[string]any)))
		if want := slices.Sorted(slices.Values(c.want)); !slices.Equal(got, want) {
			t.Errorf("the schema has %v, the decoder %v", got, want)
		}
	}
}

// schemaValues are values of every kind, right for some field and wrong for the
// others.
var schemaValues = []string{
	`null`, `""`, `"x"`, `"a b"`, `" "`, `"web"`, `"Web"`, `"node@22"`, `"90"`, `"90m"`, `"1h30m"`, `"10s"`, `"61s"`, `"1m"`, `"0s"`,
	`"overlap"`, `"recreate"`, `"auto"`, `"true"`, `"false"`, `"/"`, `"/x?y=1"`, `"/a b"`, `"ana@example.com"`, `"ana@"`,
	`"https://example.com/hooks?x=1"`, `"ftp://example.com"`, `"https://"`, `"https://ana:secret@example.com"`,
	`0`, `1`, `3000`, `65536`, `-1`, `1.5`, `true`, `false`, `[]`, `["api"]`, `[1]`, `[["api"]]`, `{}`, `{"webhook": "https://example.com"}`,
	`{"A": "b"}`, `{"A": 1, "B": true, "_c": "d"}`, `{"1A": "b"}`, `{"A": null}`, `{"A": []}`, `{"A": {}}`,
	`{"A": {"generate": true}}`, `{"A": {"generate": false}}`, `{"A": {"generate": true, "value": "x"}}`,
	`{"/api": "api"}`, `{"/api/": "api", "/v1/...": "api"}`, `{"/api": {"service": "api", "strip": true}}`, `{"/api": {"service": "api", "strip": null}}`,
	`{"/": "api"}`, `{"api": "api"}`, `{"": "api"}`, `{"/a//b": "api"}`, `{"/a/./b": "api"}`, `{"/a/..": "api"}`, `{"/.a/..b": "api"}`, `{"/a%2Fb": "api"}`,
	`{"/a b": "api"}`, `{"/a?b": "api"}`, `{"/a#b": "api"}`, `{"/a/*": "api"}`, `{"/a\\b": "api"}`, `{"/café": "api"}`, `{"/api": ""}`, `{"/api": 1}`, `{"/api": null}`,
	`{"/api": {}}`, `{"/api": {"service": ""}}`, `{"/api": {"service": "api", "strip": "true"}}`, `{"/api": {"service": "api", "other": 1}}`,
	`[{"name": "web"}]`, `[{"name": "web"}, {"name": "api", "runtime": "static"}]`, `[{}]`,
	`[{"name": "a"}, {"name": "b"}, {"name": "c"}, {"name": "d"}, {"name": "e"}]`,
}

func TestSchema_AgreesWithTheDecoder(t *testing.T) {
	_, schema := manifestSchema(t)
	agree := func(manifest string) {
		t.Helper()
		value, err := jsonschema.UnmarshalJSON(strings.NewReader(manifest))
		if err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
		tree, err := parseManifest([]byte(manifest))
		if err != nil {
			t.Fatalf("%s: %v", manifest, err)
		}
		f := &faults{}
		decodeManifest(tree, f)
		switch err := schema.Validate(value); {
		case err != nil && len(f.lines) == 0:
			t.Errorf("the decoder takes %s, and the schema says %v", manifest, err)
		case err == nil && len(f.lines) > 0:
			t.Errorf("the schema takes %s, and the decoder says %v", manifest, f.lines)
		}
	}
	for _, value := range schemaValues {
		for _, field := range append(slices.Clone(manifestFields), "unknown") {
			agree(fmt.Sprintf(`{%q: %s}`, field, value))
		}
		for _, field := range append(slices.Clone(notifyFields), "unknown") {
			agree(fmt.Sprintf(`{"notify": {%q: %s}}`, field, value))
		}
		for _, field := range append(slices.Clone(serviceFields), "unknown") {
			name := `"name": "other", `
			if field == "name" {
				name = ""
			}
			agree(fmt.Sprintf(`{"services": [{"name": "api"}, {%s%q: %s}]}`, name, field, value))
		}
	}
}

func TestSchema_TakesTheManifestOfTheManual(t *testing.T) {
	d, err := docs.New(docs.Values{Base: &url.URL{Scheme: "https", Host: "berth.example"}})
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(d.Text("/llms.txt"), "```yaml\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatal("llms.txt shows no manifest")
	}
	tree, err := parseManifest([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f := &faults{}
	if m := decodeManifest(tree, f); len(f.lines) > 0 || len(m.services) != 2 {
		t.Errorf("%v, %+v", f.lines, m)
	}
}
