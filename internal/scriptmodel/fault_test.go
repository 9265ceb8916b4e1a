package scriptmodel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/testrun"
)

func TestStatus(t *testing.T) {
	s := start(t, Options{})
	s.Handle("limited", Always(Status(429, 1500*time.Millisecond)))
	for api, path := range paths() {
		for model, want := range map[string]struct {
			code       int
			retryAfter string
		}{
			"scripted-401": {401, ""}, "limited": {429, "2"}, "scripted-500": {500, ""},
		} {
			resp := post(t, s, path, request(t, api+"-start.json", model, true))
			if resp.code != want.code || resp.header.Get("Retry-After") != want.retryAfter {
				t.Errorf("%s %s: got %d, retry-after %q", api, model, resp.code, resp.header.Get("Retry-After"))
			}
			if !json.Valid([]byte(resp.body)) {
				t.Errorf("%s %s: body %q is not JSON", api, model, resp.body)
			}
		}
	}
}

func TestBrokenStreamIsCut(t *testing.T) {
	s := start(t, Options{})
	for api, path := range paths() {
		for _, stream := range []bool{true, false} {
			resp := post(t, s, path, request(t, api+"-start.json", "scripted-broken", stream))
			if resp.code != http.StatusOK || !errors.Is(resp.err, io.ErrUnexpectedEOF) {
				t.Errorf("%s stream %t: got %d, body ends with %v", api, stream, resp.code, resp.err)
			}
			if resp.body == "" || strings.HasSuffix(resp.body, "\n\n") || json.Valid([]byte(resp.body)) {
				t.Errorf("%s stream %t: not cut in the middle: %q", api, stream, resp.body)
			}
		}
	}
}

// TestHangEnds covers both ways out of a hang: the client leaves, or the server closes.
func TestHangEnds(t *testing.T) {
	asked := make(chan struct{}, 2)
	s, err := New(Options{Trace: func(string, http.Header, []byte) { asked <- struct{}{} }})
	if err != nil {
		t.Fatal(err)
	}
	hang := func(ctx context.Context) error {
		body := strings.NewReader(request(t, "chat-start.json", "scripted-hang", true))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+"/v1/chat/completions", body)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err == nil {
			_ = resp.Body.Close()
			return errors.New("was answered")
		}
		return err
	}
	ctx, leave := context.WithCancel(t.Context())
	left, cut := make(chan error, 1), make(chan error, 1)
	go func() { left <- hang(ctx) }()
	go func() { cut <- hang(context.WithoutCancel(ctx)) }()
	<-asked
	<-asked

	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the client that left got %v", err)
	}
	select {
	case err := <-cut:
		t.Fatalf("the other hang ended too: %v", err)
	default:
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-cut; err == nil || strings.Contains(err.Error(), "answered") {
		t.Errorf("the client of a closed server got %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestSlow lets a stream go on piece by piece, and reads each before the next is allowed.
func TestSlow(t *testing.T) {
	step := make(chan struct{})
	s := start(t, Options{Pause: func(ctx context.Context, d time.Duration) error {
		if d != time.Minute {
			t.Errorf("pause of %s", d)
		}
		select {
		case <-step:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}})
	s.Handle("slow", Play(Slow("abcdef", 3, time.Minute)))
	for api, path := range paths() {
		t.Run(api, func(t *testing.T) {
			ctx, cancel := testrun.Context(t, t.Context(), testrun.Patience, errors.New("nothing more comes"))
			defer cancel()
			body := strings.NewReader(request(t, api+"-start.json", "slow", true))
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL()+path, body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			lines := bufio.NewScanner(resp.Body)
			for i, piece := range []string{`"ab"`, `"cd"`, `"ef"`} {
				if i > 0 {
					select {
					case step <- struct{}{}:
					case <-ctx.Done():
						t.Fatalf("nobody pauses before %s", piece)
					}
				}
				for {
					if !lines.Scan() {
						t.Fatalf("the stream ended before %s: %v", piece, lines.Err())
					}
					if strings.Contains(lines.Text(), piece) {
						break
					}
				}
			}
			for lines.Scan() {
			}
			if err := lines.Err(); err != nil {
				t.Errorf("the stream was cut: %v", err)
			}
		})
	}
}

// TestCloseCutsSlow closes while a stream pauses for ever: the pause learns why, and Close waits until it has ended.
func TestCloseCutsSlow(t *testing.T) {
	paused, returned := make(chan struct{}), make(chan struct{})
	s, err := New(Options{Pause: func(ctx context.Context, _ time.Duration) error {
		close(paused)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), errClosed) {
			t.Errorf("cause is %v", context.Cause(ctx))
		}
		linger := time.NewTimer(20 * time.Millisecond)
		defer linger.Stop()
		select {
		case <-returned:
			t.Error("Close did not wait")
		case <-linger.C:
		}
		return context.Cause(ctx)
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.Handle("slow", Play(Slow("abcdef", 3, time.Minute)))
	result := make(chan answered, 1)
	go func() { result <- post(t, s, "/v1/messages", request(t, "messages-start.json", "slow", true)) }()
	<-paused
	err = s.Close()
	close(returned)
	if err != nil {
		t.Error(err)
	}
	if got := <-result; got.err == nil {
		t.Errorf("the stream ended as if it were whole: %q", got.body)
	}
}
