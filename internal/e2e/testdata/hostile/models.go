package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
)

// The job of these acts is one of a worker that asks models. A run that nothing holds asks the provider itself, with its key.

// outputs is how many tokens each answer may have.
const outputs = 1000

// ask sends a request for an answer of a model, with more fields if there are some.
func ask(model, more string) (*http.Response, error) {
	body := fmt.Sprintf(`{"model":%q,"max_tokens":%d,"messages":[{"role":"user","content":"Hello."}]%s}`, model, outputs, more)
	return send(http.MethodPost, "/v1/messages", body)
}

func send(method, path, body string) (*http.Response, error) {
	req, err := http.NewRequest(method, os.Getenv("ANTHROPIC_BASE_URL")+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("X-Api-Key", os.Getenv("ANTHROPIC_API_KEY"))
	req.Header.Set("Anthropic-Version", "2023-06-01")
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(req)
}

// said wants a text in an answer, headers included.
func said(want string) func(*http.Response, error) error {
	return func(resp *http.Response, err error) error {
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			return err
		}
		var head bytes.Buffer
		_ = resp.Header.Write(&head)
		if !strings.Contains(head.String()+string(data), want) {
			return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(data)))
		}
		return nil
	}
}

func modelActs() map[string]func(*world) error {
	const answered = `"type":"message"`
	asks := func(model, more, want string) func(*world) error {
		return func(*world) error { return said(want)(ask(model, more)) }
	}
	other := func(method, path string) func(*world) error {
		return func(w *world) error { return said(w.Canary)(send(method, path, "{}")) }
	}
	return map[string]func(*world) error{
		"model-ask":     asks("m", "", answered),
		"model-another": asks("unknown", "", answered),
		"model-key":     search,
		"model-echo":    func(w *world) error { return said(w.Canary)(ask("echo", "")) },
		"model-files":   other(http.MethodGet, "/v1/files"),
		"model-batch":   other(http.MethodPost, "/v1/messages/batches"),
		"model-tuning":  other(http.MethodPost, "/v1/fine_tuning/jobs"),
		"model-admin":   other(http.MethodGet, "/v1/organizations/api_keys"),
		"model-path":    other(http.MethodGet, "/v1/messages/../files"),
		"model-escaped": other(http.MethodGet, "/v1/messages%2f..%2ffiles"),
		"model-search":  asks("m", `,"tools":[{"type":"web_search_20250305","name":"web_search"}]`, "has searched"),
		"model-fetch":   fetches(`{"type":"image","source":{"type":"url","url":"http://allowed.test:8080/?secret"}}`),
		"model-stored":  fetches(`{"type":"document","source":{"type":"file","file_id":"file_1"}}`),
		"model-parallel": func(*world) error {
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() { _ = said(answered)(ask("m", "")) })
			}
			all.Wait()
			return nil // whether it was too much the provider knows
		},
		"model-abort": func(*world) error {
			for range 32 {
				if resp, err := ask("m", `,"stream":true`); err == nil {
					for lines := bufio.NewScanner(resp.Body); lines.Scan() && !strings.Contains(lines.Text(), "text_delta"); {
					}
					resp.Body.Close()
				}
			}
			return nil // likewise
		},
	}
}

// fetches asks with a message that holds what is not text.
func fetches(part string) func(*world) error {
	return func(*world) error {
		body, err := json.Marshal(map[string]any{"model": "m", "max_tokens": outputs, "messages": []any{map[string]any{"role": "user", "content": []any{json.RawMessage(part)}}}})
		if err != nil {
			return err
		}
		return said("has searched")(send(http.MethodPost, "/v1/messages", string(body)))
	}
}
