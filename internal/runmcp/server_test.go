package runmcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// idle is a scheduler whose jobs never end.
type idle struct{ Scheduler }

func (idle) Wait(ctx context.Context, _ []string, _ bool, _ time.Duration, _ func(string)) (Jobs, error) {
	<-ctx.Done()
	return Jobs{}, ctx.Err()
}

// TestBounds: a run makes its server hold so many requests and no larger ones, and one that it gives up ends.
func TestBounds(t *testing.T) {
	s := httptest.NewServer(New(Config{Key: "k", Version: "1", Scheduler: idle{}, Wait: time.Hour}))
	defer s.Close()
	ask := func(ctx context.Context, body string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+Path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer k")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		a, err := s.Client().Do(r)
		if err != nil {
			return 0, err
		}
		return a.StatusCode, a.Body.Close()
	}
	if status, err := ask(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); status != http.StatusOK {
		t.Errorf("tools/list: %d, %v", status, err)
	}
	large := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"note","arguments":{"key":"k","text":"` + strings.Repeat("x", maxRequest) + `"}}}`
	if status, err := ask(t.Context(), large); status == http.StatusOK || err != nil {
		t.Errorf("a request of %d bytes: %d, %v", len(large), status, err)
	}
	if status, err := ask(t.Context(), " \n["+strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"tools/list"},`, 3)+`{"jsonrpc":"2.0","id":2,"method":"ping"}]`); status != http.StatusBadRequest || err != nil {
		t.Errorf("a list of messages: %d, %v", status, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxAtOnce)
	for range maxAtOnce {
		go func() {
			_, err := ask(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait_jobs","arguments":{}}}`)
			ended <- err
		}()
	}
	for status := http.StatusOK; status != http.StatusTooManyRequests; { // as soon as all of them are there
		var err error
		if status, err = ask(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	for range maxAtOnce {
		<-ended
	}
	for status := http.StatusTooManyRequests; status != http.StatusOK; { // as soon as they have ended there
		var err error
		if status, err = ask(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClean(t *testing.T) {
	for text, want := range map[string]string{
		"plain\n\ttext": "plain\n\ttext", "a\x1b[31mb\x00c\r": "a[31mbc", "left\u202eright": "leftright", "bad\xffbyte": "bad\uFFFDbyte", "ümläut": "ümläut",
		"hid\U000e0068\U000e0069\u2060den": "hidden", "\U0001f468\u200d\U0001f4bb": "\U0001f468\u200d\U0001f4bb",
	} {
		if got := Clean(text); got != want {
			t.Errorf("Clean(%q) = %q, want %q", text, got, want)
		}
	}
	if got := oneLine(strings.Repeat("ü", maxLine)); len(got) > maxLine+len("…") || !strings.HasSuffix(got, "ü…") {
		t.Errorf("a long line ends so: %q", got[len(got)-10:])
	}
}
