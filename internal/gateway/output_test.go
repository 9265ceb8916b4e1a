package gateway

import (
	"strings"
	"testing"

	"github.com/agentsched/agentsched/internal/gateway/credential"
	"github.com/agentsched/agentsched/job"
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
		{"thinking needs more than what is left", "/v1/messages", `{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens":20000}}`, 10_000, nil,
			`{"model":"m","max_tokens":20001,"thinking":{"type":"enabled","budget_tokens":20000}}`},
		{"both limits are lowered", "/v1/chat/completions", `{"model":"m","max_tokens":50000,"max_completion_tokens":40000}`, 10_000, nil,
			`{"model":"m","max_tokens":9984,"max_completion_tokens":9984}`},
		{"never below what makes sense", "/v1/responses", `{"model":"m"}`, 50, nil, `{"model":"m","max_output_tokens":1024}`},
		{"a picture is more than its bytes", "/v1/messages", `{"model":"m","max_tokens":9000,"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}]}`, 10_000, nil,
			`{"model":"m","max_tokens":8721,"messages":[{"content":[{"type":"image","source":{"type":"base64","data":"AA=="}}]}]}`},
		{"a bound of the model", "/v1/responses", `{"model":"m"}`, 10_000, func(c *Config) { c.Models = map[string]Model{"m": {MaxOutput: 5000}} }, `{"model":"m"}`},
		{"a subscription of ChatGPT", "/v1/responses", `{"model":"m"}`, 10_000, func(c *Config) {
			l := newLoginRig(t, credential.CodexLogin)
			c.Providers[0].Keys = []credential.Key{{Login: &credential.Login{Kind: credential.CodexLogin, File: l.path}}}
		}, `{"model":"m"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, says(plainJSON, ok), func(g *Config, _ *RunConfig) {
				g.Ledger.Grant("run", Amount{c.tokens, Unlimited})
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
	cents := func(usd float64) func(*Config) {
		return func(c *Config) { c.Ledger.Grant("tenant", Amount{Tokens: Unlimited, Micros: Dollars(usd)}) }
	}
	for _, c := range []struct {
		name, path string
		change     func(*Config)
		status     int
		parts      []string
		exceeded   Account
	}{
		{"used up, OpenAI", "/v1/responses", cents(0), 402, []string{`"code":"budget_exceeded"`, "the budget of tenant is used up: 0.0000 of 0.0000 US dollars"}, "tenant"},
		{"used up, Anthropic", "/v1/messages", func(c *Config) { c.Ledger.Grant("run", Amount{}) }, 402, []string{`"type":"billing_error"`, `"type":"error"`, "0 of 0 tokens"}, "run"},
		{"no price", "/v1/messages", func(c *Config) { cents(5)(c); c.Prices = nil }, 400, []string{`"type":"invalid_request_error"`, "has no price", "prices: {"}, ""},
		{"not granted any more", "/v1/messages", func(c *Config) { c.Ledger.Drop("all") }, 402, []string{"account all: no budget was granted"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var config *Config
			r := newRig(t, says(plainJSON, ok), func(g *Config, _ *RunConfig) {
				if c.name == "no price" {
					c.change(g)
				}
				config = g
			})
			c.change(config)
			got := r.post(c.path, `{"model":"m","max_tokens":5}`)
			for _, p := range c.parts {
				if !strings.Contains(got.body, p) {
					t.Errorf("%s does not say %s", got.body, p)
				}
			}
			if got.status != c.status || len(r.seen) > 0 || got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("answered %d, %d requests were sent; want %d and none", got.status, len(r.seen), c.status)
			}
			if (len(r.over) > 0) != (c.exceeded != "") || len(r.over) > 0 && r.over[0].Account != c.exceeded {
				t.Errorf("exceeded: %v, want %q", r.over, c.exceeded)
			}
		})
	}
}

// TestMoney: a budget in US dollars is kept with the price of the model, that of its cache included.
func TestMoney(t *testing.T) {
	write := 1.25
	usage := `{"usage":{"input_tokens":1000,"cache_creation_input_tokens":4000,"output_tokens":500}}`
	r := newRig(t, says(plainJSON, usage), func(c *Config, _ *RunConfig) {
		c.Prices = map[string]job.Price{"m": {Input: 1, CacheWrite: &write, Output: 5}}
		c.Ledger.Grant("run", Amount{Tokens: Unlimited, Micros: Dollars(0.0170)})
	})
	for range 2 { // 1000 + 4000 · 1.25 + 500 · 5 = 8,500 micro-dollars each
		if got := r.post("/v1/messages", `{"model":"m","max_tokens":500}`); got.status != 200 {
			t.Fatalf("answered %d %s", got.status, got.body)
		}
	}
	if spent := r.gateway.Ledger().Spent("run"); spent != (Amount{Tokens: 11_000, Micros: 17_000}) {
		t.Errorf("spent %v", spent)
	}
	if got := r.post("/v1/messages", `{"model":"m","max_tokens":500}`); got.status != 402 {
		t.Errorf("answered %d %s", got.status, got.body)
	}
	u, _, _ := r.total()
	if d := u.CostUSD - 0.017; d > 1e-9 || d < -1e-9 || !u.CostKnown {
		t.Errorf("charged %+v", u)
	}
}
