package permit_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

var errEnd = errors.New("end of test")

// rated are limits that only bound rates.
func rated(kind, model permit.Rate) permit.Limits {
	return permit.Limits{
		MaxConcurrent: 1000, TTL: 5 * time.Second,
		KindRates:  map[job.WorkerKind]permit.Rate{"codex": kind},
		ModelRates: map[string]permit.Rate{"acme/large": model},
	}
}

// asker makes requests of one kind, each for a job of its own.
type asker struct {
	g     *permit.Gate
	n     int
	model string
}

func (a *asker) request() permit.Request {
	a.n++
	r := request(job.ID(fmt.Sprint(a.n)), 1, "codex")
	r.Model = a.model
	return r
}

// use asks, uses and settles n times.
func (a *asker) use(t *testing.T, n int) {
	t.Helper()
	for range n {
		run(t, a.g, a.request()).Settle(job.Usage{}, false)
	}
}

// run asks for a permit and uses it.
func run(t *testing.T, g *permit.Gate, r permit.Request) *permit.Permit {
	t.Helper()
	p := mustRequest(t, g, r)
	if _, err := g.Use(p.ID, p.Job, p.Attempt); err != nil {
		t.Fatal(err)
	}
	return p
}

func TestRateHealsWhenItSays(t *testing.T) {
	tests := []struct {
		name        string
		kind, model permit.Rate
		asked       string // the model
		bucket      int    // how many there are at once
		again       time.Duration
	}{
		{"a second", permit.Rate{PerSecond: 4}, permit.Rate{}, "", 4, 250 * time.Millisecond},
		{"a minute", permit.Rate{PerMinute: 30}, permit.Rate{}, "", 30, 2 * time.Second},
		{"the stricter of both", permit.Rate{PerSecond: 2, PerMinute: 120}, permit.Rate{}, "", 2, 500 * time.Millisecond},
		{"a time that is no whole number", permit.Rate{PerSecond: 7}, permit.Rate{}, "", 7, 143 * time.Millisecond},
		{"the model", permit.Rate{PerMinute: 60}, permit.Rate{PerMinute: 6}, "acme/large", 6, 10 * time.Second},
		{"one below the model", permit.Rate{}, permit.Rate{PerMinute: 6}, "acme/large/2", 6, 10 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{g: permit.NewGate(rated(tt.kind, tt.model)), model: tt.asked}
				a.use(t, tt.bucket)
				for range 3 { // a refusal takes nothing, so the next says the same
					if got := wantRejection(t, a.g, a.request(), job.RateLimited).RetryAfter; got != tt.again {
						t.Fatalf("retry after %s, want %s", got, tt.again)
					}
				}
				time.Sleep(tt.again - time.Millisecond)
				wantRejection(t, a.g, a.request(), job.RateLimited)
				time.Sleep(time.Millisecond)
				a.use(t, 1)
				wantRejection(t, a.g, a.request(), job.RateLimited)
			})
		})
	}
}

// TestRateIsOfWhatItNames: others are not held up.
func TestRateIsOfWhatItNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{g: permit.NewGate(rated(permit.Rate{}, permit.Rate{PerMinute: 1})), model: "acme/large"}
		a.use(t, 1)
		wantRejection(t, a.g, a.request(), job.RateLimited)
		for _, other := range []string{"acme", "acme/larger", "large", ""} {
			a.model = other
			a.use(t, 2)
		}
		choice := a.request()
		choice.Choice.Model = "acme/large" // asked for by the job itself
		wantRejection(t, a.g, choice, job.RateLimited)
	})
}

// TestRateByBareName: a model goes by its own name too, and by each name once.
func TestRateByBareName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for asked, counts := range map[string]bool{"large": true, "acme/large": true, "reseller/acme/large": true, "large/2": true, "acme/larger": false, "acme": false, "": false} {
			l := rated(permit.Rate{}, permit.Rate{})
			l.ModelRates = map[string]permit.Rate{"large": {PerMinute: 2}}
			a := &asker{g: permit.NewGate(l), model: asked}
			a.use(t, 2)
			if counts {
				wantRejection(t, a.g, a.request(), job.RateLimited)
			} else {
				a.use(t, 1)
			}
		}
		l := rated(permit.Rate{}, permit.Rate{})
		l.ModelRates = map[string]permit.Rate{"acme": {PerMinute: 2}}
		a := &asker{g: permit.NewGate(l), model: "acme/acme"}
		a.use(t, 2)
	})
}

// TestRateTokenComesBack: only a permit that was used has sent a request.
func TestRateTokenComesBack(t *testing.T) {
	ways := map[string]func(t *testing.T, a *asker){
		"expired": func(t *testing.T, a *asker) {
			mustRequest(t, a.g, a.request())
			time.Sleep(5 * time.Second)
			synctest.Wait()
		},
		"revoked": func(t *testing.T, a *asker) {
			p := mustRequest(t, a.g, a.request())
			time.Sleep(time.Second)
			p.Revoke(errEnd)
		},
		"revoked at once": func(t *testing.T, a *asker) { mustRequest(t, a.g, a.request()).Revoke(errEnd) },
		"settled unused":  func(t *testing.T, a *asker) { mustRequest(t, a.g, a.request()).Settle(job.Usage{}, false) },
		"not reserved": func(t *testing.T, a *asker) {
			r := a.request()
			r.Reserve = func() (func(), error) {
				return nil, &permit.Rejection{Reason: job.WorkspaceBusy, RetryAfter: time.Second, Message: "taken"}
			}
			wantRejection(t, a.g, r, job.WorkspaceBusy)
		},
		"refused for a slot": func(t *testing.T, a *asker) {
			l := rated(permit.Rate{PerMinute: 1}, permit.Rate{})
			l.EachTenant = 1
			a.g.Configure(l)
			other := mustRequest(t, a.g, request("other", 1, "shell"))
			wantRejection(t, a.g, a.request(), job.RateLimited)
			other.Revoke(errEnd)
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &asker{g: permit.NewGate(rated(permit.Rate{PerMinute: 1}, permit.Rate{}))}
				way(t, a)
				a.use(t, 1)                                         // the token was there
				wantRejection(t, a.g, a.request(), job.RateLimited) // and only that one
			})
		})
	}
}

// TestRateSurvivesConfigure: configuring again fills no bucket.
func TestRateSurvivesConfigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{g: permit.NewGate(rated(permit.Rate{PerMinute: 6}, permit.Rate{}))}
		a.use(t, 6)
		a.g.Configure(rated(permit.Rate{PerMinute: 6}, permit.Rate{}))
		wantRejection(t, a.g, a.request(), job.RateLimited)
		a.g.Configure(rated(permit.Rate{PerMinute: 60}, permit.Rate{}))
		if got := wantRejection(t, a.g, a.request(), job.RateLimited).RetryAfter; got != time.Second {
			t.Errorf("retry after %s at the new rate, want 1s", got)
		}
		a.g.Configure(rated(permit.Rate{}, permit.Rate{}))
		a.use(t, 100)
	})
}
