package api

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/berth-host/berth/internal/stack"
)

// mostObject limits a JSON body, in bytes.
const mostObject = 16 << 10

// onlyText reads a body that is a JSON object with a single field, a string. The
// content type does not matter: curl -d sends JSON with that of a form. The example is
// a body that works.
func onlyText(body io.Reader, name, example string) (string, error) {
	value, err := onlyField(body, name, example)
	if err != nil {
		return "", err
	}
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return "", invalid("%s must be a string, not %s; send it like this: %s", name, shorten(string(value)), example)
	}
	return text, nil
}

// onlyField reads a body that is a JSON object with a single field and returns its
// value, which is not null.
func onlyField(body io.Reader, name, example string) (json.RawMessage, error) {
	text, err := io.ReadAll(io.LimitReader(body, mostObject+1))
	switch {
	case err != nil:
		return nil, invalid("the body broke off after %d bytes; send it again, like this: %s", len(text), example)
	case len(text) > mostObject:
		return nil, stack.NewError(stack.TooLarge, fmt.Sprintf("the body is longer than %s; send only %s", byteSize(mostObject), example))
	}
	var object map[string]json.RawMessage
	switch err := json.Unmarshal(text, &object); {
	case len(text) == 0:
		return nil, invalid("no %s: the body must be a JSON object like this: %s", name, example)
	case err != nil || object == nil:
		return nil, invalid("the body is not a JSON object; send it like this: %s", example)
	}
	value, there := object[name]
	if !there || string(value) == "null" {
		return nil, invalid("no %s in the body; send it like this: %s", name, example)
	}
	for _, other := range slices.Sorted(maps.Keys(object)) {
		if other != name {
			return nil, invalid("unknown field %q; the body takes only %s, like this: %s", shorten(other), name, example)
		}
	}
	return value, nil
}
