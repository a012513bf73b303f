package docs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Reference is the API document, ordered and worded for people.
type Reference struct {
	Summary     string
	Description string
	Groups      []Group
	Tokens      []Token
	Errors      []Response // of any operation
	Schemas     []Schema
	Manifest    []Schema // the manifest and its service
}

// Group holds the operations of one tag.
type Group struct {
	Name, Description string
	Operations        []Operation
}

// Operation is one method of one path.
type Operation struct {
	ID, Method, Path     string
	Summary, Description string
	Auth                 string  // the tokens that authorize it, in words
	Parameters           []Field // of the path, the query and the headers
	Command              string  // a curl command that performs it, with the variables $ID and $TOKEN
	BodyType             string  // content type of the request; "" for none
	Body                 []Field
	Responses            []Response
}

// Successes returns the responses that are not errors.
func (o Operation) Successes() []Response {
	return slices.DeleteFunc(slices.Clone(o.Responses), Response.failed)
}

// Failures returns the statuses of the operation's own errors.
func (o Operation) Failures() []string {
	var statuses []string
	for _, r := range o.Responses {
		if r.failed() && r.Status != other {
			statuses = append(statuses, r.Status)
		}
	}
	return statuses
}

// other is the status of a response for all other statuses.
const other = "other"

func (r Response) failed() bool { return r.Schema == "Error" }

// Response is one status of an operation.
type Response struct {
	Status      string // a number, or other
	Description string
	Schema      string // name of the schema; "" for text
	Headers     []Field
}

// Schema is a JSON object of the API.
type Schema struct {
	Name, Description string
	Fields            []Field
}

// Field is a parameter, a header or a member of a schema.
type Field struct {
	Name        string
	In          string // path, query or header; "" for a member
	Type        string // in words: "integer or null", "list of Service"
	Description string
	Default     string // "" for none
	Required    bool
}

// Token is a kind of Authorization.
type Token struct{ Name, Description string }

// errorStatus maps the document's named error responses to their statuses.
var errorStatus = map[string]string{
	"Invalid": "400", "Unauthenticated": "401", "Forbidden": "403", "NotFound": "404", "Conflict": "409", "Changed": "412",
	"TooLarge": "413", "Unprocessable": "422", "TooMany": "429", "Unavailable": "503", "NoRoom": "507", "Other": other,
}

// tokens names the security schemes.
var tokens = map[string]string{"manageToken": "manage token", "apiKey": "API key"}

// reader reads the API document.
type reader struct{ doc object }

// schemaRef is the prefix of references to schemas.
const schemaRef = "#/components/schemas/"

func newReference(api, manifest object) Reference {
	r := reader{api}
	ref := Reference{
		Summary:     api.text("info", "summary"),
		Description: api.text("info", "description"),
	}
	for _, tag := range api.list("tags") {
		tag := tag.(object)
		ref.Groups = append(ref.Groups, r.group(tag.text("name"), tag.text("description")))
	}
	for _, m := range api.object("components", "securitySchemes") {
		ref.Tokens = append(ref.Tokens, Token{tokens[m.key], m.value.(object).text("description")})
	}
	for _, m := range api.object("components", "responses") {
		ref.Errors = append(ref.Errors, r.response(errorStatus[m.key], m.value.(object)))
	}
	for _, m := range api.object("components", "schemas") {
		if s := m.value.(object); s.object("properties") != nil && !strings.HasSuffix(m.key, "Form") {
			ref.Schemas = append(ref.Schemas, r.schema(m.key, s))
		}
	}
	ref.Manifest = []Schema{
		r.schema("Manifest", manifest),
		r.schema("Service of a manifest", manifest.object("$defs", "service")),
	}
	return ref
}

// methods lists the methods of a path in the order in which they are shown.
var methods = []string{"post", "get", "put", "patch", "delete"}

func (r reader) group(tag, description string) Group {
	g := Group{Name: tag, Description: description}
	for _, path := range r.doc.object("paths") {
		item := path.value.(object)
		for _, method := range methods {
			if op := item.object(method); op != nil && slices.Contains(op.list("tags"), any(tag)) {
				g.Operations = append(g.Operations, r.operation(path.key, method, item, op))
			}
		}
	}
	return g
}

func (r reader) operation(path, method string, item, op object) Operation {
	o := Operation{
		ID:          op.text("operationId"),
		Method:      strings.ToUpper(method),
		Path:        path,
		Summary:     op.text("summary"),
		Description: strings.TrimSpace(op.text("description")),
		Auth:        auth(op.list("security")),
	}
	for _, p := range append(slices.Clone(item.list("parameters")), op.list("parameters")...) {
		p := r.resolve(p)
		o.Parameters = append(o.Parameters, r.parameter(p.text("name"), p.text("in"), p))
	}
	for _, content := range op.object("requestBody", "content") {
		o.BodyType = content.key
		o.Body = r.fields(r.resolve(content.value.(object).at("schema")))
	}
	o.Command = r.command(o, op)
	for _, m := range op.object("responses") {
		o.Responses = append(o.Responses, r.response(m.key, r.resolve(m.value)))
	}
	return o
}

