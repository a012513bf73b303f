// Package plainjson encodes JSON for people: without the escapes that only HTML needs.
package plainjson

import (
	"bytes"
	"encoding/json"
)

// Marshal is like json.Marshal, but does not escape <, > and &.
func Marshal(v any) ([]byte, error) {
	line, err := MarshalLine(v)
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// MarshalLine is like Marshal, with a newline at the end.
func MarshalLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
