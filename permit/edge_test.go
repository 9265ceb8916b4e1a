package permit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/gateway"
	"github.com/agentsched/agentsched/internal/testrun"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// TestRunsAtTheEdge has runs ask a provider through the gateway, sixteen runs at once and several requests of each, with
// limits of the job, of two tenants and of all at whose edges they work, in tokens and in money. Jobs are tried again. The
// provider streams, answers at once, fails, breaks off, wants to be left alone; runs leave in the middle. At every
// instant nothing begins in a budget that is used up, and what is spent and reserved is within every limit but for what
// responses used beyond what they had reserved: nothing at all where the provider does as it is told.
func TestRunsAtTheEdge(t *testing.T) {
	runs := 200
	if testrun.Soaking() {
		runs = 1000
	}
	seed := testrun.Seed(t)
	var all, honest edge
	for n := uint64(0); all.runs+honest.runs < runs; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := newEdge(t, rand.New(rand.NewPCG(seed, n)))
			w.play()
			sum := &all
			if w.audit.Honest {
				sum = &honest
			}
			sum.add(w)
		})
		if t.Failed() {
			t.Fatalf("world %d", n)
		}
	}
	t.Logf("of an honest provider: %s", &honest)
	t.Logf("of one that also says more: %s", &all)
	for _, s := range []*edge{&all, &honest} {
		if s.beside == 0 || s.alone == 0 || s.stopped == 0 || s.retried == 0 {
			t.Error("this proves nothing")
		}
	}
	if all.beyond == 0 {
		t.Error("no response has used more than it had reserved")
	}
}

// edge is a world of runs and a provider, and what became of them.
type edge struct {
	*testing.T
	random *rand.Rand // guarded by mu: draw
	gate   *permit.Gate
	audit  *permit.Auditor
	server *gateway.Gateway
	price  job.Price
	eighth int64 // so many eighths of a byte of a request are a token

	mu   sync.Mutex
	said map[job.ID]int64 // tokens that reached the gateway

	runs, requests, beside, alone, beyond, stopped, retried, kept int
}

func (e *edge) String() string {
	return fmt.Sprintf("%d runs, %d of them further attempts, with %d requests, of which %d began beside others, %d alone, and %d used more than was reserved; %d runs were stopped and %d jobs not begun for lack of budget",
		e.runs, e.retried, e.requests, e.beside, e.alone, e.beyond, e.stopped, e.kept)
}

func (e *edge) add(w *edge) {
	e.runs, e.requests, e.beside, e.alone = e.runs+w.runs, e.requests+w.audit.Begun, e.beside+w.audit.Beside, e.alone+w.audit.Alone
	e.beyond, e.stopped, e.retried, e.kept = e.beyond+w.audit.Beyond, e.stopped+w.stopped, e.retried+w.retried, e.kept+w.kept
}

const (
	atOnce    = 16
	jobsEach  = 1 // of each of those that are done at once
	attempts  = 3
	maxOutput = 3000
)

