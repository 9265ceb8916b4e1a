package gateway

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
)

const ok = `{"usage":{"input_tokens":1,"output_tokens":1}}`

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		upstream     string
	}{
		{"POST", "/v1/responses", 200, "/v1/responses"},
		{"POST", "/responses", 200, "/v1/responses"},
		{"POST", "/v1/chat/completions", 200, "/v1/chat/completions"},
		{"POST", "/v1/messages?beta=true&x=y", 200, "/v1/messages?beta=true"},
		{"POST", "/v1/responses?beta=true", 200, "/v1/responses"},
		{"POST", "/v1/messages/count_tokens", 200, "/v1/messages/count_tokens"},
		{"GET", "/v1/models", 200, ""},
		{"GET", "/v1/responses", 404, ""},
		{"POST", "/v1/models", 404, ""},
		{"POST", "/v1/files", 404, ""},
		{"POST", "/v1/embeddings", 404, ""},
		{"GET", "/v1/responses/resp_1", 404, ""},
		{"POST", "/v1/messages/batches", 404, ""},
		{"POST", "/v1/../v1/responses", 404, ""},
		{"POST", "/v1/responses/../files", 404, ""},
		{"POST", "/v1/v1/responses", 404, ""},
		{"POST", "/v1/responses/", 404, ""},
		{"POST", "/v1/%72esponses/..%2f..%2fx", 404, ""},
		{"GET", "/", 404, ""},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			r := newRig(t, says(plainJSON, ok), nil)
			got := r.do(c.method, c.path, `{"model":"m","max_tokens":5}`)
			if got.status != c.status {
				t.Errorf("answered %d %s, want %d", got.status, got.body, c.status)
			}
			if c.upstream == "" && len(r.seen) > 0 {
				t.Errorf("the provider was asked for %s", r.seen[0].path)
			}
			if c.upstream != "" && r.upstream().path != c.upstream {
				t.Errorf("the provider was asked for %s, want %s", r.upstream().path, c.upstream)
			}
			if denied := len(r.denied) == 1; denied != (c.status == 404) {
				t.Errorf("denied: %q", r.denied)
			}
		})
	}
}

// TestRunKey: the key of the run is good in both headers, until the run has ended, and no other is.
func TestRunKey(t *testing.T) {
	r := newRig(t, says(plainJSON, ok), nil)
	other, err := r.gateway.Open(ampleRun(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.session.Key()) < 40 || r.session.Key() == other.Key() {
		t.Fatalf("keys %q and %q", r.session.Key(), other.Key())
	}
	body := `{"model":"m"}`
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"Authorization", "Bearer " + r.session.Key(), 200},
		{"X-Api-Key", r.session.Key(), 200},
		{"Authorization", "Bearer " + other.Key(), 401},
		{"X-Api-Key", r.session.Key() + "x", 401},
		{"X-Api-Key", realKey, 401},
		{"Authorization", r.session.Key(), 401},
		{"X", "", 401},
	} {
		req, _ := http.NewRequest("POST", r.endpoint.URL+"/v1/responses", strings.NewReader(body))
		req.Header.Set(c.header, c.value)
		w := httptest.NewRecorder()
		r.session.ServeHTTP(w, req)
		if w.Code != c.status {
			t.Errorf("%s: %s: %d, want %d", c.header, c.value, w.Code, c.status)
		}
	}
	r.session.Close()
	r.session.Close()
	if got := r.post("/v1/responses", body); got.status != 401 || !strings.Contains(got.body, "has ended") {
		t.Errorf("after the run: %d %s", got.status, got.body)
	}
}

