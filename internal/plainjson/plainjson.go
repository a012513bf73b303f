// Package plainjson encodes JSON for people, without the escapes that only HTML needs, and
// finds the characters that decoding would replace.
package plainjson

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
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

// Fault returns what is wrong with the characters of JSON, in words that continue a
// sentence; "" for nothing. Package encoding/json would replace them.
func Fault(text []byte) string {
	if !utf8.Valid(text) {
		return "is not in UTF-8"
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' { // only strings have one
			continue
		}
		first, second := escaped(text[i:]), escaped(text[min(i+6, len(text)):])
		switch {
		case !utf16.IsSurrogate(first):
			i++
		case utf16.DecodeRune(first, second) == unicode.ReplacementChar:
			return "has half of a surrogate pair, " + string(text[i:i+6]) + ", which is not a character"
		default:
			i += 11
		}
	}
	return ""
}

// escaped returns the character that text begins with as \uXXXX; -1 for none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	code, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(code)
}