func newEdge(t *testing.T, random *rand.Rand) *edge {
	e := &edge{T: t, random: random, said: map[job.ID]int64{}, eighth: 1 + random.Int64N(2)}
	e.price = job.Price{Input: float64(random.IntN(5)), Output: float64(1 + random.IntN(20))}
	dollars := func(least, most int64) float64 {
		return e.price.Output * float64(least+random.Int64N(most-least)) / 1e6
	}
	const day = 24 * time.Hour
	windows := []permit.CostWindow{{Window: day, MaxUSD: dollars(3_000, 60_000)}, {Tenant: "t0", Window: day, MaxUSD: dollars(1_000, 30_000)}}
	if random.IntN(2) == 0 {
		windows = append(windows, permit.CostWindow{Tenant: "t1", Window: day, MaxUSD: dollars(1_000, 30_000)})
	}
	e.gate = permit.NewGate(permit.Limits{MaxConcurrent: atOnce, TTL: time.Hour, CostWindows: windows})
	e.audit = permit.Audit(e.gate, random.IntN(2) == 0)
	var err error
	if e.server, err = gateway.New(gateway.Config{
		Transport: e, Prices: map[string]job.Price{"m": e.price}, Models: map[string]gateway.Model{"m": {MaxOutput: maxOutput, Context: 100_000}},
		Providers: []gateway.Provider{{Name: "p", APIs: []gateway.API{gateway.Messages}, BaseURL: "http://p.example"}},
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// draw returns a number below n.
func (e *edge) draw(n int) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.random.IntN(n)
}

func (e *edge) play() {
	defer e.server.Close()
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			for n := range jobsEach {
				e.job(job.ID(fmt.Sprintf("j%d-%d", i, n)), job.Tenant(fmt.Sprint("t", i%2)))
			}
		})
	}
	all.Wait()
	for _, b := range e.audit.Bad {
		e.Error(b)
	}
	for id, said := range e.said {
		if spent, open := e.audit.Spent(id); spent < said || open {
			e.Errorf("job %s: the provider said %d tokens, charged are %d; is something reserved: %v", id, said, spent, open)
		}
	}
}

// job does a job, in several attempts as long as its limits allow.
func (e *edge) job(id job.ID, tenant job.Tenant) {
	limits := job.Limits{MaxAttempts: attempts}
	if e.draw(4) > 0 {
		limits.MaxTokens = int64(200 + e.draw(8_000))
	}
	if e.draw(3) == 0 {
		limits.MaxCostUSD = e.price.Output * float64(200+e.draw(6_000)) / 1e6
	}
	e.audit.Limit(id, limits)
	for attempt := 1; attempt <= attempts; attempt++ {
		p, err := e.gate.Request(e.Context(), permit.Request{Job: id, Tenant: tenant, Attempt: attempt, Limits: limits})
		var refused *permit.Rejection
		if errors.As(err, &refused) {
			e.mu.Lock()
			e.kept++
			e.mu.Unlock()
			return
		}
		if err == nil {
			p, err = e.gate.Use(p.ID, id, attempt)
		}
		if err != nil {
			e.Error(err)
			return
		}
		e.run(p)
	}
}

// run is one attempt. It is stopped when the gateway says that its budget is used up, and sometimes by somebody else.
func (e *edge) run(p *permit.Permit) {
	ctx, stop := context.WithCancel(e.Context())
	defer stop()
	stopped := false
	s, err := e.server.Open(gateway.RunConfig{Permit: p, Exceeded: func(*permit.Stop) { stopped = true; stop() }})
	if err != nil {
		e.Error(err)
		return
	}
	var requests sync.WaitGroup
	for range 1 + e.draw(4) { // so many at once
		requests.Go(func() {
			for range 1 + e.draw(3) {
				e.ask(ctx, s, p.Job)
			}
		})
	}
	if e.draw(10) == 0 {
		time.Sleep(time.Duration(e.draw(200)) * time.Millisecond)
		s.Close() // somebody ends it
	}
	requests.Wait()
	s.Close()
	p.Settle(job.Usage{}, false)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs++
	if stopped {
		e.stopped++
	}
	if p.Attempt > 1 {
		e.retried++
	}
}