// TestHeaders: what is not listed goes neither way, and the key is put in as the API wants it.
func TestHeaders(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, v := range map[string]string{"Set-Cookie": "a=b", "Server": "x", "Anthropic-Organization-Id": "o", "Request-Id": "req_" + realKey,
			"X-Ratelimit-Remaining-Requests": "9", "Location": "http://elsewhere"} {
			w.Header().Set(name, v)
		}
		says(plainJSON, ok)(w, nil)
	}, nil)
	got := r.post("/v1/messages", `{"model":"m","max_tokens":5}`, "Anthropic-Version", "2023-06-01", "Anthropic-Beta", "b", "Cookie", "c=d",
		"X-Forwarded-For", "10.0.0.1", "Accept-Encoding", "gzip", "Chatgpt-Account-Id", "stolen", "User-Agent", "cli/1")
	sent := r.upstream().header
	for name, want := range map[string]string{"X-Api-Key": realKey, "Authorization": "", "Anthropic-Version": "2023-06-01", "Anthropic-Beta": "b", "Cookie": "",
		"X-Forwarded-For": "", "Accept-Encoding": "identity", "Chatgpt-Account-Id": "", "User-Agent": "cli/1", "Content-Type": plainJSON} {
		if sent.Get(name) != want {
			t.Errorf("the provider got %s: %q, want %q", name, sent.Get(name), want)
		}
	}
	for name, want := range map[string]string{"Set-Cookie": "", "Server": "", "Anthropic-Organization-Id": "", "Location": "", "X-Ratelimit-Remaining-Requests": "9"} {
		if got.header.Get(name) != want {
			t.Errorf("the run got %s: %q, want %q", name, got.header.Get(name), want)
		}
	}
	if id := got.header.Get("Request-Id"); id == "" || strings.Contains(id, realKey) {
		t.Errorf("the run got Request-Id: %q", id)
	}
	r.post("/v1/responses", `{"model":"m"}`)
	if sent := r.upstream().header; sent.Get("Authorization") != "Bearer "+realKey || sent.Get("X-Api-Key") != "" {
		t.Errorf("of the Responses API the provider got %q, %q", sent.Get("Authorization"), sent.Get("X-Api-Key"))
	}
}

// TestKeyNeverReturns: a provider that repeats the key gives it to the gateway alone.
func TestKeyNeverReturns(t *testing.T) {
	pieces := func(w http.ResponseWriter, status int, kind, text string) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		for i := range len(text) { // a byte at a time
			_, _ = io.WriteString(w, text[i:i+1])
			_ = http.NewResponseController(w).Flush()
		}
	}
	for name, handler := range map[string]http.HandlerFunc{
		"error": func(w http.ResponseWriter, _ *http.Request) {
			pieces(w, 400, plainJSON, `{"error":{"message":"bad key `+realKey+`"}}`)
		},
		"unauthorized": func(w http.ResponseWriter, _ *http.Request) {
			pieces(w, 401, plainJSON, `{"error":{"message":"Incorrect API key: `+realKey+`"}}`)
		},
		"stream": func(w http.ResponseWriter, _ *http.Request) {
			pieces(w, 200, events, event(`{"error":"`+realKey+`"}`)+event(`{}`))
		},
		"whole": func(w http.ResponseWriter, _ *http.Request) {
			pieces(w, 200, plainJSON, `{"a":"sk-real-0`+realKey+`","b":"sk-rea"}`)
		},
		"endless error": func(w http.ResponseWriter, _ *http.Request) { says(plainJSON, strings.Repeat(realKey, 10_000))(w, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, handler, nil)
			got := r.post("/v1/responses", `{"model":"m","stream":true}`)
			if got.err != nil || got.body == "" || strings.Contains(got.body, realKey) || !strings.Contains(got.body, "redacted") {
				t.Errorf("the run got %d %.200q (%v)", got.status, got.body, got.err)
			}
			if name == "whole" && got.body != `{"a":"sk-real-0`+credential.Concealed+`","b":"sk-rea"}` {
				t.Errorf("the run got %q", got.body)
			}
		})
	}
}

func TestProviderFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
		part    string
		charged int64 // tokens
	}{
		{"its own error is passed on", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(529); _, _ = io.WriteString(w, "busy") }, 529, "busy", 0},
		{"a redirect is not followed", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://x")
			w.WriteHeader(307)
		}, 502, "redirects", 0},
		{"compressed all the same", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "x")
		}, 502, "cannot be metered", 4},
		{"nothing", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 502, "broke", 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.handler, nil)
			got := r.post("/v1/responses", `{"model":"m"}`)
			if got.status != c.status || !strings.Contains(got.body, c.part) {
				t.Errorf("answered %d %s, want %d with %q", got.status, got.body, c.status, c.part)
			}
			if u, _, _ := r.total(); u.Tokens() != c.charged {
				t.Errorf("charged %d tokens, want %d", u.Tokens(), c.charged)
			}
		})
	}
	r := newRig(t, says(plainJSON, ok), nil)
	r.provider.Close()
	if got := r.post("/v1/messages", `{"model":"m","max_tokens":1}`); got.status != 502 || !strings.Contains(got.body, `"type":"api_error"`) {
		t.Errorf("unreachable: %d %s", got.status, got.body)
	}
	if u, _, _ := r.total(); u.Tokens() != 0 {
		t.Errorf("unreachable: charged %+v", u)
	}
}

// TestCutStream: a stream that is cut, by whomever, is charged for what has passed of it.
func TestCutStream(t *testing.T) {
	start := event(`{"type":"message_start","message":{"usage":{"input_tokens":100,"output_tokens":1}}}`)
	text := event(`{"type":"content_block_delta","delta":{"text":"` + strings.Repeat("word", 50) + `"}}`)
	chunks := event(`{"choices":[{"delta":{"content":"` + strings.Repeat("word", 50) + `"}}]}`)
	body := `{"model":"m","max_tokens":1000,"stream":true,"messages":[]}`
	for _, c := range []struct {
		name, path, stream string
		by                 string
		want               job.Usage
	}{
		{"provider, after the start", "/v1/messages", start + text, "provider", job.Usage{InputTokens: 100, OutputTokens: 50}},
		{"run, after the start", "/v1/messages", start + text, "run", job.Usage{InputTokens: 100, OutputTokens: 50}},
		{"end of the run, after the start", "/v1/messages", start + text, "session", job.Usage{InputTokens: 100, OutputTokens: 50}},
		{"before any text", "/v1/messages", start, "run", job.Usage{InputTokens: 100, OutputTokens: 1}},
		{"chat says nothing before its end", "/v1/chat/completions", chunks, "run", job.Usage{InputTokens: int64(len(body)+3) / 4, OutputTokens: 50}},
	} {
		t.Run(c.name, func(t *testing.T) {
			gone := make(chan struct{})
			r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
				says(events, c.stream)(w, req)
				_ = http.NewResponseController(w).Flush()
				if c.by == "provider" {
					panic(http.ErrAbortHandler)
				}
				<-req.Context().Done() // the gateway hangs up
				close(gone)
			}, nil)
			req, _ := http.NewRequest("POST", r.endpoint.URL+c.path, strings.NewReader(body))
			req.Header.Set("X-Api-Key", r.session.Key())
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			res, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(c.stream))
			if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != c.stream {
				t.Fatalf("before the cut the run got %q (%v)", got, err)
			}
			switch c.by {
			case "session":
				r.session.Close()
				fallthrough
			case "provider":
				if _, err := res.Body.Read(got); err == nil || err == io.EOF {
					t.Errorf("a stream that is cut ends with %v, want an error", err)
				}
				res.Body.Close()
			case "run":
				res.Body.Close()
			}
			if c.by != "provider" {
				<-gone
			}
			r.session.Close() // waits for the bill
			u, estimated, last := r.total()
			u.CostUSD, u.CostKnown = 0, false
			if u != c.want || !estimated || !last {
				t.Errorf("charged %+v (estimated: %v, last: %v), want %+v", u, estimated, last, c.want)
			}
			if n, _ := r.spent(); n != c.want.Tokens() {
				t.Errorf("the job has spent %d, want %d", n, c.want.Tokens())
			}
		})
	}
}

