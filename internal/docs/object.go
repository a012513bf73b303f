package docs

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/goccy/go-yaml"

	"github.com/berth-host/berth/internal/plainjson"
)

// object is a mapping that keeps the order in which it was written. Its values are
// objects, lists of values, and scalars.
type object []member

type member struct {
	key   string
	value any
}

func newObject(m yaml.MapSlice) object {
	o := make(object, len(m))
	for i, item := range m {
		o[i] = member{fmt.Sprint(item.Key), newValue(item.Value)}
	}
	return o
}

func newValue(v any) any {
	switch v := v.(type) {
	case yaml.MapSlice:
		return newObject(v)
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = newValue(item)
		}
		return list
	}
	return v
}

// at returns the value at a path of keys, or nil.
func (o object) at(keys ...string) any {
	var v any = o
	for _, key := range keys {
		inner, _ := v.(object)
		v = nil
		for _, m := range inner {
			if m.key == key {
				v = m.value
			}
		}
	}
	return v
}

// object returns the mapping at a path of keys, or an empty one.
func (o object) object(keys ...string) object {
	inner, _ := o.at(keys...).(object)
	return inner
}

// list returns the list at a path of keys, or nil.
func (o object) list(keys ...string) []any {
	inner, _ := o.at(keys...).([]any)
	return inner
}

// text returns the text at a path of keys, or "".
func (o object) text(keys ...string) string {
	s, _ := o.at(keys...).(string)
	return s
}

// MarshalJSON writes the members in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(m.key) // a string always encodes
		b.Write(key)
		b.WriteByte(':')
		value, err := plainjson.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// json returns the whole tree, indented for people.
func (o object) json() []byte {
	text, err := plainjson.MarshalLine(o)
	if err != nil {
		panic(err) // scalars of YAML always encode
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		panic(err) // it was just encoded
	}
	return indented.Bytes()
}
