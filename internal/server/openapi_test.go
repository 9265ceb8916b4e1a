package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/api"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is what the tests look at of the OpenAPI document.
type document struct {
	OpenAPI string                          `json:"openapi"`
	Paths   map[string]map[string]operation `json:"paths"`
}

type operation struct {
	ID          string                     `json:"operationId"`
	Summary     string                     `json:"summary"`
	Description string                     `json:"description"`
	Role        string                     `json:"x-role"`
	Tags        []string                   `json:"tags"`
	Security    *[]map[string][]string     `json:"security"`
	Parameters  []map[string]any           `json:"parameters"`
	Body        json.RawMessage            `json:"requestBody"`
	Responses   map[string]json.RawMessage `json:"responses"`
}

func (d *served) document() document {
	d.t.Helper()
	var doc document
	d.ask("GET", "/openapi.json", 200, &doc)
	return doc
}

// paths of the mux that the document writes otherwise.
var written = map[string]string{"/{$}": "/", "/assets/": "/assets/{path}"}

// TestDocument: every route of the mux is in the document and the other way round,
// and each says what it is and who may.
func TestDocument(t *testing.T) {
	d := open(t, 0)
	doc := d.document()
	if doc.OpenAPI != "3.1.0" {
		t.Errorf("OpenAPI %s", doc.OpenAPI)
	}
	var want, got, ids []string
	for _, pattern := range d.server.Patterns() {
		method, path, _ := strings.Cut(pattern, " ")
		if other, ok := written[path]; ok {
			path = other
		}
		want = append(want, method+" "+path)
	}
	for path, ops := range doc.Paths {
		for method, op := range ops {
			name := strings.ToUpper(method) + " " + path
			got, ids = append(got, name), append(ids, op.ID)
			if op.ID == "" || op.Summary == "" || len(op.Description) < 10 || len(op.Tags) != 1 || !slices.Contains([]string{"public", "read", "submit", "operate", "node"}, op.Role) {
				t.Errorf("%s: %+v", name, op)
			}
			if public := op.Role == "public"; op.Security == nil || public != (len(*op.Security) == 0) {
				t.Errorf("%s: role %s and security %v", name, op.Role, op.Security)
			}
			if method == "get" && op.Role != "read" && op.Role != "public" && path != "/v1/node" {
				t.Errorf("%s needs role %s", name, op.Role)
			}
			if path == "/v1/jobs" && method == "post" && (op.Responses["200"] == nil || op.Responses["201"] == nil || len(op.Body) == 0) {
				t.Errorf("%s: answers %v, body %s", name, op.Responses, op.Body)
			}
			if op.Responses["default"] == nil {
				t.Errorf("%s tells of no problems", name)
			}
			for _, p := range op.Parameters {
				if p["description"] == nil && path != "/assets/{path}" {
					t.Errorf("%s: parameter %v is not described", name, p["name"])
				}
			}
			if wants := strings.Contains(path, "{"); wants != slices.ContainsFunc(op.Parameters, func(p map[string]any) bool { return p["in"] == "path" }) && path != "/assets/{path}" {
				t.Errorf("%s: parameters %v", name, op.Parameters)
			}
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) {
		t.Errorf("the mux has\n%s\nthe document has\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != len(got) {
		t.Errorf("operation ids repeat: %v", ids)
	}
}

// schema compiles the schema of an answer.
func (d *served) schema(compiler *jsonschema.Compiler, path, method, status, contentType string) *jsonschema.Schema {
	d.t.Helper()
	part := strings.NewReplacer("~", "~0", "/", "~1").Replace
	at := "mem:///openapi.json#/paths/" + strings.NewReplacer("{", "%7B", "}", "%7D").Replace(part(path)) + "/" + method + "/responses/" + status + "/content/" + part(contentType) + "/schema"
	s, err := compiler.Compile(at)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return s
}

func (d *served) compiler() *jsonschema.Compiler {
	d.t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(d.server.Document()))
	if err != nil {
		d.t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:///openapi.json", doc); err != nil {
		d.t.Fatal(err)
	}
	return c
}

// TestAnswers: what each GET route answers is what the document says.
func TestAnswers(t *testing.T) {
	d := world(t)
	compiler := d.compiler()
	var graph struct {
		Workflows []struct {
			Batch string `json:"batch"`
		} `json:"workflows"`
	}
	d.ask("GET", "/v1/workflows", 200, &graph)
	if len(graph.Workflows) != 1 {
		t.Fatalf("workflows %+v", graph)
	}
	var letters api.Jobs
	d.ask("GET", "/v1/dead-letters", 200, &letters)
	if len(letters.Jobs) == 0 {
		t.Fatal("there is no dead letter")
	}
	fill := strings.NewReplacer("/v1/dead-letters/{job}", "/v1/dead-letters/"+string(letters.Jobs[0].ID), "/v1/nodes/{name}", "/v1/nodes/a", "{ref}", string(d.last), "{job}", string(d.last), "{attempt}", "1", "{name}", "patch", "{batch}", graph.Workflows[0].Batch, "{path}", "app.js", "{digest}", d.parcel()).Replace
	queries := map[string]string{"/v1/reputations/history": "?subject=t&kind=tenant", "/v1/reputations/similar": "?subject=t&kind=tenant", "/v1/usage": "?by=tenant&by=day", "/v1/credits/history": "?tenant=t", "/v1/parcels": "?repository=" + parcelRepository}
	for path, ops := range d.document().Paths {
		if _, ok := ops["get"]; !ok || strings.HasSuffix(path, "/stream") || strings.Contains(path, "{pipeline}") || path == "/v1/node" || path == "/answer" || path == "/mcp" {
			continue
		}
		resp, err := d.http.Get("http://scheduler" + fill(path) + queries[path])
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s, %v", path, resp.Status, text, err)
			continue
		}
		if resp.Header.Get("Content-Type") != "application/json" {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.schema(compiler, path, "get", "200", "application/json").Validate(value); err != nil {
			t.Errorf("%s answers %s, which is not what the document says: %v", path, text, err)
		}
	}
}

// TestProblemsAreWhatTheDocumentSays of several routes and causes.
func TestProblemsAreWhatTheDocumentSays(t *testing.T) {
	d := open(t, 0)
	compiler := d.compiler()
	for _, c := range []struct{ method, path, template, body string }{
		{"GET", "/v1/jobs/none", "/v1/jobs/{job}", ""},
		{"GET", "/v1/jobs?limit=x", "/v1/jobs", ""},
		{"GET", "/v1/triggers", "/v1/triggers", ""},
		{"GET", "/metrics", "/metrics", ""},
		{"GET", "/v1/stream?kinds=x", "/v1/stream", ""},
		{"POST", "/v1/jobs", "/v1/jobs", `{"jobs": [{"id": "a b"}]}`},
		{"POST", "/v1/resume", "/v1/resume", `{"scope": "global"}`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, "http://scheduler"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := d.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode/100 != 4 || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %s %v, %v", c.method, c.path, resp.Status, value, err)
			continue
		}
		if err := d.schema(compiler, c.template, strings.ToLower(c.method), "default", "application/problem+json").Validate(value); err != nil {
			t.Errorf("%s %s answers %v: %v", c.method, c.path, value, err)
		}
	}
}