// TestCloseWakes: the end of a run waits neither for one that sends no body nor for one that reads no answer.
func TestCloseWakes(t *testing.T) {
	streaming := make(chan struct{})
	flood := func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", events)
		for i := 0; ; i++ {
			if _, err := io.WriteString(w, strings.Repeat(": nothing\n", 1000)+"\n"); err != nil {
				return
			}
			if i == 0 {
				close(streaming)
			}
		}
	}
	r := newRig(t, flood, nil)
	var w io.WriteCloser
	var body io.Reader
	body, w = io.Pipe()
	defer w.Close()
	slow, _ := http.NewRequest("POST", r.endpoint.URL+"/v1/responses", body)
	deaf, _ := http.NewRequest("POST", r.endpoint.URL+"/v1/responses", strings.NewReader(`{"model":"m","stream":true}`))
	slow.Header.Set("X-Api-Key", r.session.Key())
	deaf.Header.Set("X-Api-Key", r.session.Key())
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	ended := make(chan error, 1)
	go func() {
		res, err := transport.RoundTrip(slow)
		if err == nil {
			res.Body.Close()
		}
		ended <- err
	}()
	if _, err := io.WriteString(w, `{"model":`); err != nil { // it is being read
		t.Fatal(err)
	}
	res, err := transport.RoundTrip(deaf) // and never read from
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	<-streaming
	r.session.Close()
	if u, _, _ := r.total(); u.InputTokens == 0 {
		t.Error("the stream that nobody read was not charged")
	}
	w.Close()
	<-ended
}

