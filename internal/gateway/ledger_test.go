package gateway

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
)

// rigid asks for n tokens, no fewer.
func rigid(n int64) demand { return demand{input: n, estimate: n} }

// tryReserve reserves, or returns nil if the request would have to wait.
func tryReserve(t *testing.T, l *Ledger, a demand, accounts ...Account) (*reservation, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // virtual: it comes as soon as all others wait
	defer cancel()
	r, err := l.reserve(ctx, accounts, a)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return r, err
}

func begins(t *testing.T, l *Ledger, a demand, accounts ...Account) *reservation {
	t.Helper()
	r, err := tryReserve(t, l, a, accounts...)
	if r == nil || err != nil {
		t.Fatalf("the request does not begin: %v", err)
	}
	return r
}

func waits(t *testing.T, l *Ledger, a demand, accounts ...Account) {
	t.Helper()
	if r, err := tryReserve(t, l, a, accounts...); r != nil || err != nil {
		t.Fatalf("the request does not wait: %+v, %v", r, err)
	}
}

func refused(t *testing.T, l *Ledger, a demand, by Account, accounts ...Account) {
	t.Helper()
	_, err := tryReserve(t, l, a, accounts...)
	var over *BudgetError
	if !errors.As(err, &over) || over.Account != by {
		t.Fatalf("error %v, want a *BudgetError of %s", err, by)
	}
}

func TestLedger(t *testing.T) {
	cases := map[string]func(t *testing.T, l *Ledger){
		"beside each other while all fits": func(t *testing.T, l *Ledger) {
			begins(t, l, rigid(40), "run", "all")
			begins(t, l, rigid(60), "run", "all")
			waits(t, l, rigid(1), "run", "all")
		},
		"what is settled for less makes room": func(t *testing.T, l *Ledger) {
			first := begins(t, l, rigid(90), "run", "all")
			waits(t, l, rigid(50), "run", "all")
			first.settle(Amount{Tokens: 10})
			begins(t, l, rigid(50), "run", "all")
		},
		"what fits never runs alone": func(t *testing.T, l *Ledger) {
			first := begins(t, l, rigid(1), "run", "all")
			waits(t, l, rigid(101), "run", "all")
			first.settle(Amount{})
			big := begins(t, l, rigid(101), "run", "all")
			waits(t, l, rigid(1), "run", "all")
			big.settle(Amount{Tokens: 99})
			begins(t, l, rigid(1), "run", "all")
		},
		"alone in its run, beside others of the tenant": func(t *testing.T, l *Ledger) {
			l.Grant("other", Amount{100, Unlimited})
			begins(t, l, rigid(101), "run", "all")
			begins(t, l, rigid(50), "other", "all")
			waits(t, l, rigid(1), "run", "all")
		},
		"nothing begins beyond the limit": func(t *testing.T, l *Ledger) {
			begins(t, l, rigid(100), "run", "all").settle(Amount{Tokens: 100})
			refused(t, l, rigid(1), "run", "run", "all")
		},
		"money is a limit of its own": func(t *testing.T, l *Ledger) {
			l.Grant("run", Amount{Tokens: Unlimited, Micros: 50})
			a := rigid(10)
			a.price = &job.Price{Input: 3}
			begins(t, l, a, "run", "all").settle(Amount{Tokens: 10, Micros: 50})
			refused(t, l, a, "run", "run", "all")
		},
		"more is granted": func(t *testing.T, l *Ledger) {
			begins(t, l, rigid(100), "run", "all").settle(Amount{Tokens: 100})
			l.Grant("run", Amount{150, Unlimited})
			begins(t, l, rigid(50), "run", "all")
		},
		"more is granted while one runs alone, whose cost is not reserved": func(t *testing.T, l *Ledger) {
			big := begins(t, l, rigid(500), "run", "all")
			l.Grant("run", Amount{700, Unlimited})
			waits(t, l, rigid(1), "run", "all")
			big.settle(Amount{Tokens: 500})
			begins(t, l, rigid(200), "run", "all")
		},
		"less is granted": func(t *testing.T, l *Ledger) {
			begins(t, l, rigid(50), "run", "all").settle(Amount{Tokens: 50})
			l.Grant("run", Amount{30, Unlimited})
			refused(t, l, rigid(1), "run", "run", "all")
		},
		"an account that nobody granted": func(t *testing.T, l *Ledger) {
			if _, err := tryReserve(t, l, rigid(1), "run", "nobody"); !errors.Is(err, ErrNoAccount) {
				t.Fatalf("error %v, want ErrNoAccount", err)
			}
		},
		"dropped and granted anew while a request is under way": func(t *testing.T, l *Ledger) {
			r := begins(t, l, rigid(90), "run", "all")
			l.Drop("run")
			l.Grant("run", Amount{100, Unlimited})
			r.settle(Amount{Tokens: 70})
			if got := [...]int64{l.Spent("run").Tokens, l.Spent("all").Tokens}; got != [...]int64{0, 70} {
				t.Fatalf("spent %v, want 0 of the new account and 70 of the other", got)
			}
			begins(t, l, rigid(100), "run", "all")
		},
		"what is settled twice counts once": func(t *testing.T, l *Ledger) {
			r := begins(t, l, rigid(90), "run", "all")
			r.settle(Amount{Tokens: 10})
			r.settle(Amount{Tokens: 10})
			if n := l.Spent("run").Tokens; n != 10 {
				t.Fatalf("spent %d, want 10", n)
			}
		},
		"a request without a limit is given what is left": func(t *testing.T, l *Ledger) {
			r := begins(t, l, demand{input: 40, estimate: 10, output: 1000, least: 20, floor: 20}, "run", "all")
			if r.output != 60 || r.alone {
				t.Fatalf("output %d (alone: %v), want 60 beside others", r.output, r.alone)
			}
		},
		"alone in its run, its output is limited by what is left beside others": func(t *testing.T, l *Ledger) {
			l.Grant("other", Amount{700, Unlimited})
			begins(t, l, rigid(600), "other", "all")
			r := begins(t, l, demand{input: 390, estimate: 60, output: 1000, least: 5, floor: 5}, "run", "all")
			if r.output != 10 || !r.alone || l.accounts["all"].alone != nil {
				t.Fatalf("output %d (alone: %v), want 10, alone in the run only", r.output, r.alone)
			}
		},
		"alone, its output is limited by the probable input": func(t *testing.T, l *Ledger) {
			r := begins(t, l, demand{input: 400, estimate: 70, output: 1000, least: 1000, floor: 20}, "run", "all")
			if r.output != 30 || !r.alone {
				t.Fatalf("output %d (alone: %v), want 30, alone", r.output, r.alone)
			}
		},
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLedger()
				l.Grant("run", Amount{100, Unlimited})
				l.Grant("all", Amount{1000, Unlimited})
				f(t, l)
			})
		})
	}
}

