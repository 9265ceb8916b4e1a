package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// schemaPrefix is where the document keeps the shapes of bodies.
const schemaPrefix = "#/components/schemas/"

// apiConfig sets huma up: JSON, our names, and no routes of its own.
func apiConfig(version string) huma.Config {
	format := huma.Format{Marshal: writeJSON, Unmarshal: json.Unmarshal}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title: "agentsched", Version: version, License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
				Description: "The HTTP API of a running scheduler. {job} is an id, 8 or more characters of its end or its beginning, or a name, of which the newest is meant. " +
					"Each operation names the role that it needs as x-role: read, submit, operate, or public for none.",
			},
			Servers: []*huma.Server{{URL: "/", Description: "the scheduler that this document is from"}},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry(schemaPrefix, schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token":   {Type: "http", Scheme: "bearer", Description: "A token of `scheduler token create`, over TCP."},
					"session": {Type: "apiKey", In: "cookie", Name: "agentsched_session", Description: "A browser's session, after a link of `scheduler ui`; over TLS the cookie is __Host-agentsched."},
				},
			},
		},
		Formats: map[string]huma.Format{"application/json": format, "json": format}, DefaultFormat: "application/json",
		RejectUnknownQueryParameters: true,
	}
}

// security is what a route asks for. On the unix socket the peer's credentials do,
// hence the empty alternative.
func security(role string) []map[string][]string {
	if role == public {
		return []map[string][]string{}
	}
	return []map[string][]string{{"token": {}}, {"session": {}}, {}}
}

// writeJSON writes an answer. A reader who has gone is no error of ours.
func writeJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	if err := json.NewEncoder(&text).Encode(v); err != nil {
		return err
	}
	w.Write(text.Bytes()) //nolint:errcheck // nobody is there to be told
	return nil
}

// textual is the answer of a route that writes it itself.
func textual(contentType string) map[string]*huma.Response {
	schema := &huma.Schema{Type: huma.TypeString}
	if contentType == "application/json" {
		schema = &huma.Schema{}
	}
	return map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{contentType: {Schema: schema}}}}
}

func (s *Server) problemResponse() *huma.Response {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "")
	return &huma.Response{Description: "Problem", Content: map[string]*huma.MediaType{new(problem).ContentType(""): {Schema: schema}}}
}

// describeBody adds the body to a registered operation. Not before: huma would
// read it.
func describeBody[B any](s *Server, r *route) {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[B](), true, r.id+"Body")
	op := operationOf(s.api.OpenAPI().Paths[r.path], r.method)
	op.RequestBody = &huma.RequestBody{Required: !r.bodyOptional, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

// describeOther adds the other status of a registered operation.
func describeOther(s *Server, r *route) {
	if r.other == 0 {
		return
	}
	op := operationOf(s.api.OpenAPI().Paths[r.path], r.method)
	same := *op.Responses[strconv.Itoa(cmp.Or(r.status, http.StatusOK))]
	same.Description = http.StatusText(r.other)
	op.Responses[strconv.Itoa(r.other)] = &same
}

func operationOf(p *huma.PathItem, method string) *huma.Operation {
	switch method {
	case http.MethodPost:
		return p.Post
	case http.MethodPut:
		return p.Put
	}
	return p.Get
}

// finishDocument says of the shapes what their Go types do not, and returns the
// document.
func (s *Server) finishDocument() []byte {
	doc := s.api.OpenAPI()
	for _, p := range doc.Paths {
		for _, op := range []*huma.Operation{p.Get, p.Post, p.Put} {
			if op == nil {
				continue
			}
			op.Responses["4XX"], op.Responses["default"] = s.problemResponse(), s.problemResponse()
		}
	}
	registry := doc.Components.Schemas
	said := comments()
	for name, schema := range registry.Map() {
		refine(schema, registry.TypeFromRef(schemaPrefix+name), said)
		schema.Description = cmp.Or(schema.Description, said["api."+name]) // of one that adds to a type of package api
	}
	text, err := json.Marshal(doc)
	if err != nil {
		panic("server: the OpenAPI document cannot be written: " + err.Error()) // by no input
	}
	return text
}

// schemaName names a shape: those of package api by their own name, all others
// with their package's before it, such as JobSpec.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	pkg := t.PkgPath()[strings.LastIndex(t.PkgPath(), "/")+1:]
	if pkg == "" || pkg == "api" || pkg == "server" {
		return name
	}
	return strings.ToUpper(pkg[:1]) + pkg[1:] + name
}
