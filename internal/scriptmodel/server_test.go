package scriptmodel

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestFailFirstHeals(t *testing.T) {
	s := start(t, Options{})
	s.Handle("flaky", Play(Say("well again")).FailingFirst(2, Status(500, 0)))
	body := request(t, "chat-start.json", "flaky", false)
	other := strings.Replace(body, "Do it", "Do that", 1)
	var codes []int
	for _, b := range []string{body, body, other, body, other, body, other} {
		codes = append(codes, post(t, s, "/v1/chat/completions", b).code)
	}
	if want := []int{500, 500, 500, 200, 500, 200, 200}; !slices.Equal(codes, want) {
		t.Errorf("got %v, want %v", codes, want)
	}
}

// TestConcurrentFailures asks at once: exactly as many fail as the script says.
func TestConcurrentFailures(t *testing.T) {
	s := start(t, Options{})
	s.Handle("flaky", Play(Say("well again")).FailingFirst(5, Status(500, 0)))
	body := request(t, "responses-start.json", "flaky", true)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { post(t, s, "/v1/responses", body) })
	}
	wg.Wait()
	failed := 0
	for _, r := range s.Requests() {
		if r.Fault {
			failed++
		}
	}
	if failed != 5 || len(s.Requests()) != 20 {
		t.Errorf("%d of %d failed, want 5 of 20", failed, len(s.Requests()))
	}
}

// TestSideRequest asks for a title with a model that always fails: it is answered, and seen as what it is.
func TestSideRequest(t *testing.T) {
	s := start(t, Options{})
	s.Handle("flaky", Play(Say("well again")).FailingFirst(1, Status(500, 0)))
	title := strings.Replace(request(t, "chat-title.json", "", true), "scripted-500", "flaky", 1)
	if got := post(t, s, "/v1/chat/completions", title); got.code != 200 {
		t.Errorf("title: %d", got.code)
	}
	if got := post(t, s, "/v1/chat/completions", request(t, "chat-start.json", "flaky", true)); got.code != 500 {
		t.Errorf("the title used up the failure: %d", got.code)
	}
	if r := s.Requests(); !r[0].Side || r[1].Side {
		t.Errorf("got %+v", r)
	}
}

// TestDelegating: a subagent is known by the words with which it was started.
func TestDelegating(t *testing.T) {
	s := start(t, Options{})
	s.Handle("m", Play(Say("I lead")).Delegating(`"Do that"`, Say("I follow")))
	lead := request(t, "chat-start.json", "m", false)
	for body, want := range map[string]string{lead: "I lead", strings.Replace(lead, "Do it", "Do that", 1): "I follow"} {
		if got := post(t, s, "/v1/chat/completions", body); !strings.Contains(got.body, want) {
			t.Errorf("got %s, want %q", got.body, want)
		}
	}
}

// TestSession walks through a script as a CLI would, adding what it was told and what came of it.
func TestSession(t *testing.T) {
	s := start(t, Options{})
	s.Handle("m", Play(Run("one"), Run("two"), Say("end")).Resuming(Say("resumed")))
	type message = map[string]any
	var messages []any
	ask := func() (command, text string) {
		var q map[string]any
		if err := json.Unmarshal([]byte(request(t, "chat-start.json", "m", false)), &q); err != nil {
			t.Fatal(err)
		}
		q["messages"] = messages
		body, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		var a struct {
			Choices []struct {
				Message struct {
					Content   string `json:"content"`
					ToolCalls []struct {
						ID       string `json:"id"`
						Function struct {
							Arguments string `json:"arguments"`
						} `json:"function"`
					} `json:"tool_calls"`
				} `json:"message"`
			} `json:"choices"`
		}
		resp := post(t, s, "/v1/chat/completions", string(body))
		if err := json.Unmarshal([]byte(resp.body), &a); err != nil {
			t.Fatalf("%s: %v", resp.body, err)
		}
		m := a.Choices[0].Message
		if len(m.ToolCalls) == 0 {
			messages = append(messages, message{"role": "assistant", "content": m.Content})
			return "", m.Content
		}
		messages = append(messages,
			message{"role": "assistant", "content": "", "tool_calls": m.ToolCalls},
			message{"role": "tool", "tool_call_id": m.ToolCalls[0].ID, "content": "ok"})
		var args struct {
			Command string `json:"command"`
		}
		if err := json.Unmarshal([]byte(m.ToolCalls[0].Function.Arguments), &args); err != nil {
			t.Fatal(err)
		}
		return args.Command, ""
	}
	var got []string
	for _, said := range []string{"go", "", "", "go on"} {
		if said != "" {
			messages = append(messages, message{"role": "user", "content": said})
		}
		command, text := ask()
		got = append(got, command+text)
	}
	if want := []string{"one", "two", "end", "resumed"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	last := s.Requests()[3]
	if !last.Resumed || !last.HasKey || last.API != "chat" || last.Model != "m" || last.Messages != 7 || last.Tools != 2 {
		t.Errorf("last request: %+v", last)
	}
}

func TestShellTool(t *testing.T) {
	props := func(s string) json.RawMessage { return json.RawMessage(`{"properties":` + s + `}`) }
	for _, tc := range []struct {
		name   string
		schema json.RawMessage
		want   string // arguments, or nothing if the tool is no shell
	}{
		{"exec_command", props(`{"cmd":{"type":"string"},"yield_time_ms":{"type":"number"}}`), `{"cmd":"ls","yield_time_ms":30000}`},
		{"shell", props(`{"command":{"type":"array"},"timeout_ms":{"type":"number"}}`), `{"command":["bash","-lc","ls"],"timeout_ms":600000}`},
		{"Bash", props(`{"command":{"type":"string"},"description":{"type":"string"}}`), `{"command":"ls","description":"Step of a script"}`},
		{"my_shell_tool", props(`{"command":{"type":"string"}}`), `{"command":"ls"}`},
		{"write_stdin", props(`{"chars":{"type":"string"}}`), ""},
		{"task", props(`{"command":{"type":"string"}}`), ""},
		{"bash", nil, ""},
	} {
		c := conversation{tools: []tool{newTool("task", props(`{"command":{}}`)), newTool(tc.name, tc.schema)}}
		got := ""
		if sh, ok := c.shell(); ok {
			got = string(sh.run("ls"))
		}
		if got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.name, got, tc.want)
		}
	}
}

