package server

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// schemaPrefix is where the document keeps the shapes of bodies.
const schemaPrefix = "#/components/schemas/"

// newDocument returns the OpenAPI document without its routes.
func newDocument(version string) *huma.OpenAPI {
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "agentsched", Version: version, License: &huma.License{Name: "Apache 2.0", Identifier: "Apache-2.0"},
			Description: "The HTTP API of a running scheduler. {job} is an id, 8 or more characters of its end or its beginning, or a name, which selects its newest job. " +
				"Each operation names the role that it needs as x-role: read, submit, operate, node, or public for none.",
		},
		Servers: []*huma.Server{{URL: "/", Description: "the scheduler that this document is from"}},
		Components: &huma.Components{
			Schemas: huma.NewMapRegistry(schemaPrefix, schemaName),
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"token":   {Type: "http", Scheme: "bearer", Description: "A token of `scheduler token create`, over TCP."},
				"session": {Type: "apiKey", In: "cookie", Name: "agentsched_session", Description: "A browser's session, after a link of `scheduler ui`; over TLS the cookie is __Host-agentsched."},
			},
		},
	}
}

// security is what a route asks for. On the unix socket the peer's credentials do,
// hence the empty alternative.
func security(role string) []map[string][]string {
	switch role {
	case public:
		return []map[string][]string{}
	case nodeRole:
		return []map[string][]string{{"token": {}}}
	}
	return []map[string][]string{{"token": {}}, {"session": {}}, {}}
}

func (r *router) schema(t reflect.Type, hint string) *huma.Schema {
	return r.doc.Components.Schemas.Schema(t, true, hint)
}

// textSchema is that of an answer that a handler writes itself.
func textSchema(contentType string) *huma.Schema {
	if contentType == "application/json" {
		return &huma.Schema{}
	}
	return &huma.Schema{Type: huma.TypeString}
}

// responses are those of success.
func (r *router) responses(at *route, contentType string, schema *huma.Schema) map[string]*huma.Response {
	response := func(status int) *huma.Response {
		out := &huma.Response{Description: http.StatusText(status), Headers: map[string]*huma.Header{}}
		for name, about := range at.headers {
			out.Headers[name] = &huma.Header{Schema: &huma.Schema{Type: huma.TypeString, Description: about}}
		}
		if status != http.StatusNoContent {
			out.Content = map[string]*huma.MediaType{contentType: {Schema: schema}}
		}
		return out
	}
	status := cmp.Or(at.status, http.StatusOK)
	all := map[string]*huma.Response{strconv.Itoa(status): response(status)}
	if at.other != 0 {
		all[strconv.Itoa(at.other)] = response(at.other)
	}
	return all
}

func (r *router) requestBody(at *route, t reflect.Type) *huma.RequestBody {
	return &huma.RequestBody{Required: !at.bodyOptional, Content: map[string]*huma.MediaType{"application/json": {Schema: r.schema(t, at.id+"Body")}}}
}

// finish adds to the document the problems of each operation, and what the Go types of
// the schemas do not say. It returns the document.
func (r *router) finish() []byte {
	doc := r.doc
	problems := &huma.Response{Description: "Problem", Content: map[string]*huma.MediaType{problemType: {Schema: r.schema(reflect.TypeFor[problem](), "")}}}
	for _, p := range doc.Paths {
		for _, op := range []*huma.Operation{p.Get, p.Post, p.Put, p.Delete} {
			if op != nil {
				op.Responses["4XX"], op.Responses["default"] = problems, problems
			}
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
