package api

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/berth-host/berth/internal/stack"
)

// mostObject bounds a JSON body in bytes.
const mostObject = 16 << 10

// onlyField reads a body that is a JSON object with one field, and returns the
// field's text; for a value that is no string, its JSON. The content type does
// not matter: curl -d sends JSON under the one of a form. The example is a body
// that works.
func onlyField(body io.Reader, name, example string) (string, error) {
	text, err := io.ReadAll(io.LimitReader(body, mostObject+1))
	switch {
	case err != nil:
		return "", invalid("the body broke off after %d bytes; send it again, like this: %s", len(text), example)
	case len(text) > mostObject:
		return "", stack.NewError(stack.TooLarge, fmt.Sprintf("the body is longer than %s; send only %s", byteSize(mostObject), example))
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(text, &object); err != nil || object == nil {
		return "", invalid("no %s: the body must be a JSON object like this: %s", name, example)
	}
	value, there := object[name]
	if !there || string(value) == "null" {
		return "", invalid("no %s in the body; send it like this: %s", name, example)
	}
	for _, other := range slices.Sorted(maps.Keys(object)) {
		if other != name {
			return "", invalid("unknown field %q; the body takes only %s, like this: %s", shorten(other), name, example)
		}
	}
	var s string
	if err := json.Unmarshal(value, &s); err != nil {
		return string(value), nil
	}
	return s, nil
}
