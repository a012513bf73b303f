package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/berth-host/berth/internal/plainjson"
	"github.com/berth-host/berth/internal/safetext"
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
	return textOf(value, name, example)
}

// textOf parses the value of a field that is a string.
func textOf(value json.RawMessage, name, example string) (string, error) {
	var text string
	if err := json.Unmarshal(value, &text); err != nil {
		return "", invalid("%s must be a string, not %s; send it like this: %s", name, shorten(string(value)), example)
	}
	return text, nil
}

// onlyField reads a body that is a JSON object with a single field and returns its
// value, which is not null.
func onlyField(body io.Reader, name, example string) (json.RawMessage, error) {
	object, err := readObject(body, mostObject, []string{name}, example)
	return object[name], err
}

// readObject reads a body of at most so many bytes that is a JSON object. The first of its
// fields must be there and not null, and there are no others than the named ones. The
// example is a body that works.
func readObject(body io.Reader, most int64, fields []string, example string) (map[string]json.RawMessage, error) {
	object, err := parseObject(body, most, fields, example)
	if err != nil {
		return nil, err
	}
	if value, there := object[fields[0]]; !there || string(value) == "null" {
		return nil, invalid("no %s in the body; send it like this: %s", fields[0], example)
	}
	return object, checkFields(object, fields, example)
}

// readFields is readObject for an object all of whose fields may be left out.
func readFields(body io.Reader, most int64, fields []string, example string) (map[string]json.RawMessage, error) {
	object, err := parseObject(body, most, fields, example)
	if err != nil {
		return nil, err
	}
	return object, checkFields(object, fields, example)
}

// parseObject reads a body of at most so many bytes that is a JSON object with some of the
// fields.
func parseObject(body io.Reader, most int64, fields []string, example string) (map[string]json.RawMessage, error) {
	text, err := io.ReadAll(io.LimitReader(body, most+1))
	switch {
	case err != nil:
		return nil, invalid("the body broke off after %d bytes; send it again, like this: %s", len(text), example)
	case int64(len(text)) > most:
		return nil, stack.NewError(stack.TooLarge, fmt.Sprintf("the body is longer than %s; send only %s", byteSize(most), example))
	}
	var object map[string]json.RawMessage
	err = json.Unmarshal(text, &object)
	fault := plainjson.Fault(text)
	switch {
	case len(text) == 0:
		return nil, invalid("no %s: the body must be a JSON object like this: %s", fields[0], example)
	case fault != "":
		return nil, invalid("the body %s; send it like this: %s", fault, example)
	case err != nil || object == nil:
		return nil, invalid("the body is not a JSON object; send it like this: %s", example)
	}
	if name, twice := repeated(text); twice {
		return nil, invalid("%s is given twice; send it once", safetext.Name(name))
	}
	return object, nil
}

// repeated returns a name that a valid JSON object has twice.
func repeated(object []byte) (name string, twice bool) {
	in := json.NewDecoder(bytes.NewReader(object))
	_, err := in.Token() // its brace
	seen := map[string]bool{}
	for err == nil && in.More() {
		var token json.Token
		if token, err = in.Token(); err != nil {
			break
		}
		if name, _ = token.(string); seen[name] {
			return name, true
		}
		seen[name] = true
		var value json.RawMessage
		err = in.Decode(&value)
	}
	return "", false
}

// checkFields refuses a field that is not among the named ones, or null.
func checkFields(object map[string]json.RawMessage, fields []string, example string) error {
	for _, other := range slices.Sorted(maps.Keys(object)) {
		if !slices.Contains(fields, other) {
			return invalid("unknown field %q; the body takes only %s, like this: %s", shorten(other), strings.Join(fields, " and "), example)
		}
		if string(object[other]) == "null" {
			return errNull(other)
		}
	}
	return nil
}
