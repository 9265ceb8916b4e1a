package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// TestOutputLimit: a request is given the output that its budget can pay.
func TestOutputLimit(t *testing.T) {
	for _, c := range []struct {
		name, path, body string
		tokens           int64 // of the run's budget
		change           func(*Config)
		want             string
	}{
		{"ample: as it is", "/v1/responses", `{"model":"m"}`, 1_000_000, nil, `{"model":"m"}`},
		{"Responses", "/v1/responses", `{"model":"m"}`, 10_000, nil, `{"model":"m","max_output_tokens":9891}`},
		{"chat completions", "/v1/chat/completions", `{"model":"m"}`, 10_000, nil, `{"model":"m","max_tokens":9891}`},
		{"chat completions, as the provider names it", "/v1/chat/completions", `{"model":"m"}`, 10_000,
			func(c *Config) { c.Providers[0].OutputField = "max_completion_tokens" }, `{"model":"m","max_completion_tokens":9891}`},
		{"several answers share it", "/v1/chat/completions", `{"model":"m","n":4}`, 10_000, nil, `{"model":"m","n":4,"max_tokens":2471}`},
		{"the provider takes no limit", "/v1/responses", `{"model":"m"}`, 10_000, func(c *Config) { c.Providers[0].NoOutputLimit = true }, `{"model":"m"}`},
		{"its own limit fits", "/v1/messages", `{"model":"m","max_tokens":9000}`, 10_000, nil, `{"model":"m","max_tokens":9000}`},
		{"its own limit fits not even alone", "/v1/messages", `{"model":"m","max_tokens":32000}`, 10_000, nil, `{"model":"m","max_tokens":9992}`},
		{"thinking is less than what is left", "/v1/messages", `{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":9000}}`, 10_000, nil,
			`{"model":"m","max_tokens":9979,"thinking":{"type":"enabled","budget_tokens":9000}}`},
		{"both limits are lowered", "/v1/chat/completions", `{"model":"m","max_tokens":50000,"max_completion_tokens":40000}`, 10_000, nil,
			`{"model":"m","max_tokens":9984,"max_completion_tokens":9984}`},
		{"the least that makes sense", "/v1/responses", `{"model":"m"}`, 1028, nil, `{"model":"m","max_output_tokens":1024}`},
		{"a picture is more than its bytes", "/v1/messages", `{"model":"m","max_tokens":9000,"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}]}`, 10_000, nil,
			`{"model":"m","max_tokens":8735,"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}]}`},
		{"a bound of the model", "/v1/responses", `{"model":"m"}`, 10_000, func(c *Config) { c.Models = map[string]Model{"m": {MaxOutput: 5000}} }, `{"model":"m"}`},
		{"a subscription of ChatGPT", "/v1/responses", `{"model":"m"}`, 10_000, func(c *Config) {
			l := newLoginRig(t, credential.CodexLogin)
			c.Providers[0].Keys = []credential.Key{{Login: &credential.Login{Kind: credential.CodexLogin, File: l.path}}}
		}, `{"model":"m"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, says(plainJSON, ok), func(g *Config, run *RunConfig) {
				_, run.Permit = granted(t, job.Limits{MaxTokens: c.tokens})
				if c.change != nil {
					c.change(g)
				}
			})
			if got := r.post(c.path, c.body); got.status != 200 || r.upstream().body != c.want {
				t.Errorf("%d %s; sent %s, want %s", got.status, got.body, r.upstream().body, c.want)
			}
		})
	}
}

// TestBudgetRefusals: what is refused for its cost, in the shape of each API, and who is told.
func TestBudgetRefusals(t *testing.T) {
	const plain = `{"model":"m","max_tokens":5}`
	for _, c := range []struct {
		name, path, body string
		limits           job.Limits
		window, spent    float64 // US dollars of the tenant's
		status           int
		parts            []string
		exceeded         permit.Limit
	}{
		{"used up, OpenAI", "/v1/responses", plain, ample, 1, 1, 402,
			[]string{`"code":"budget_exceeded"`, "the budget of tenant acme is used up: 1.0000 of 1.0000 US dollars within 1h0m0s; the run is stopped"}, permit.LimitWindow},
		{"too little, Anthropic", "/v1/messages", plain, job.Limits{MaxTokens: 10}, 1, 0, 402,
			[]string{`"type":"billing_error"`, `"type":"error"`, "needs about 12 tokens: 0 of 10 tokens are used"}, permit.LimitTokens},
		{"too little for an answer", "/v1/responses", `{"model":"m"}`, job.Limits{MaxTokens: 1027}, 1, 0, 402, []string{"needs about 1028 tokens"}, permit.LimitTokens},
		{"too little for thinking", "/v1/messages", `{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":20000}}`, job.Limits{MaxTokens: 10_000}, 1, 0, 402,
			[]string{"needs about 20022 tokens"}, permit.LimitTokens},
		{"too little money", "/v1/responses", `{"model":"m"}`, job.Limits{MaxCostUSD: 0.004}, 1, 0, 402, []string{"needs about 0.0041 US dollars: 0.0000 of 0.0040 US dollars are used"}, permit.LimitCost},
		{"no price", "/v1/messages", `{"model":"n"}`, job.Limits{MaxCostUSD: 5}, 1, 0, 400, []string{`"type":"invalid_request_error"`, "has no price", "prices: {"}, ""},
		{"no price, where the tenant's money is limited", "/v1/messages", `{"model":"n"}`, ample, 1, 0, 200, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, says(plainJSON, ok), func(_ *Config, run *RunConfig) {
				_, run.Permit = granted(t, c.limits, permit.CostWindow{Tenant: "acme", Window: time.Hour, MaxUSD: c.window})
				run.Permit.Charge(job.Usage{CostUSD: c.spent})
			})
			got := r.post(c.path, c.body)
			for _, p := range c.parts {
				if !strings.Contains(got.body, p) {
					t.Errorf("%s does not say %s", got.body, p)
				}
			}
			if got.status != c.status || (len(r.seen) > 0) != (c.status == 200) || c.status != 200 && got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("answered %d, %d requests were sent; want %d", got.status, len(r.seen), c.status)
			}
			if (len(r.over) > 0) != (c.exceeded != "") || len(r.over) > 0 && r.over[0].Limit != c.exceeded {
				t.Errorf("exceeded: %v, want %q", r.over, c.exceeded)
			}
		})
	}
}

