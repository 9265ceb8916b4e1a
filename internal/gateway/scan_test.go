package gateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// FuzzScan: the scanner takes what encoding/json takes, except for more nesting, members and doubles than a request has.
func FuzzScan(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "a" : [ 1 , -0.5e+3 , true,false,null, "x\n\u00e9\\" , {} , [] ] } `, `{"a":01}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12g4"}`,
		`{"a":1,}`, `{"a" 1}`, `{a:1}`, `[1]`, `{"a":tru}`, `{"a":1}x`, "{\"a\":\"\x01\"}", `{"a":-}`, `{"a":"`, `{"a":[1 2]}`, `{"a":00}`, `{"a":1e5}`, ``,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, err := members([]byte(text), func(string) *content { return &content{api: Messages} })
		if err != nil && !strings.HasPrefix(err.Error(), errJSON.Error()) {
			return // a bound, or a double
		}
		var object map[string]json.RawMessage
		valid := json.Unmarshal([]byte(text), &object) == nil && object != nil
		if valid != (err == nil) {
			t.Errorf("%q: %v, encoding/json says valid: %v", text, err, valid)
		}
	})
}

// What a run sends and what the provider gets; want without a brace is a part of the refusal.
var rewrites = []struct {
	name, path, body string
	want             string
	denied           string
	hosted           bool
}{
	{name: "as it is", path: "/v1/responses", body: ` { "model":"m" , "input":"hi" } `, want: ` { "model":"m" , "input":"hi" } `},
	{name: "not JSON", path: "/v1/responses", body: `{"model":"m"`, want: "not JSON"},
	{name: "no object", path: "/v1/responses", body: `["model"]`, want: "not JSON object"},
	{name: "two values", path: "/v1/responses", body: `{"model":"m"}{"model":"n"}`, want: "nothing behind"},
	{name: "two models", path: "/v1/responses", body: `{"model":"m","input":"","model":"dear"}`, want: `"model" stands twice`},
	{name: "two models, one escaped", path: "/v1/responses", body: `{"model":"m","\u006dodel":"dear"}`, want: `"model" stands twice`},
	{name: "two models by case", path: "/v1/responses", body: `{"model":"m","Model":"dear"}`, want: `"Model" stands twice`},
	{name: "another case alone", path: "/v1/responses", body: `{"model":"m","Tools":[]}`, want: "lower case"},
	{name: "no model", path: "/v1/responses", body: `{"input":"hi"}`, want: "model must be"},
	{name: "nested too deep", path: "/v1/responses", body: `{"model":"m","input":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`, want: "nested"},
	{name: "a limit that is none", path: "/v1/messages", body: `{"model":"m","max_tokens":-1,"messages":[]}`, want: "max_tokens is -1"},
	{name: "a limit that overflows", path: "/v1/messages", body: `{"model":"m","max_tokens":99999999999999999999,"messages":[]}`, want: "max_tokens is 99"},
	{name: "usage is asked for", path: "/v1/chat/completions", body: `{"model":"m","stream":true,"messages":[]}`,
		want: `{"model":"m","stream":true,"messages":[],"stream_options":{"include_usage":true}}`},
	{name: "usage is asked for again", path: "/v1/chat/completions", body: `{"stream_options":{"include_usage":false},"model":"m","stream":true,"messages":[]}`,
		want: `{"stream_options":{"include_usage":true},"model":"m","stream":true,"messages":[]}`},
	{name: "the web, Responses", path: "/v1/responses", body: `{"model":"m","tools":[{"type":"web_search"},{"type":"function","name":"f","parameters":{"type":"web_search"}}],"tool_choice":"auto"}`,
		want: `{"model":"m","tools":[{"type":"function","name":"f","parameters":{"type":"web_search"}}],"tool_choice":"auto"}`, denied: "tool web_search"},
	{name: "the web, the only tool", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}],"tool_choice":{"type":"any"}}`,
		want: `{"model":"m","max_tokens":9,"messages":[]}`, denied: "tool web_search_20250305"},
	{name: "the web, allowed", path: "/v1/responses", body: `{"model":"m","tools":[{"type":"web_search"}]}`, want: `{"model":"m","tools":[{"type":"web_search"}]}`, hosted: true},
	{name: "the web, chat", path: "/v1/chat/completions", body: `{"model":"m","messages":[],"web_search_options":{}}`, want: `{"model":"m","messages":[]}`, denied: "tool web_search_options"},
	{name: "an escaped type", path: "/v1/responses", body: `{"model":"m","tools":[{"type":"mc\u0070"}]}`, want: `{"model":"m"}`, denied: "tool mcp"},
	{name: "two types", path: "/v1/responses", body: `{"model":"m","tools":[{"type":"mcp","type":"function"}]}`, want: `"type" stands twice`},
	{name: "in a namespace", path: "/v1/responses", body: `{"model":"m","tools":[{"type":"namespace","name":"n","tools":[{"type":"code_interpreter"}]}]}`, want: `{"model":"m"}`, denied: "tool code_interpreter"},
	{name: "tools of the run", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[],"tools":[{"name":"Bash","input_schema":{}},{"type":"bash_20250124","name":"b"}]}`,
		want: `{"model":"m","max_tokens":9,"messages":[],"tools":[{"name":"Bash","input_schema":{}},{"type":"bash_20250124","name":"b"}]}`},
	{name: "MCP connector", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[],"mcp_servers":[{"type":"url","url":"https://x"}]}`, want: "mcp_servers is not allowed", denied: "mcp_servers"},
	{name: "an image by URL, Messages", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"url":"https://x","type":"url"}}]}]}`,
		want: "a source by URL is not allowed", denied: "a source by URL"},
	{name: "an image in the body", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}]}`,
		want: `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}]}`},
	{name: "arguments that look like a source", path: "/v1/messages", body: `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"type":"url","url":"x","file_id":"f"}}]}]}`,
		want: `{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"type":"url","url":"x","file_id":"f"}}]}]}`},
	{name: "an image by URL, chat", path: "/v1/chat/completions", body: `{"model":"m","messages":[{"content":[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]}]}`,
		want: "an image by URL is not allowed", denied: "an image by URL"},
	{name: "an image by URL, Responses", path: "/v1/responses", body: `{"model":"m","input":[{"content":[{"type":"input_image","image_url":"https://x"}]}]}`,
		want: "an image by URL is not allowed", denied: "an image by URL"},
	{name: "an image as data", path: "/v1/responses", body: `{"model":"m","input":[{"content":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]}`,
		want: `{"model":"m","input":[{"content":[{"type":"input_image","image_url":"data:image/png;base64,AA=="}]}]}`},
	{name: "a file of the provider", path: "/v1/responses", body: `{"model":"m","input":[{"content":[{"type":"input_file","file_id":"file-1"}]}]}`,
		want: "a file by file_id is not allowed", denied: "a file by file_id"},
	{name: "a schema that names such members", path: "/v1/responses", body: `{"model":"m","input":[{"tools":[{"properties":{"file_id":{"type":"string"},"image_url":{"type":"string"},"url":{"type":"string"}}}]}]}`,
		want: `{"model":"m","input":[{"tools":[{"properties":{"file_id":{"type":"string"},"image_url":{"type":"string"},"url":{"type":"string"}}}]}]}`},
	{name: "a tool in the conversation", path: "/v1/responses", body: `{"model":"m","input":[{"type":"tool_search_output","tools":[{"type":"function","name":"f"},{"type":"mcp","server_url":"https://x"}]}]}`,
		want: "tool mcp is not allowed", denied: "tool mcp"},
	{name: "tools of the run in the conversation", path: "/v1/responses", body: `{"model":"m","input":[{"type":"tool_search_output","tools":[{"type":"function","name":"f"},"x",{}]}]}`,
		want: `{"model":"m","input":[{"type":"tool_search_output","tools":[{"type":"function","name":"f"},"x",{}]}]}`},
	{name: "tools that are no list", path: "/v1/responses", body: `{"model":"m","tools":{"type":"web_search"}}`, want: "tools must be a list"},
	{name: "a tool that is no object", path: "/v1/responses", body: `{"model":"m","tools":["web_search"]}`, want: "tools: the body is not JSON object"},
	{name: "a stored conversation", path: "/v1/responses", body: `{"model":"m","previous_response_id":"resp_1"}`, want: "previous_response_id is not allowed", denied: "previous_response_id"},
	{name: "no stored conversation", path: "/v1/responses", body: `{"model":"m","previous_response_id":null}`, want: `{"model":"m","previous_response_id":null}`},
	{name: "nobody waits", path: "/v1/responses", body: `{"model":"m","background":true}`, want: "cannot be metered", hosted: true},
	{name: "a dearer service", path: "/v1/responses", body: `{"service_tier":"priority","model":"m"}`, want: `{"model":"m"}`},
	{name: "other models of a router", path: "/v1/chat/completions", body: `{"model":"m","models":["dear"],"messages":[]}`, want: "models is not allowed", denied: "models"},
}

func TestRewrites(t *testing.T) {
	for _, c := range rewrites {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, says(plainJSON, `{"usage":{"input_tokens":1,"output_tokens":1}}`), func(_ *Config, run *RunConfig) { run.HostedTools = c.hosted })
			got := r.post(c.path, c.body)
			if strings.HasPrefix(strings.TrimSpace(c.want), "{") {
				if sent := r.upstream().body; got.status != http.StatusOK || sent != c.want {
					t.Errorf("%d %s; sent\n%s\nwant\n%s", got.status, got.body, sent, c.want)
				}
			} else if len(r.seen) > 0 || got.status < 400 || got.status >= 500 || !strings.Contains(strings.ReplaceAll(got.body, `\"`, `"`), c.want) {
				t.Errorf("answered %d %s (%d requests sent), want a refusal with %q", got.status, got.body, len(r.seen), c.want)
			}
			if strings.Join(r.denied, ", ") != c.denied {
				t.Errorf("denied %q, want %q", r.denied, c.denied)
			}
		})
	}
}

// TestDenialsAreBounded: a run cannot fill a log with what it tries.
func TestDenialsAreBounded(t *testing.T) {
	r := newRig(t, says(plainJSON, `{}`), func(_ *Config, run *RunConfig) { run.Models = []string{"m"} })
	for i := range 3 * maxDenials {
		r.post("/v1/responses", `{"model":"x`+strings.Repeat("y", i)+`"}`)
		r.post("/v1/responses", `{"model":"same"}`)
	}
	if len(r.denied) != maxDenials {
		t.Errorf("%d denials told, want %d", len(r.denied), maxDenials)
	}
}