// TestPoll answers a command that still runs with the call that waits for it.
func TestPoll(t *testing.T) {
	s := start(t, Options{})
	body := request(t, "responses-start.json", "scripted-sleep", false)
	body = strings.Replace(body, `"Do it\n"}]}]`, `"Do it\n"}]},
		{"type": "function_call", "name": "exec_command", "call_id": "c1", "arguments": "{}"},
		{"type": "function_call_output", "call_id": "c1", "output": "Wall time: 30 seconds\nProcess running with session ID 4711\nOutput:\n"}]`, 1)
	resp := post(t, s, "/v1/responses", body)
	for _, want := range []string{`"name":"write_stdin"`, `\"session_id\":4711`} {
		if !strings.Contains(resp.body, want) {
			t.Errorf("no %s in %s", want, resp.body)
		}
	}
}

func TestInstance(t *testing.T) {
	for schema, want := range map[string]string{
		`{"type":"object","properties":{"verdict":{"enum":["pass","fail"]},"score":{"type":"number"},"notes":{"type":"array","items":{"type":"string"}},"ok":{"type":["boolean","null"]}}}`: `{"notes":["x"],"ok":true,"score":1,"verdict":"pass"}`,
		`{"const":3}`:       `3`,
		`{"type":"array"}`:  `[]`,
		`{"type":"null"}`:   `null`,
		`{"type":"string"}`: `"x"`,
	} {
		if got := string(mustJSON(instance(json.RawMessage(schema), "x"))); got != want {
			t.Errorf("%s: got %s, want %s", schema, got, want)
		}
	}
}

// TestOtherPaths asks what CLIs ask beside the model itself.
func TestOtherPaths(t *testing.T) {
	s := start(t, Options{})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tc := range []struct {
		method, path string
		code         int
	}{
		{"HEAD", "/", 200}, {"GET", "/", 200}, {"GET", "/v1/models", 200}, {"GET", "/nowhere", 404}, {"GET", "/v1/responses", 405},
		{"POST", "/v1/messages/count_tokens?beta=true", 200}, {"POST", "/v1/messages", 400},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, s.URL()+tc.path, strings.NewReader("no JSON"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tc.code {
			t.Errorf("%s %s: got %d, want %d", tc.method, tc.path, resp.StatusCode, tc.code)
		}
	}
}

func TestOnlyLoopback(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "nonsense"} {
		if s, err := New(Options{Addr: addr}); err == nil {
			t.Errorf("%s was accepted: %s", addr, s.URL())
			_ = s.Close()
		}
	}
}

// TestBuiltins plays the first turn of each script that ends by itself; a number in the name is the status it fails with.
func TestBuiltins(t *testing.T) {
	s := start(t, Options{})
	for _, model := range append(s.Models(), "any other") {
		if strings.HasSuffix(model, "-hang") || strings.HasSuffix(model, "-slow") {
			continue
		}
		for api, path := range paths() {
			resp := post(t, s, path, strings.Replace(request(t, api+"-start.json", model, false), "Do it", "Do it by "+api, 1))
			want := http.StatusOK
			if n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(model, "scripted-"), "-once")); err == nil {
				want = n
			}
			if resp.code != want || resp.body == "" {
				t.Errorf("%s %s: got %d %q, want %d", api, model, resp.code, resp.body, want)
			}
		}
	}
}

func TestChop(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 9, 100} {
		if got := strings.Join(chop("wörld für", n), ""); got != "wörld für" {
			t.Errorf("%d: %q", n, got)
		}
		if slices.Contains(chop("äb", n), "") {
			t.Errorf("%d: an empty piece", n)
		}
	}
	if chop("", 3) != nil {
		t.Error("nothing has pieces")
	}
}
