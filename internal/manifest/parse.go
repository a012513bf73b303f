package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/scanner"
	"github.com/goccy/go-yaml/token"

	"github.com/berth-host/berth/internal/plainjson"
)

// node is a value of a manifest. Scalars keep their text, so that a version 1.10 stays
// 1.10.
type node struct {
	kind   kind
	text   string
	fields []field
	items  []*node
}

// missing reports whether a field is left out or empty.
func (n *node) missing() bool { return n == nil || n.kind == kindNull }

// field is a key of a mapping, in the order of the manifest; keys may repeat.
type field struct {
	key   string
	value *node
}

// kind is the kind of a value, in the words of a message.
type kind string

const (
	kindNull    kind = "empty"
	kindText    kind = "text"
	kindNumber  kind = "a number"
	kindBool    kind = "true or false"
	kindList    kind = "a list"
	kindMapping kind = "a mapping"
)

const (
	maxNesting = 16   // levels; a manifest's own fields need five
	maxTokens  = 5000 // of YAML; the parser's time grows with their square
)

var errTooDeep = fmt.Errorf("it nests deeper than %d levels; a manifest needs five", maxNesting)

// parseManifest parses YAML or JSON into a tree; an empty manifest is an empty mapping.
// The errors are worded for the client.
func parseManifest(data []byte) (*node, error) {
	if len(data) > maxManifest {
		return nil, fmt.Errorf("it is larger than %d KiB", maxManifest>>10)
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("it is not UTF-8 text; write it as YAML or JSON")
	}
	var tree *node
	var err error
	if text := bytes.TrimSpace(data); len(text) > 0 && text[0] == '{' && json.Valid(text) {
		tree, err = parseJSON(text)
	} else {
		tree, err = parseYAML(string(data))
	}
	if err != nil {
		return nil, err
	}
	if tree.kind == kindNull {
		tree = &node{kind: kindMapping}
	}
	if tree.kind != kindMapping {
		return nil, fmt.Errorf("it is %s; write fields, as in services: [{name: web, runtime: node}]", tree.kind)
	}
	return tree, nil
}

// parseJSON parses a valid JSON object, keeping repeated keys.
func parseJSON(data []byte) (*node, error) {
	if fault := plainjson.Fault(data); fault != "" {
		return nil, errors.New("it " + fault)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return readJSON(d, maxNesting)
}

func readJSON(d *json.Decoder, depth int) (*node, error) {
	if depth == 0 {
		return nil, errTooDeep
	}
	t, err := d.Token()
	if err != nil {
		return nil, fmt.Errorf("it is not JSON: %w", err)
	}
	switch t := t.(type) {
	case string:
		return &node{kind: kindText, text: t}, nil
	case json.Number:
		return &node{kind: kindNumber, text: t.String()}, nil
	case bool:
		return &node{kind: kindBool, text: fmt.Sprint(t)}, nil
	case json.Delim:
		return readJSONGroup(d, t, depth)
	default:
		return &node{kind: kindNull}, nil
	}
}

// readJSONGroup reads an object or a list after its opening delimiter.
func readJSONGroup(d *json.Decoder, open json.Delim, depth int) (*node, error) {
	n := &node{kind: kindList}
	if open == '{' {
		n.kind = kindMapping
	}
	for d.More() {
		var key json.Token
		if n.kind == kindMapping {
			key, _ = d.Token() // a string: the object is valid
		}
		value, err := readJSON(d, depth-1)
		if err != nil {
			return nil, err
		}
		if name, ok := key.(string); ok {
			n.fields = append(n.fields, field{name, value})
		} else {
			n.items = append(n.items, value)
		}
	}
	_, err := d.Token()
	return n, err
}

// parseYAML parses one YAML document without anchors, aliases, tags and other features
// that manifests do not need.
func parseYAML(text string) (tree *node, err error) {
	defer func() {
		// A fault of the parser on a stranger's bytes is the stranger's to hear of.
		if recover() != nil {
			tree, err = nil, errors.New("it cannot be read as YAML; check its indentation and quotes")
		}
	}()
	tokens, err := tokenize(text)
	if err != nil {
		return nil, err
	}
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, yamlError(err)
	}
	switch len(file.Docs) {
	case 0:
		return &node{kind: kindNull}, nil
	case 1:
		return convert(file.Docs[0].Body)
	default:
		return nil, errors.New("it holds more than one YAML document; write one")
	}
}