// TestLedgerOrder: small requests do not starve a large one that came before them.
func TestLedgerOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger()
		l.Grant("all", Amount{100, Unlimited})
		first := begins(t, l, rigid(60), "all")
		order := make(chan string, 2)
		go func() {
			r, _ := l.reserve(t.Context(), []Account{"all"}, rigid(90))
			order <- "large"
			r.settle(Amount{})
		}()
		synctest.Wait()
		go func() {
			r, _ := l.reserve(t.Context(), []Account{"all"}, rigid(20)) // it would fit
			order <- "small"
			r.settle(Amount{})
		}()
		synctest.Wait()
		if len(order) != 0 {
			t.Fatalf("%s began before the first had ended", <-order)
		}
		first.settle(Amount{})
		if a, b := <-order, <-order; a != "large" || b != "small" {
			t.Fatalf("began: %s, %s", a, b)
		}
	})
}

// TestLedgerCancelled: a request that stops waiting keeps nobody from going on, and nothing stays reserved.
func TestLedgerCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLedger()
		l.Grant("all", Amount{100, Unlimited})
		first := begins(t, l, rigid(60), "all")
		waits(t, l, rigid(90), "all") // and gives up
		begins(t, l, rigid(40), "all").settle(Amount{})
		first.settle(Amount{})
		begins(t, l, rigid(100), "all")
	})
}