// TestRunEnded: a request that comes after the run has ended is not sent.
func TestRunEnded(t *testing.T) {
	r := newRig(t, says(plainJSON, ok), nil)
	r.permit.Settle(job.Usage{}, true)
	if got := r.post("/v1/responses", `{"model":"m"}`); got.status != 402 || len(r.seen) > 0 {
		t.Errorf("answered %d %s, %d requests were sent", got.status, got.body, len(r.seen))
	}
}

// TestLastInput: the input of a request is expected to be what earlier answers let expect, so that the last one fits.
func TestLastInput(t *testing.T) {
	pad := strings.Repeat("x", 4000)
	r := newRig(t, says(plainJSON, `{"usage":{"input_tokens":2030,"output_tokens":10}}`), func(_ *Config, run *RunConfig) {
		_, run.Permit = granted(t, job.Limits{MaxTokens: 5540})
	})
	body := `{"model":"m","max_tokens":2000,"messages":["` + pad + `"]}`
	want := func(status int, sent string) {
		t.Helper()
		if got := r.post("/v1/messages", body); got.status != status || !strings.Contains(r.upstream().body, sent) {
			t.Fatalf("answered %d, sent %.40s; want %d, %s", got.status, r.upstream().body, status, sent)
		}
	}
	want(200, `"max_tokens":2000`) // a quarter of its bytes is expected
	want(200, `"max_tokens":1470`) // of the 3,500 that are left, 2,030 are for its input
	want(402, "")
}

// TestMoney: a budget in US dollars is kept with the price of the model, that of its cache included.
func TestMoney(t *testing.T) {
	write := 1.25
	usage := `{"usage":{"input_tokens":1000,"cache_creation_input_tokens":4000,"output_tokens":500}}`
	r := newRig(t, says(plainJSON, usage), func(c *Config, run *RunConfig) {
		c.Prices = map[string]job.Price{"m": {Input: 1, CacheWrite: &write, Output: 5}}
		_, run.Permit = granted(t, job.Limits{MaxCostUSD: 0.0170})
	})
	for range 2 { // 1000 + 4000 · 1.25 + 500 · 5 = 8,500 micro-dollars each
		if got := r.post("/v1/messages", `{"model":"m","max_tokens":500}`); got.status != 200 {
			t.Fatalf("answered %d %s", got.status, got.body)
		}
	}
	if got := r.post("/v1/messages", `{"model":"m","max_tokens":500}`); got.status != 402 {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	u, _, _ := r.total()
	if d := u.CostUSD - 0.017; d > 1e-9 || d < -1e-9 || !u.CostKnown {
		t.Errorf("charged %+v", u)
	}
}

// TestHourOfCache: what is written to a cache for an hour costs twice the input, in a stream and at once.
func TestHourOfCache(t *testing.T) {
	write := 1.25
	const usage = `"usage":{"input_tokens":1000,"cache_creation_input_tokens":4000,"cache_creation":{"ephemeral_5m_input_tokens":1000,"ephemeral_1h_input_tokens":3000},"output_tokens":%s}`
	whole := "{" + strings.ReplaceAll(usage, "%s", "500") + "}"
	stream := event(`{"message":{`+strings.ReplaceAll(usage, "%s", "1")+`}}`) + event(`{"usage":{"output_tokens":500}}`)
	for kind, answer := range map[string]string{plainJSON: whole, events: stream} {
		r := newRig(t, says(kind, answer), func(c *Config, _ *RunConfig) {
			c.Prices = map[string]job.Price{"m": {Input: 1, CacheWrite: &write, Output: 5}}
		})
		r.post("/v1/messages", `{"model":"m","max_tokens":500}`)
		// 1000 + 1000 · 1.25 + 3000 · 2 + 500 · 5 micro-dollars
		if u, _, _ := r.total(); !near(job.Usage{CostUSD: u.CostUSD}, job.Usage{CostUSD: 0.010_750}) {
			t.Errorf("%s: charged %+v", kind, u)
		}
	}
}
