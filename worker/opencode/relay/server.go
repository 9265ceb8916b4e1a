package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"time"
)

const (
	passwordVariable = "OPENCODE_SERVER_PASSWORD"
	user             = "opencode"

	maxAnswer = 32 << 20 // bytes of an answer, or of an event; the Runner reads longer lines
	maxBanner = 64 << 10 // bytes that a server prints before it listens

	// answerTime is for an answer. None of them waits for a model.
	answerTime = time.Minute
)

// server is the relay's child.
type server struct {
	url      string
	password string
}

// client goes to the server alone: by no proxy, and wherever an answer leads.
var client = http.Client{
	Transport:     &http.Transport{},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func (s *server) request(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	q, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	q.SetBasicAuth(user, s.password)
	if len(body) > 0 {
		q.Header.Set("Content-Type", "application/json")
	}
	return client.Do(q)
}

// open returns the server's events from now on.
func (s *server) open(ctx context.Context) (io.ReadCloser, error) {
	a, err := s.request(ctx, http.MethodGet, "/event", nil)
	if err != nil {
		return nil, fmt.Errorf("listen to the server: %w", err)
	}
	if a.StatusCode != http.StatusOK {
		a.Body.Close()
		return nil, fmt.Errorf("listen to the server: %s", a.Status)
	}
	return a.Body, nil
}

// ask makes a request, and returns the answer's status and body as JSON.
func (s *server) ask(ctx context.Context, method, path string, body []byte) (int, json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if len(path) == 0 || path[0] != '/' {
		return 0, nil, errors.New("the path does not begin with a slash")
	}
	a, err := s.request(ctx, method, path, body)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	data, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, err
	case len(data) > maxAnswer:
		return 0, nil, fmt.Errorf("an answer of more than %d bytes", maxAnswer)
	case len(data) == 0:
		return a.StatusCode, nil, nil
	case !json.Valid(data):
		data, err = json.Marshal(string(data))
	}
	return a.StatusCode, data, err
}

// listening is what the server prints when it listens. It has been told where it has to.
var listening = regexp.MustCompile(`(?m)listening on (http://127\.0\.0\.1:[0-9]{1,5})\s`)

// banner takes the output of a server, in which it says where it listens, and passes it on.
type banner struct {
	to   *os.File
	seen []byte // until it was said
	url  chan string
	said bool
}

func newBanner(to *os.File) *banner { return &banner{to: to, url: make(chan string, 1)} }

// Write looks for the url.
func (b *banner) Write(p []byte) (int, error) {
	if !b.said {
		b.seen = append(b.seen, p[:min(len(p), maxBanner-len(b.seen))]...)
		if m := listening.FindSubmatch(b.seen); m != nil {
			b.url <- string(m[1])
			b.said, b.seen = true, nil
		}
	}
	return b.to.Write(p)
}