// TestTooManyRequests: a run cannot fill the core with requests that wait.
func TestTooManyRequests(t *testing.T) {
	r := newRig(t, says(plainJSON, ok), nil)
	r.session.open = maxWaiting
	if got := r.post("/v1/responses", `{"model":"m"}`); got.status != 503 || got.header.Get("X-Should-Retry") != "true" {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	r.session.open = 0
	if got := r.post("/v1/responses", `{"model":"m"}`); got.status != 200 || r.session.open != 0 {
		t.Errorf("answered %d %s, %d open", got.status, got.body, r.session.open)
	}
}

func TestLimitsOfABody(t *testing.T) {
	r := newRig(t, says(plainJSON, ok), func(c *Config, _ *RunConfig) { c.MaxBody = 1000 })
	if got := r.post("/v1/messages", `{"model":"m","max_tokens":5,"x":"`+strings.Repeat("y", 1000)+`"}`); got.status != 413 || !strings.Contains(got.body, "request_too_large") {
		t.Errorf("a large body: %d %s", got.status, got.body)
	}
	req, _ := http.NewRequest("POST", r.endpoint.URL+"/v1/messages", io.MultiReader(strings.NewReader(strings.Repeat(" ", 1001)))) // chunked
	req.Header.Set("X-Api-Key", r.session.Key())
	res, err := http.DefaultTransport.(*http.Transport).Clone().RoundTrip(req)
	if err != nil || res.StatusCode != 413 {
		t.Fatalf("a large body in chunks: %v %v", res, err)
	}
	res.Body.Close()
	if got := r.post("/v1/messages", "{}", "Content-Encoding", "zstd"); got.status != 415 {
		t.Errorf("a compressed body: %d %s", got.status, got.body)
	}
	if len(r.seen) > 0 {
		t.Errorf("the provider was asked: %+v", r.seen)
	}
}

// TestStreamIsNotBuffered: each event reaches the run before the provider sends the next.
func TestStreamIsNotBuffered(t *testing.T) {
	next := make(chan struct{})
	r := newRig(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", events)
		for i := range 20 {
			_, _ = io.WriteString(w, event(strconv.Itoa(i)))
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	}, nil)
	req, _ := http.NewRequest("POST", r.endpoint.URL+"/v1/responses", strings.NewReader(`{"model":"m","stream":true}`))
	req.Header.Set("X-Api-Key", r.session.Key())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for i := range 20 {
		for lines.Scan() && lines.Text() != "data: "+strconv.Itoa(i) {
		}
		next <- struct{}{}
	}
	if lines.Scan(); lines.Err() != nil {
		t.Fatal(lines.Err())
	}
}

func TestModels(t *testing.T) {
	r := newRig(t, says(plainJSON, ok), func(c *Config, run *RunConfig) { run.Models = []string{"m", "gpt-*", "*/kimi"} })
	for model, status := range map[string]int{"m": 200, "gpt-5": 200, "gpt-": 200, "moon/kimi": 200, "claude-haiku": 404, "xgpt-5": 404, "kimi": 404, "m2": 404} {
		if got := r.post("/v1/messages", `{"model":"`+model+`","max_tokens":5}`); got.status != status {
			t.Errorf("model %s: %d %s, want %d", model, got.status, got.body, status)
		}
	}
	got := r.post("/v1/messages", `{"model":"claude-haiku","max_tokens":5}`)
	if !strings.Contains(got.body, `"type":"not_found_error"`) || !strings.Contains(got.body, "it may use m, gpt-*") || got.header.Get("X-Should-Retry") != "false" {
		t.Errorf("a refusal of the Messages API: %v %s", got.header, got.body)
	}
	got = r.post("/v1/responses", `{"model":"claude-haiku"}`)
	if !strings.Contains(got.body, `"code":"model_not_found"`) {
		t.Errorf("a refusal of the Responses API: %s", got.body)
	}
}

func TestOpen(t *testing.T) {
	g, err := New(Config{Providers: []Provider{{Name: "p", APIs: []API{Chat}, BaseURL: "http://127.0.0.1:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	run := ampleRun(t)
	unknown := run
	unknown.Providers = []string{"q"}
	if _, err := g.Open(unknown); err == nil || !strings.Contains(err.Error(), `"q"`) {
		t.Errorf("a provider that is not configured: %v", err)
	}
	g.Close()
	if _, err := g.Open(run); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestConfigMistakes(t *testing.T) {
	for want, p := range map[string]Provider{
		"name: ":        {APIs: []API{Chat}, BaseURL: "http://x"},
		"apis: must":    {Name: "p", BaseURL: "http://x"},
		`"soap"`:        {Name: "p", APIs: []API{"soap"}, BaseURL: "http://x"},
		"ftp://x":       {Name: "p", APIs: []API{Chat}, BaseURL: "ftp://x"},
		"u:p@x":         {Name: "p", APIs: []API{Chat}, BaseURL: "http://u:p@x"},
		"x?a=b":         {Name: "p", APIs: []API{Chat}, BaseURL: "http://x?a=b"},
		"has 2 sources": {Name: "p", APIs: []API{Chat}, BaseURL: "http://x", Keys: []credential.Key{{Value: "k", File: "f"}}},
		"has 0 sources": {Name: "p", APIs: []API{Chat}, BaseURL: "http://x", Keys: []credential.Key{{}}},
		"use a file":    {Name: "p", APIs: []API{Chat}, BaseURL: "http://x", Keys: []credential.Key{{Command: []string{"pass"}}}},
		`"sso"`:         {Name: "p", APIs: []API{Chat}, BaseURL: "http://x", Keys: []credential.Key{{Login: &credential.Login{Kind: "sso"}}}},
		"must be named": {Name: "p", APIs: []API{Chat}, BaseURL: "http://x", Keys: []credential.Key{{Login: &credential.Login{Kind: credential.CodexLogin}}}},
	} {
		if _, err := New(Config{Providers: []Provider{p}}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "providers[0]") {
			t.Errorf("%+v: %v, want a mistake with %q", p, err, want)
		}
	}
}

// TestCutAnswer: of an answer that is no stream and breaks, the run gets as much as there was, so that its program
// sees a provider that failed and not one that is out of reach.
func TestCutAnswer(t *testing.T) {
	const half = `{"id":"resp_1","output":[`
	r := newRig(t, func(w http.ResponseWriter, req *http.Request) {
		says("application/json", half)(w, req)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, nil)
	req, _ := http.NewRequest("POST", r.endpoint.URL+"/v1/responses", strings.NewReader(`{"model":"m","max_output_tokens":100}`))
	req.Header.Set("Authorization", "Bearer "+r.session.Key())
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); res.StatusCode != 200 || string(got) != half || err == nil {
		t.Errorf("status %d, %q, %v; want what the provider said, and an error", res.StatusCode, got, err)
	}
}