// tokenize splits a text into tokens, no more than a manifest may have: each takes a
// few hundred bytes.
func tokenize(text string) (token.Tokens, error) {
	var s scanner.Scanner
	s.Init(text)
	var tokens token.Tokens
	for {
		more, err := s.Scan()
		if err == io.EOF {
			return tokens, nil
		}
		if tokens.Add(more...); len(tokens) > maxTokens {
			return nil, fmt.Errorf("it holds more than %d words and signs of YAML; a manifest needs far fewer", maxTokens)
		}
	}
}

// checkTokens refuses, before anything recurses, features that are not supported and
// nesting that is too deep.
func checkTokens(tokens token.Tokens) error {
	var columns []int // of the block collections that are open
	flow := 0
	for i, t := range tokens {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fmt.Errorf("line %d: anchors, aliases and merge keys are not accepted; write the values out", t.Position.Line)
		case token.TagType, token.DirectiveType:
			return fmt.Errorf("line %d: YAML tags and directives are not accepted", t.Position.Line)
		case token.MappingStartType, token.SequenceStartType:
			flow++
		case token.MappingEndType, token.SequenceEndType:
			flow--
		}
		opens := t.Type == token.SequenceEntryType || t.Type == token.MappingKeyType ||
			i+1 < len(tokens) && tokens[i+1].Type == token.MappingValueType
		if opens && flow <= 0 {
			for len(columns) > 0 && columns[len(columns)-1] >= t.Position.Column {
				columns = columns[:len(columns)-1]
			}
			columns = append(columns, t.Position.Column)
		}
		if flow+len(columns) > maxNesting {
			return errTooDeep
		}
	}
	return nil
}

// yamlError keeps the parser's sentence and line, without its drawing.
func yamlError(err error) error {
	syntax, ok := errors.AsType[*yaml.SyntaxError](err)
	if !ok || syntax.Token == nil {
		return errors.New("it cannot be read as YAML; check its indentation and quotes")
	}
	message, _, _ := strings.Cut(syntax.Message, "\n")
	return fmt.Errorf("line %d: it is not YAML: %s", syntax.Token.Position.Line, message)
}

// tooLong matches whole numbers that the parser takes for text because no integer holds
// them.
var tooLong = regexp.MustCompile(`^[-+]?[0-9]{19,}$`)

// convert turns the parser's tree into ours.
func convert(n ast.Node) (*node, error) {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return &node{kind: kindNull}, nil
	case *ast.StringNode:
		if n.Token.Type == token.StringType && tooLong.MatchString(n.Value) {
			return &node{kind: kindNumber, text: n.Value}, nil
		}
		return &node{kind: kindText, text: n.Value}, nil
	case *ast.LiteralNode:
		return &node{kind: kindText, text: n.Value.Value}, nil
	case *ast.BoolNode:
		return &node{kind: kindBool, text: n.Token.Value}, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return &node{kind: kindNumber, text: n.GetToken().Value}, nil
	case *ast.SequenceNode:
		list := &node{kind: kindList}
		for _, value := range n.Values {
			item, err := convert(value)
			if err != nil {
				return nil, err
			}
			list.items = append(list.items, item)
		}
		return list, nil
	case *ast.MappingNode:
		return convertMapping(n.Values)
	case *ast.MappingValueNode:
		return convertMapping([]*ast.MappingValueNode{n})
	default:
		return nil, fmt.Errorf("line %d: it uses a feature of YAML that is not accepted; write plain values", n.GetToken().Position.Line)
	}
}

func convertMapping(pairs []*ast.MappingValueNode) (*node, error) {
	m := &node{kind: kindMapping}
	for _, pair := range pairs {
		value, err := convert(pair.Value)
		if err != nil {
			return nil, err
		}
		key, err := convertKey(pair.Key)
		if err != nil {
			return nil, err
		}
		m.fields = append(m.fields, field{key, value})
	}
	return m, nil
}

// convertKey takes any scalar as the text that was written.
func convertKey(key ast.MapKeyNode) (string, error) {
	switch k := key.(type) {
	case *ast.StringNode:
		return k.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return k.GetToken().Value, nil
	default:
		return "", fmt.Errorf("line %d: a key must be plain text", key.GetToken().Position.Line)
	}
}