// ask sends a request, and sometimes leaves before its answer has come.
func (e *edge) ask(ctx context.Context, s *gateway.Session, id job.ID) {
	defer func() { _ = recover() }() // a cut answer ends the handler
	limit := ""
	if n := e.draw(1800) - 300; n > 0 {
		limit = fmt.Sprintf(`"max_tokens":%d,`, n)
	}
	body := fmt.Sprintf(`{"model":"m",%s"stream":true,"messages":["`, limit) + strings.Repeat("x", e.draw(2000))
	body += strings.Repeat("x", 8-(len(body)+3)%8) + `"]}` // a multiple of 8
	if e.draw(6) == 0 {
		var leave context.CancelFunc
		ctx, leave = context.WithTimeout(ctx, time.Duration(e.draw(150))*time.Millisecond)
		defer leave()
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/messages", strings.NewReader(body))
	r.Header.Set("X-Api-Key", s.Key())
	r.Header.Set("X-App", fmt.Sprintf("%s %d", id, len(body))) // tells the provider whose it is, and how large it was
	s.ServeHTTP(httptest.NewRecorder(), r)
}

var maxTokens = regexp.MustCompile(`"max_tokens":(\d+)`)

// RoundTrip is the provider.
func (e *edge) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	most := maxOutput
	if found := maxTokens.FindSubmatch(body); found != nil {
		if most, err = strconv.Atoi(string(found[1])); err != nil {
			return nil, err
		}
	}
	var id job.ID
	var size int64
	if _, err := fmt.Sscan(r.Header.Get("X-App"), &id, &size); err != nil {
		return nil, err
	}
	in, out := size*e.eighth/8, int64(e.draw(most+1))
	if e.draw(3) == 0 {
		out = int64(most)
	}
	if !e.audit.Honest && e.draw(3) == 0 {
		in, out = in+int64(e.draw(2000)), out+int64(e.draw(1000))
	}
	if err := e.wait(r.Context(), 50); err != nil {
		return nil, err
	}
	answer := func(status int, header http.Header, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: body}, nil
	}
	plain := http.Header{"Content-Type": {"application/json"}}
	switch e.draw(12) {
	case 0:
		return answer(http.StatusInternalServerError, plain, io.NopCloser(strings.NewReader("{}")))
	case 1:
		plain.Set("Retry-After-Ms", "40")
		return answer(http.StatusTooManyRequests, plain, io.NopCloser(strings.NewReader("{}")))
	case 2:
		return nil, errors.New("connection reset")
	case 3, 4:
		e.says(id, in+out)
		return answer(http.StatusOK, plain, io.NopCloser(strings.NewReader(fmt.Sprintf(`{"usage":{"input_tokens":%d,"output_tokens":%d}}`, in, out))))
	}
	events := make(chan string)
	s := &stream{ctx: r.Context(), events: events, breaks: e.draw(5) == 0}
	pieces := int64(1 + e.draw(5))
	go func() {
		defer close(events)
		send := func(event string, tokens int64) bool {
			if e.wait(s.ctx, 30) != nil {
				return false
			}
			select {
			case events <- "data: " + event + "\n\n":
				e.says(id, tokens)
				return true
			case <-s.ctx.Done():
				return false
			}
		}
		if !send(fmt.Sprintf(`{"message":{"usage":{"input_tokens":%d,"output_tokens":0}}}`, in), in) {
			return
		}
		for i := range pieces {
			some := out*(i+1)/pieces - out*i/pieces
			if !send(fmt.Sprintf(`{"delta":{"text":%q},"usage":{"output_tokens":%d}}`, strings.Repeat("word", int(some)), out*(i+1)/pieces), some) {
				return
			}
			if s.breaks && e.draw(3) == 0 {
				return
			}
		}
	}()
	return answer(http.StatusOK, http.Header{"Content-Type": {"text/event-stream"}}, s)
}

// wait takes some time of the provider's.
func (e *edge) wait(ctx context.Context, most int) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Duration(e.draw(most)) * time.Millisecond):
		return nil
	}
}

func (e *edge) says(id job.ID, tokens int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.said[id] += tokens
}

// stream is the body of an answer that comes in pieces.
type stream struct {
	ctx    context.Context
	events <-chan string
	breaks bool
	rest   string
}

func (s *stream) Read(p []byte) (int, error) {
	if s.rest == "" {
		select {
		case event, more := <-s.events:
			switch {
			case more:
				s.rest = event
			case s.breaks:
				return 0, errors.New("connection reset")
			default:
				return 0, io.EOF
			}
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *stream) Close() error { return nil }
