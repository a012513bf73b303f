package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// arguments are the possible arguments of a call; each tool takes some of them. They
// are in the order in which a schema lists them.
type arguments struct {
	Stack string `json:"stack,omitempty" jsonschema:"id of the stack: stk_ and 12 hex characters"`
	Token string `json:"token,omitempty" jsonschema:"manage_token of the stack from deploy, or an API key; not needed if the connection has one"`

	Folder   string            `json:"folder,omitempty" jsonschema:"path of the folder to deploy, instead of files"`
	Files    map[string]string `json:"files,omitempty" jsonschema:"the source, as a map from path to text: {\"index.html\": \"<h1>Hi</h1>\"}. Send all of it each time, without node_modules and build output"`
	Binary   map[string]string `json:"binary_files,omitempty" jsonschema:"binary files, as a map from path to base64"`
	Manifest string            `json:"manifest,omitempty" jsonschema:"stack.yaml, for settings that cannot be detected from the source; takes precedence over one among the files"`

	Base   int      `json:"base,omitempty" jsonschema:"generation that you changed; without it, the one that serves"`
	Delete []string `json:"delete,omitempty" jsonschema:"paths to remove from the source; a folder goes with all in it"`
	Whole  bool     `json:"whole,omitempty" jsonschema:"files is the whole source, and replaces all that there was"`
	Path   string   `json:"path,omitempty" jsonschema:"file to read, or folder to list; everything is listed without it"`

	Fresh     bool `json:"fresh,omitempty" jsonschema:"install and build again without anything that earlier builds left; alone, it builds the same source again"`
	Supersede bool `json:"supersede,omitempty" jsonschema:"end the deploy that is under way and take its place, instead of failing while there is one"`

	Name string `json:"name,omitempty" jsonschema:"name of the stack"`
	TTL  string `json:"ttl,omitempty" jsonschema:"lifetime of the unclaimed stack, as in 90m or 2h"`

	Wait       bool               `json:"wait,omitempty" jsonschema:"wait until a running build or restore is done, up to 50 s"`
	Service    string             `json:"service,omitempty" jsonschema:"only this service"`
	Kind       string             `json:"kind,omitempty" jsonschema:"run for the output of the processes (the default), build for that of the latest build"`
	Tail       int                `json:"tail,omitempty" jsonschema:"number of lines per service, counted from the end; 60 by default"`
	Command    string             `json:"command,omitempty" jsonschema:"the command, for the shell"`
	Timeout    string             `json:"timeout,omitempty" jsonschema:"time after which the command is ended, up to 10m; 50s by default, since many programs give up on a call after a minute"`
	Timestamps bool               `json:"timestamps,omitempty" jsonschema:"time and generation before each line, and where processes start and end; not with kind build"`
	Variables  map[string]*string `json:"variables,omitempty" jsonschema:"values by name, as in {\"API_KEY\": \"secret\"}; null unsets a variable"`
	Build      *bool              `json:"build,omitempty" jsonschema:"false builds no service again"`

	After int64 `json:"after,omitempty" jsonschema:"only events after this id"`
}

// schema returns the schema of the arguments of a tool, without the folder if no folder
// can be read.
func (d tool) schema(folders bool) *jsonschema.Schema {
	s, err := jsonschema.For[arguments](nil)
	if err != nil {
		panic(err) // the type is our own
	}
	maps.DeleteFunc(s.Properties, func(name string, _ *jsonschema.Schema) bool {
		taken := slices.Contains(d.needs, name) || slices.Contains(d.takes, name)
		return !taken || name == "folder" && !folders
	})
	s.Required = d.needs
	if slices.Contains(d.takes, "whole") {
		s.Properties["files"].Description = `the files that you changed or added, as a map from path to text: {"src/app.js": "…"}. Paths are those that read_source lists`
	}
	if slices.Contains(d.needs, "service") {
		s.Properties["service"].Description = "name of the service to run it in"
	}
	if slices.Contains(d.needs, "ttl") {
		s.Properties["ttl"].Description = "time from now, as in 90m or 2h"
	}
	return s
}

// Errors of the SDK about arguments that do not fit a tool's schema. The one about a
// type quotes the whole argument.
const badArguments = `validating "arguments": `

var wrongType = regexp.MustCompile(`(?s)^` + badArguments + `.*?validating /properties/(\w+)(/additionalProperties)?: type: .* has type "(\w+)", want (?:one of )?"([^"]*)"$`)

// explain is middleware that replaces the SDK's errors about arguments with ones that a
// model can understand.
func (t *tools) explain(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		called, ok := res.(*sdk.CallToolResult)
		if err != nil || !ok || called.GetError() == nil { // called is nil with an error
			return res, err
		}
		text := called.GetError().Error()
		if !strings.HasPrefix(text, badArguments) {
			return res, err
		}
		var explained sdk.CallToolResult
		explained.SetError(errors.New(t.explanation(req.GetParams().(*sdk.CallToolParamsRaw).Name, text)))
		return &explained, nil
	}
}

// explanation returns in at most maxError bytes what is wrong with the arguments of a
// tool, based on the SDK's error.
func (t *tools) explanation(tool, fault string) string {
	m := wrongType.FindStringSubmatch(fault)
	if m == nil {
		return strings.ToValidUTF8(fault[:min(len(fault), maxError)], "")
	}
	name, got, want := m[1], m[3], strings.ReplaceAll(m[4], ", ", " or ")
	subject := name
	if m[2] != "" {
		subject = "each value of " + name
	}
	return fmt.Sprintf("%s must be of type %s, not %s (%s: %s)", subject, want, got, name, t.schemas[tool].Properties[name].Description)
}
