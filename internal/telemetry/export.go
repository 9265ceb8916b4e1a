package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

const (
	// complainEvery is how often at most it is logged that traces cannot be sent.
	complainEvery = time.Minute
	// exportTimeout is how long the collector may take for one batch, with retries.
	exportTimeout = 10 * time.Second
	// firstWait and longestWait are between two tries.
	firstWait, longestWait = time.Second, 5 * time.Second
	// maxAnswer is how much is read of what a collector answers, in bytes.
	maxAnswer = 64 << 10
)

// exporter sends spans to a collector, by OTLP over HTTP. It counts what cannot be
// sent, and seldom complains. One goroutine uses it.
type exporter struct {
	endpoint, version string
	headers           map[string]string
	client            *http.Client
	log               zerolog.Logger
	redact            func(string) string
	now               func() time.Time
	failed            *counter

	last time.Time // when it complained
	lost int64     // spans, since then
}

// send sends encoded spans. Nobody could do more about an error than it does.
func (x *exporter) send(ctx context.Context, spans [][]byte) {
	if len(spans) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	lost, err := x.post(ctx, encodeRequest(x.version, spans))
	if err == nil {
		return
	}
	if lost == 0 {
		lost = int64(len(spans))
	}
	x.failed.add(float64(lost))
	x.lost += lost
	if now := x.now(); x.last.IsZero() || now.Sub(x.last) >= complainEvery {
		x.log.Warn().Str("error", x.redact(err.Error())).Int64("spans", x.lost).Msg("traces cannot be sent to the collector; they are dropped")
		x.last, x.lost = now, 0
	}
}

// post sends a request, again as long as the collector says that it is busy. An error
// may come with how many spans were rejected; 0 is all.
func (x *exporter) post(ctx context.Context, body []byte) (rejected int64, err error) {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		busy, rejected, err := x.try(ctx, body)
		if busy < 0 || err == nil {
			return rejected, err
		}
		again := time.NewTimer(max(busy, wait))
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return 0, err
		}
	}
}

// try sends a request once. Where it may be sent again, busy is how long the
// collector wants to be left alone, else it is below 0.
func (x *exporter) try(ctx context.Context, body []byte) (busy time.Duration, rejected int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.endpoint, bytes.NewReader(body))
	if err != nil {
		return -1, 0, err
	}
	for name, value := range x.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "agentsched/"+x.version)
	resp, err := x.client.Do(req)
	if err != nil {
		return -1, 0, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return -1, 0, fmt.Errorf("read the answer of %s: %w", x.endpoint, err)
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
			busy = time.Duration(min(seconds, 3600)) * time.Second
		}
		return busy, 0, fmt.Errorf("%s answers %s: %s", x.endpoint, resp.Status, strings.TrimSpace(string(answer)))
	}
	if resp.StatusCode/100 != 2 {
		return -1, 0, fmt.Errorf("%s answers %s: %s", x.endpoint, resp.Status, strings.TrimSpace(string(answer)))
	}
	if resp.Header.Get("Content-Type") == "application/x-protobuf" {
		if rejected, why := decodeRejected(answer); rejected > 0 {
			return -1, rejected, fmt.Errorf("%s rejects %d spans: %s", x.endpoint, rejected, why)
		}
	}
	return -1, 0, nil
}
