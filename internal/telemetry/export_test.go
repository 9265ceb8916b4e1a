package telemetry

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestComplains: a collector that stays away is complained of once a minute, with all
// that was lost in between.
func TestComplains(t *testing.T) {
	var log strings.Builder
	now := time.Unix(0, 0)
	x := &exporter{
		endpoint: "http://collector", client: &http.Client{Transport: answers(func(*http.Request) (*http.Response, error) { return nil, errors.New("no collector") })},
		log: zerolog.New(&log), redact: strings.ToUpper, now: func() time.Time { return now }, failed: newCounter("x", ""),
	}
	for range 13 { // one each ten seconds
		x.send(t.Context(), make([][]byte, 5))
		now = now.Add(10 * time.Second)
	}
	if n := strings.Count(log.String(), "\n"); n != 3 || !strings.Contains(log.String(), "NO COLLECTOR") || !strings.Contains(log.String(), `"spans":30`) {
		t.Errorf("%d lines:\n%s", n, &log)
	}
	if n := x.failed.series[""]; n != 65 {
		t.Errorf("%v spans failed, want 65", n)
	}
}

// answers is an http.RoundTripper.
type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// TestBusyCollector: a collector that is busy is asked again when it says, the one
// that accepts a part has the rest counted, and a refusal is final.
func TestBusyCollector(t *testing.T) {
	partial, err := proto.Marshal(&coltrace.ExportTraceServiceResponse{PartialSuccess: &coltrace.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "too old"}})
	if err != nil {
		t.Fatal(err)
	}
	answer := func(status int, header, body string) *http.Response {
		h := http.Header{"Retry-After": {header}, "Content-Type": {"application/x-protobuf"}}
		return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: h, Body: io.NopCloser(strings.NewReader(body))}
	}
	for name, c := range map[string]struct {
		list   []*http.Response
		took   time.Duration
		failed float64
	}{
		"busy, then accepts":    {[]*http.Response{answer(503, "", ""), answer(429, "4", ""), answer(200, "", "")}, 5 * time.Second, 0},
		"busy for too long":     {[]*http.Response{answer(429, "100", "")}, exportTimeout, 5},
		"accepts a part":        {[]*http.Response{answer(200, "", string(partial))}, 0, 2},
		"refuses":               {[]*http.Response{answer(400, "", "bad")}, 0, 5},
		"answers with nonsense": {[]*http.Response{answer(200, "", "\xff\xff")}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				x := &exporter{endpoint: "http://collector", redact: strings.ToUpper, now: time.Now, failed: newCounter("x", "")}
				x.client = &http.Client{Transport: answers(func(*http.Request) (*http.Response, error) {
					next := c.list[0]
					c.list = c.list[1:]
					return next, nil
				})}
				x.send(t.Context(), make([][]byte, 5))
				if took, failed := time.Since(begin), x.failed.series[""]; took != c.took || failed != c.failed || len(c.list) > 0 {
					t.Errorf("%v spans failed after %v with %d answers left, want %v after %v", failed, took, len(c.list), c.failed, c.took)
				}
			})
		})
	}
}

func TestFirstWord(t *testing.T) {
	for text, want := range map[string]string{
		"go test ./...": "go", "/usr/bin/git push": "git", "  make": "make", "A=b make": unknownCommand, "$(cat key)": unknownCommand,
		"": unknownCommand, "\"my program\" x": unknownCommand, "npm\trun": unknownCommand, "./gradlew test": "gradlew",
	} {
		if got := firstWord(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
