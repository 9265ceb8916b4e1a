package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

// metered is a provider that takes its time, and answers with a usage within what the request can cost, but for a few that
// say more. The accounts are looked at whenever a request begins.
type metered struct {
	ledger *Ledger
	price  job.Price
	beyond map[*account]Amount // what responses said beyond what they had reserved; guarded by ledger.mu
	bad    []string            // guarded by ledger.mu

	mu   sync.Mutex
	plan []plannedAnswer // by turns
	next int
	said map[Account]int64 // tokens
}

// plannedAnswer is what the provider does with one request, drawn by rapid.
type plannedAnswer struct {
	input, output float64 // shares of the worst case
	more          int64   // tokens of output beyond it
	takes         time.Duration
	how           string // "events", "whole", "error", "cut"
}

func (p *metered) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	all, err := members(body, nil)
	if err != nil {
		return nil, err
	}
	most := int64(3000) // the model's own
	if n := find(all, "max_tokens"); n != nil {
		if most, err = strconv.ParseInt(string(n), 10, 64); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	plan := p.plan[p.next%len(p.plan)]
	p.next++
	p.mu.Unlock()
	accounts := strings.Split(r.Header.Get("X-App"), ",")
	time.Sleep(plan.takes)
	in := int64(plan.input * float64(len(body)))
	out := int64(plan.output*float64(most)) + plan.more
	header := http.Header{"Content-Type": {plainJSON}}
	switch plan.how {
	case "error":
		return &http.Response{StatusCode: 500, Header: header, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	case "cut":
		// What passes is charged by estimate: its text is within the limit, as a provider's would be.
		header.Set("Content-Type", events)
		text := event(fmt.Sprintf(`{"message":{"usage":{"input_tokens":%d,"output_tokens":0}}}`, in)) + event(`{"delta":{"text":"`+strings.Repeat("word", int(min(out, most)))+`"}}`)
		return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(io.MultiReader(strings.NewReader(text), broken{}))}, nil
	}
	usage := fmt.Sprintf(`{"usage":{"input_tokens":%d,"output_tokens":%d}}`, in, out)
	if plan.how == "events" {
		header.Set("Content-Type", events)
		usage = event(usage)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range accounts {
		p.said[Account(a)] += in + out
	}
	return &http.Response{StatusCode: 200, Header: header, Body: io.NopCloser(strings.NewReader(usage))}, nil
}

// look checks the accounts of a request that begins: none is used up, and what is spent and promised is within the limit.
func (p *metered) look(accounts []*account) {
	for _, acc := range accounts {
		if acc.spent.Tokens >= acc.limit.Tokens || acc.spent.Micros >= acc.limit.Micros {
			p.bad = append(p.bad, fmt.Sprintf("a request began although %v of %v are spent", acc.spent, acc.limit))
		}
		if !acc.reserved.plus(acc.spent).within(acc.limit.plus(p.beyond[acc])) {
			p.bad = append(p.bad, fmt.Sprintf("%v are spent and %v promised of %v", acc.spent, acc.reserved, acc.limit))
		}
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// TestBudget has 1,000 runs and more, sixteen at once, with budgets at whose edges they work: of a run, of its tenant and of all,
// in tokens and in money. Nothing begins in an account that is used up, what is spent and promised is within the limit, and what is
// spent beyond it is what responses said more than they had reserved.
func TestBudget(t *testing.T) {
	var runs, refusals, alone atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			price := job.Price{Input: float64(rapid.IntRange(0, 5).Draw(rt, "price of input")), Output: float64(rapid.IntRange(1, 20).Draw(rt, "price of output"))}
			p := &metered{ledger: NewLedger(), price: price, beyond: map[*account]Amount{}, said: map[Account]int64{}}
			liars := rapid.Bool().Draw(rt, "some responses say more than they may")
			p.ledger.observe = func(r *reservation, ended bool, spent Amount) {
				if !ended {
					p.look(r.accounts)
					return
				}
				for i, acc := range r.accounts {
					over := Amount{max(spent.Tokens-r.held[i].Tokens, 0), max(spent.Micros-r.held[i].Micros, 0)}
					p.beyond[acc] = p.beyond[acc].plus(over)
					if over != (Amount{}) && !liars && !r.alone {
						p.bad = append(p.bad, fmt.Sprintf("%v was reserved beside others, %v spent", r.held[i], spent))
					}
				}
			}
			for range rapid.IntRange(1, 12).Draw(rt, "answers") {
				a := plannedAnswer{
					input: rapid.Float64Range(0, 1).Draw(rt, "input"), output: rapid.Float64Range(0, 1).Draw(rt, "output"),
					takes: time.Duration(rapid.IntRange(0, 100).Draw(rt, "ms")) * time.Millisecond,
					how:   rapid.SampledFrom([]string{"events", "whole", "whole", "error", "cut"}).Draw(rt, "how"),
				}
				if liars && a.how != "cut" {
					a.more = rapid.Int64Range(0, 500).Draw(rt, "more")
				}
				p.plan = append(p.plan, a)
			}
			g, err := New(Config{Ledger: p.ledger, Transport: p, Prices: map[string]job.Price{"m": price}, Models: map[string]Model{"m": {MaxOutput: 3000, Context: 100_000}},
				Providers: []Provider{{Name: "p", APIs: []API{Messages}, BaseURL: "http://p.example"}}})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			amount := func(least, most int64) Amount {
				a := Amount{rapid.Int64Range(least, most).Draw(rt, "tokens"), Unlimited}
				if rapid.Bool().Draw(rt, "limited money") {
					a.Micros = int64(price.Output) * rapid.Int64Range(least, most).Draw(rt, "micro-dollars")
				}
				return a
			}
			limits := map[Account]Amount{"all": amount(5_000, 60_000), "t0": amount(3_000, 30_000), "t1": amount(3_000, 30_000)}
			type planned struct {
				accounts []Account
				bodies   []string
			}
			var plans []planned
			for i := range 16 {
				run := planned{accounts: []Account{Account(fmt.Sprint("r", i)), Account(fmt.Sprint("t", i%2)), "all"}}
				limits[run.accounts[0]] = amount(0, 8_000)
				for range rapid.IntRange(1, 6).Draw(rt, "requests") {
					limit := ""
					if n := rapid.IntRange(-300, 1500).Draw(rt, "max_tokens"); n > 0 {
						limit = fmt.Sprintf(`"max_tokens":%d,`, n)
					}
					run.bodies = append(run.bodies, fmt.Sprintf(`{"model":"m",%s"stream":true,"messages":[%q]}`, limit, strings.Repeat("x", rapid.IntRange(0, 1000).Draw(rt, "size"))))
				}
				plans = append(plans, run)
			}
			for a, limit := range limits {
				p.ledger.Grant(a, limit)
			}
			var all sync.WaitGroup
			for _, plan := range plans {
				s, err := g.Open(RunConfig{Accounts: plan.accounts, Exceeded: func(*BudgetError) { refusals.Add(1) }})
				if err != nil {
					t.Fatal(err)
				}
				runs.Add(1)
				var names []string
				for _, a := range plan.accounts {
					names = append(names, string(a))
				}
				var requests sync.WaitGroup
				for _, body := range plan.bodies {
					requests.Go(func() { // of one run, too, several at once
						defer func() { _ = recover() }() // a cut answer ends the handler
						w := httptest.NewRecorder()
						r := httptest.NewRequest("POST", "/v1/messages", strings.NewReader(body))
						r.Header.Set("X-Api-Key", s.Key())
						r.Header.Set("X-App", strings.Join(names, ",")) // tells the provider whose it is
						s.ServeHTTP(w, r)
					})
				}
				all.Go(func() {
					requests.Wait()
					s.Close()
				})
			}
			all.Wait()
			for _, b := range p.bad {
				t.Error(b)
			}
			for a, limit := range limits {
				acc := p.ledger.accounts[a]
				if acc.reserved != (Amount{}) || acc.running != 0 || acc.alone != nil {
					t.Errorf("%s: %v stays reserved", a, acc.reserved)
				}
				if over := acc.spent.minus(limit); over != (Amount{}) {
					alone.Add(1)
					if !over.within(p.beyond[acc]) {
						t.Errorf("%s: spent %v of %v, and responses said %v more than they had reserved", a, acc.spent, limit, p.beyond[acc])
					}
				}
				if acc.spent.Tokens < p.said[a] {
					t.Errorf("%s: booked %v, the provider said %d tokens", a, acc.spent, p.said[a])
				}
			}
		})
	})
	t.Logf("%d runs, %d requests refused for lack of budget, %d accounts beyond their limit by what ran alone or said more", runs.Load(), refusals.Load(), alone.Load())
	if runs.Load() < 1000 || refusals.Load() == 0 {
		t.Errorf("%d runs and %d refusals prove nothing", runs.Load(), refusals.Load())
	}
}
