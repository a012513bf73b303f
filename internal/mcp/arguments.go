package mcp

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Errors of the SDK about arguments that do not fit a tool's schema. The one
// about a type quotes the whole argument.
const badArguments = `validating "arguments": `

var wrongType = regexp.MustCompile(`(?s)^` + badArguments + `.*?validating /properties/(\w+)(/additionalProperties)?: type: .* has type "(\w+)", want (?:one of )?"([^"]*)"$`)

// explain is middleware that replaces the SDK's errors about arguments with
// ones that a model can read.
func (t *tools) explain(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		res, err := next(ctx, method, req)
		called, ok := res.(*sdk.CallToolResult)
		if !ok || called.GetError() == nil {
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

// explanation says in at most maxError bytes what is wrong with the arguments of
// a tool, from what the SDK says about them.
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