// command returns a curl command for the operation.
func (r reader) command(o Operation, op object) string {
	words := []string{"curl -sS"}
	if o.BodyType == "multipart/form-data" {
		words[0] = "tar -cz . | curl -sS"
	} else if o.Method != "GET" && o.Method != "POST" {
		words = append(words, "-X "+o.Method)
	}
	if !strings.HasPrefix(o.Auth, "none") {
		words = append(words, `-H "Authorization: Bearer $TOKEN"`)
	}
	switch o.BodyType {
	case "multipart/form-data":
		words = append(words, "-F source=@-")
	case "application/gzip":
		words = append(words, "-T data.tar.gz")
	case "application/json":
		words = append(words, "-d '"+r.example(op.object("requestBody", "content", o.BodyType, "schema"))+"'")
	}
	query := ""
	if slices.ContainsFunc(o.Parameters, func(p Field) bool { return p.Name == "wait" }) {
		query = "?wait=true"
	}
	address := r.doc.list("servers")[0].(object).text("url") + strings.ReplaceAll(o.Path, "{id}", "$ID") + query
	return strings.Join(append(words, `"`+address+`"`), " ")
}

// example returns a JSON object with the first example of each field.
func (r reader) example(schema object) string {
	var members []string
	for _, m := range schema.object("properties") {
		if examples := r.resolve(m.value).list("examples"); len(examples) > 0 {
			members = append(members, fmt.Sprintf("%q: %q", m.key, examples[0]))
		}
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// auth names the tokens that authorize an operation.
func auth(security []any) string {
	var names []string
	for _, s := range security {
		if len(s.(object)) == 0 {
			names = append(names, "none")
		}
		for _, m := range s.(object) {
			names = append(names, tokens[m.key])
		}
	}
	return strings.Join(names, " or ")
}

// parameter reads a parameter of a request, or a header of an answer.
func (r reader) parameter(name, in string, p object) Field {
	f := r.field(name, p.object("schema"), p.at("required") == true)
	f.In, f.Description = in, p.text("description")
	return f
}

func (r reader) response(status string, o object) Response {
	if status == "default" {
		status = other
	}
	res := Response{Status: status, Description: o.text("description")}
	for _, content := range o.object("content") {
		if name, ok := strings.CutPrefix(content.value.(object).text("schema", "$ref"), schemaRef); ok {
			res.Schema = name
		}
	}
	for _, h := range o.object("headers") {
		res.Headers = append(res.Headers, r.parameter(h.key, "header", r.resolve(h.value)))
	}
	return res
}

func (r reader) schema(name string, s object) Schema {
	return Schema{Name: name, Description: s.text("description"), Fields: r.fields(s)}
}

func (r reader) fields(s object) []Field {
	required := s.list("required")
	var fields []Field
	for _, m := range s.object("properties") {
		fields = append(fields, r.field(m.key, m.value.(object), slices.Contains(required, any(m.key))))
	}
	return fields
}

func (r reader) field(name string, s object, required bool) Field {
	description := cmp.Or(s.text("description"), r.resolve(s).text("description"))
	f := Field{Name: name, Type: r.kind(s), Description: description, Required: required}
	if value := s.at("default"); value != nil {
		f.Default = fmt.Sprint(value)
	}
	return f
}

// resolve returns what a reference refers to, or v itself.
func (r reader) resolve(v any) object {
	o, _ := v.(object)
	if ref := o.text("$ref"); strings.HasPrefix(ref, "#/components/") {
		return r.doc.object(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return o
}

// kind describes the type of a value in words.
func (r reader) kind(s object) string {
	if ref := s.text("$ref"); ref != "" {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if r.resolve(s).object("properties") != nil || strings.HasPrefix(ref, "#/$defs/") {
			return name
		}
		return r.kind(r.resolve(s))
	}
	if values := s.list("enum"); values != nil {
		return oneOf(values)
	}
	if value := s.at("const"); value != nil {
		return fmt.Sprint(value)
	}
	if items := s.object("items"); items != nil {
		return "list of " + r.kind(items)
	}
	if choices := s.list("oneOf"); choices != nil {
		var kinds []any
		for _, choice := range choices {
			kinds = append(kinds, r.kind(choice.(object)))
		}
		return oneOf(kinds)
	}
	if s.text("format") == "binary" {
		return "file"
	}
	if types := s.list("type"); types != nil {
		return oneOf(slices.DeleteFunc(slices.Clone(types), func(t any) bool { return t == "null" && len(types) > 2 }))
	}
	return s.text("type")
}

func oneOf(values []any) string {
	var words []string
	for _, v := range values {
		word := cmp.Or(fmt.Sprint(v), `""`)
		if v == nil {
			word = "null"
		}
		if !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	return strings.Join(words, " or ")
}
