package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

const realKey = "sk-real-0123456789abcdef"

// rig is a provider, a gateway before it, and the endpoint of one run, all on loopback.
type rig struct {
	t        testing.TB
	gateway  *Gateway
	gate     *permit.Gate
	permit   *permit.Permit
	session  *Session
	provider *httptest.Server
	endpoint *httptest.Server

	mu      sync.Mutex
	seen    []seen // by the provider
	charges []Charge
	denied  []string
	over    []*permit.Stop
	limited []Limited
}

type seen struct {
	path   string
	header http.Header
	body   string
}

var ample = job.Limits{MaxTokens: 1_000_000_000}

// granted returns the permit of a run, in use, and its gate.
func granted(t testing.TB, l job.Limits, windows ...permit.CostWindow) (*permit.Gate, *permit.Permit) {
	t.Helper()
	gate := permit.NewGate(permit.Limits{MaxConcurrent: 1000, TTL: time.Hour, CostWindows: windows})
	return gate, begin(t, gate, permit.Request{Job: "job", Attempt: 1, Tenant: "acme", Limits: l})
}

// begin returns a permit that is in use.
func begin(t testing.TB, gate *permit.Gate, r permit.Request) *permit.Permit {
	t.Helper()
	p, err := gate.Request(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = gate.Use(p.ID, r.Job, r.Attempt); err != nil {
		t.Fatal(err)
	}
	return p
}

// ampleRun is what a run may do that is granted more than it needs.
func ampleRun(t testing.TB) RunConfig {
	_, p := granted(t, ample)
	return RunConfig{Permit: p}
}

// spent ends the run and returns what its job has spent, of ample, and its tenant.
func (r *rig) spent() (tokens int64, usd float64) {
	r.t.Helper()
	r.permit.Settle(job.Usage{}, true)
	next := begin(r.t, r.gate, permit.Request{Job: r.permit.Job, Attempt: 2, Limits: ample})
	defer next.Settle(job.Usage{}, true)
	return ample.MaxTokens - next.Tokens, r.gate.Windows()[0].SpentUSD()
}

// newRig starts all of it. The provider answers as handler does.
func newRig(t testing.TB, handler http.HandlerFunc, change func(*Config, *RunConfig)) *rig {
	t.Helper()
	r := &rig{t: t}
	r.provider = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.seen = append(r.seen, seen{req.URL.RequestURI(), req.Header.Clone(), string(body)})
		r.mu.Unlock()
		handler(w, req)
	}))
	c := Config{
		Providers: []Provider{{Name: "test", APIs: []API{Responses, Chat, Messages}, BaseURL: r.provider.URL + "/v1", Keys: []credential.Key{{Value: realKey}}}},
		Prices:    map[string]job.Price{"m": {Input: 1, Output: 4}},
	}
	run := RunConfig{
		Charge:   func(c Charge) { r.mu.Lock(); r.charges = append(r.charges, c); r.mu.Unlock() },
		Denied:   func(w string) { r.mu.Lock(); r.denied = append(r.denied, w); r.mu.Unlock() },
		Exceeded: func(e *permit.Stop) { r.mu.Lock(); r.over = append(r.over, e); r.mu.Unlock() },
		Limited:  func(l Limited) { r.mu.Lock(); r.limited = append(r.limited, l); r.mu.Unlock() },
	}
	r.gate, run.Permit = granted(t, ample, permit.CostWindow{Tenant: "acme", Window: time.Hour, MaxUSD: 1e6})
	if change != nil {
		change(&c, &run)
	}
	r.permit = run.Permit
	var err error
	if r.gateway, err = New(c); err != nil {
		t.Fatal(err)
	}
	if r.session, err = r.gateway.Open(run); err != nil {
		t.Fatal(err)
	}
	r.endpoint = httptest.NewServer(r.session)
	t.Cleanup(func() {
		r.gateway.Close()
		r.endpoint.Close()
		r.provider.CloseClientConnections()
		r.provider.Close()
	})
	return r
}

// reply is what a run was answered.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // of reading the body
}

// post asks as the run does.
func (r *rig) post(path, body string, header ...string) reply {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, header...)
}

func (r *rig) do(method, path, body string, header ...string) reply {
	r.t.Helper()
	req, err := http.NewRequest(method, r.endpoint.URL+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.session.Key())
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(text), err}
}

// total is what was charged.
func (r *rig) total() (u job.Usage, estimated, last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.charges {
		u = u.Add(c.Usage)
		estimated, last = estimated || c.Estimated, last || c.Last
	}
	return u, estimated, last
}

func (r *rig) upstream() seen {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seen) == 0 {
		r.t.Fatal("the provider was not asked")
	}
	return r.seen[len(r.seen)-1]
}

// says answers with this body.
func says(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = io.WriteString(w, body)
	}
}

const (
	events    = "text/event-stream; charset=utf-8"
	plainJSON = "application/json"
)

// event is one of an SSE stream.
func event(data string) string { return "event: x\ndata: " + data + "\n\n" }
