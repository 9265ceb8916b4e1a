package gateway

import (
	"context"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/permit"
)

// rates are the token buckets of a provider, by model; "" holds those of all.
type rates map[string][]*rate.Limiter

func newRates(p Provider) rates {
	r := rates{"": buckets(p.Rate)}
	for model, n := range p.ModelRates {
		r[model] = buckets(n)
	}
	return r
}

func buckets(r permit.Rate) (all []*rate.Limiter) {
	if r.PerSecond > 0 {
		all = append(all, rate.NewLimiter(rate.Limit(r.PerSecond), r.PerSecond))
	}
	if r.PerMinute > 0 {
		all = append(all, rate.NewLimiter(rate.Limit(float64(r.PerMinute)/60), r.PerMinute))
	}
	return all
}

// wait returns when each bucket has had a token for a request, or with why it cannot wait that long.
func (r rates) wait(ctx context.Context, model string) error {
	for _, bucket := range r[""] {
		if err := bucket.Wait(ctx); err != nil {
			return err
		}
	}
	if model == "" {
		return nil
	}
	for _, bucket := range r[model] {
		if err := bucket.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}