// TestLedgerProperty: in any history of requests, nothing begins in a used-up account, and what is spent and reserved stays
// within the limit but for what settled for more than it had reserved.
func TestLedgerProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := NewLedger()
		accounts := []Account{"all", "t1", "t2", "r1", "r2", "r3"}
		for _, a := range accounts {
			l.Grant(a, Amount{rapid.Int64Range(0, 2000).Draw(t, "tokens"), rapid.Int64Range(0, 4000).Draw(t, "micros")})
		}
		over := map[Account]int64{} // tokens beyond what was reserved
		price := &job.Price{Input: 1, Output: 3}
		var open []*waiter
		var running []*reservation
		of := map[*reservation][]Account{}
		collect := func() {
			kept := open[:0]
			for _, w := range open {
				select {
				case got := <-w.answer:
					if got.reservation != nil {
						running = append(running, got.reservation)
						of[got.reservation] = w.accounts
					}
				default:
					kept = append(kept, w)
				}
			}
			open = kept
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "ask") || len(running) == 0 {
				run := rapid.IntRange(3, 5).Draw(t, "run")
				out := rapid.Int64Range(0, 600).Draw(t, "output")
				least := rapid.Int64Range(0, out).Draw(t, "least")
				in := rapid.Int64Range(1, 800).Draw(t, "input")
				w := &waiter{accounts: []Account{accounts[run], accounts[1+run%2], "all"}, answer: make(chan answer, 1),
					demand: demand{input: in, estimate: in / 4, output: out, least: least, floor: least / 2, price: price}}
				l.mu.Lock()
				l.queue = append(l.queue, w)
				l.advance()
				l.mu.Unlock()
				open = append(open, w)
			} else {
				i := rapid.IntRange(0, len(running)-1).Draw(t, "which")
				r := running[i]
				running = append(running[:i], running[i+1:]...)
				spent := Amount{rapid.Int64Range(0, 1500).Draw(t, "spent"), 0}
				for j, a := range of[r] {
					over[a] += max(spent.Tokens-r.held[j].Tokens, 0)
				}
				r.settle(spent)
			}
			collect()
			for name, acc := range l.accounts {
				if sum := acc.spent.Tokens + acc.reserved.Tokens - over[name]; sum > acc.limit.Tokens {
					t.Fatalf("%s: %d spent, %d reserved, %d beyond reservations, of %d", name, acc.spent.Tokens, acc.reserved.Tokens, over[name], acc.limit.Tokens)
				}
				if acc.reserved.Micros > acc.limit.Micros {
					t.Fatalf("%s: %d micro-dollars reserved of %d", name, acc.reserved.Micros, acc.limit.Micros)
				}
				if acc.alone != nil && acc.running != 1 {
					t.Fatalf("%s: %d run beside one that runs alone", name, acc.running)
				}
			}
			if len(open) > 0 && len(running) == 0 {
				t.Fatalf("%d requests wait for nothing", len(open))
			}
		}
		for len(running) > 0 {
			running[0].settle(Amount{Tokens: 1})
			running = running[1:]
			collect()
		}
		if len(open) > 0 || len(l.queue) > 0 {
			t.Fatalf("%d requests wait for ever", len(open))
		}
		for name, acc := range l.accounts {
			if acc.reserved != (Amount{}) || acc.running != 0 {
				t.Fatalf("%s: %v reserved of %d requests that have ended", name, acc.reserved, acc.running)
			}
		}
	})
}

func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := demand{output: rapid.Int64Range(0, 1e6).Draw(t, "output"), price: &job.Price{
			Input: rapid.Float64Range(0, 100).Draw(t, "in"), Output: rapid.Float64Range(0.001, 100).Draw(t, "out")}}
		in := rapid.Int64Range(0, 1e6).Draw(t, "input")
		left := Amount{rapid.Int64Range(0, 2e6).Draw(t, "tokens"), rapid.Int64Range(0, 1e8).Draw(t, "micros")}
		o := a.fit(in, left)
		if o > a.output || o >= 0 && !a.cost(in, o).within(left) {
			t.Fatalf("%d tokens of output cost %v, left are %v", o, a.cost(in, o), left)
		}
		if o >= 0 && o+2 < a.output && a.cost(in, o+2).within(left) {
			t.Fatalf("%d tokens of output are too few: two more cost %v, left are %v", o, a.cost(in, o+2), left)
		}
	})
}

func ExampleLedger() {
	l := NewLedger()
	l.Grant("run/fix/1", Amount{Tokens: 100_000, Micros: Dollars(0.5)})
	fmt.Println(l.Spent("run/fix/1"))
	// Output: 0 tokens and 0.000000 US dollars
}
