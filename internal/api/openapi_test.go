package api

import (
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/berth-host/berth/internal/docs"
	"github.com/berth-host/berth/internal/manifest"
	"github.com/berth-host/berth/internal/stack"
)

// described is as much of the API document as these tests look at.
type described struct {
	Paths      map[string]map[string]any
	Components struct {
		Schemas map[string]struct {
			Properties map[string]any
			Required   []string
		}
	}
}

func document(t *testing.T) described {
	t.Helper()
	d, err := docs.New(docs.Values{Base: &url.URL{Scheme: "https", Host: "berth.example"}})
	require.NoError(t, err)
	var doc described
	require.NoError(t, json.Unmarshal([]byte(d.Text("/openapi.json")), &doc))
	return doc
}

func TestOpenAPI_HasEveryRoute(t *testing.T) {
	t.Parallel()
	doc := document(t)
	var written, served []string
	for path, item := range doc.Paths {
		for method := range item {
			if method != "parameters" {
				written = append(written, strings.ToUpper(method)+" "+path)
			}
		}
	}
	for _, r := range (&API{}).table() {
		served = append(served, r.String())
	}
	require.ElementsMatch(t, served, written)
}

func TestOpenAPI_HasEveryField(t *testing.T) {
	t.Parallel()
	schemas := document(t).Components.Schemas
	fields := func(shapes ...any) []string {
		var names []string
		for _, shape := range shapes {
			names = append(names, jsonFields(t, shape)...)
		}
		return names
	}
	for name, want := range map[string][]string{
		"Stack":         slices.DeleteFunc(fields(stackView{}), isRole),
		"StackWithRole": fields(stackView{}),
		"CreatedStack":  slices.DeleteFunc(fields(stackView{}, oneTime{}), isRole),
		"DeployedStack": append(slices.DeleteFunc(fields(stackView{}), isRole), "webhook_secret"),
		"Service":       fields(serviceView{}),
		"Event":         fields(stack.Event{}),

		"Plan":           fields(manifest.Plan{}),
		"PlannedService": fields(manifest.PlannedService{}),
		"File":           fields(fileEntry{}),
		"LogLine":        fields(logLine{}),
		"Command":        fields(commandView{}),
		"OutputLine":     fields(outputLine{}),
	} {
		var written []string
		for field := range schemas[name].Properties {
			written = append(written, field)
		}
		require.ElementsMatch(t, want, written, name)
	}
}

func TestOpenAPI_HasEveryFieldOfAnUpload(t *testing.T) {
	t.Parallel()
	schemas := document(t).Components.Schemas
	for name, shape := range map[string]shape{"Create": createShape, "Deploy": deployShape, "Validate": validateShape} {
		var form []string
		for _, field := range shape.fields {
			form = append(form, field.name)
		}
		object := append((&objectReader{shape: shape}).texts(), "files")
		require.ElementsMatch(t, form, slices.Collect(maps.Keys(schemas[name+"Form"].Properties)), name)
		require.ElementsMatch(t, object, slices.Collect(maps.Keys(schemas[name+"Object"].Properties)), name)
	}
}

func TestOpenAPI_RequiresTheFieldsThatAreAlwaysThere(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(stackView{})
	require.NoError(t, err)
	var always map[string]any
	require.NoError(t, json.Unmarshal(text, &always))
	for name, schema := range document(t).Components.Schemas {
		if !strings.HasSuffix(name, "Stack") && name != "StackWithRole" || name == "DeletedStack" {
			continue
		}
		for field := range always {
			require.Contains(t, schema.Required, field, name)
		}
	}
}

// isRole finds the field that only some answers have.
func isRole(field string) bool { return field == "role" }

// jsonFields returns the names under which a value's fields are written, including
// those of embedded structs. A type with a marshaller of its own is marshalled.
func jsonFields(t *testing.T, v any) []string {
	t.Helper()
	if _, ok := v.(json.Marshaler); !ok {
		return jsonNames(reflect.TypeOf(v))
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var object map[string]any
	require.NoError(t, json.Unmarshal(text, &object))
	var names []string
	for name := range object {
		names = append(names, name)
	}
	return names
}

func jsonNames(shape reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(shape) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}
