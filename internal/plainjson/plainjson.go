// Package plainjson writes JSON that people can read: without the escapes that
// only a page of HTML needs. Nothing in it knows what the JSON says.
package plainjson

import (
	"bytes"
	"encoding/json"
)

// Marshal is json.Marshal with <, > and & as they are.
func Marshal(v any) ([]byte, error) {
	line, err := MarshalLine(v)
	return bytes.TrimSuffix(line, []byte("\n")), err
}

// MarshalLine is Marshal with a newline at the end.
func MarshalLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
