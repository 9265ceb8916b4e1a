package scriptmodel

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// paths are where each API is asked.
func paths() map[string]string {
	return map[string]string{
		"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages?beta=true",
	}
}

// TestGolden compares what each API answers, byte by byte, with testdata/golden (rewritten by -update).
func TestGolden(t *testing.T) {
	s := start(t, Options{})
	s.Handle("said", Play(Turn{Text: "Hello, wörld", Chunks: 3}.Costing(Usage{Input: 1000, Cached: 400, Output: 7})))
	for api, path := range paths() {
		for _, model := range []string{"scripted-edit", "said", "scripted-429", "scripted-json", "scripted-malformed"} {
			for _, stream := range []bool{true, false} {
				name := api + "-" + model + map[bool]string{true: "-stream", false: "-whole"}[stream]
				t.Run(name, func(t *testing.T) {
					resp := post(t, s, path, request(t, api+"-start.json", model, stream))
					got := resp.status + " " + resp.header.Get("Content-Type") + "\n\n" + resp.body
					checkGolden(t, name+".txt", got)
				})
			}
		}
	}
}

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "golden", name)
	if updating() {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs\n got: %s\nwant: %s", name, got, want)
	}
}

// start runs a server whose clock stands still.
func start(t *testing.T, o Options) *Server {
	t.Helper()
	o.Now = func() time.Time { return time.Unix(1_700_000_000, 0) }
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// request is a recorded request with another model, streamed or not.
func request(t *testing.T, file, model string, stream bool) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", "requests", file))
	if err != nil {
		t.Fatal(err)
	}
	body = bytes.Replace(body, []byte(`"scripted-edit"`), []byte(`"`+model+`"`), 1)
	if !stream {
		body = bytes.Replace(body, []byte(`"stream": true`), []byte(`"stream": false`), 1)
	}
	return string(body)
}

type answered struct {
	status string
	code   int
	header http.Header
	body   string
	err    error // of reading the body
}

// post asks as a CLI would. It may be called from any goroutine.
func post(t *testing.T, s *Server, path, body string) answered {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return answered{err: err}
	}
	req.Header.Set("Authorization", "Bearer key")
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return answered{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return answered{status: resp.Status, code: resp.StatusCode, header: resp.Header, body: string(b), err: err}
}
