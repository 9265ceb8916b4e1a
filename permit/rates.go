package permit

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/agentsched/agentsched/job"
)

// rates are the token buckets of Limits.KindRates and Limits.ModelRates, from
// golang.org/x/time/rate. A bucket of n a period holds at most n tokens and gains n/period.
// Guarded by Gate.mu.
type rates map[rateKey]*rate.Limiter

// rateKey names a bucket: of a kind of worker or of a model, by second or minute.
type rateKey struct {
	kind   job.WorkerKind
	model  string // exactly one of kind and model is empty
	period time.Duration
}

func (k rateKey) String() string {
	per := "minute"
	if k.period == time.Second {
		per = "second"
	}
	if k.model != "" {
		return "model " + k.model + " a " + per
	}
	return "worker " + string(k.kind) + " a " + per
}

// configure makes the buckets those of l. One that stays keeps its tokens, up to its new
// size; a new one is full.
func (b rates) configure(now time.Time, l *Limits) {
	want := map[rateKey]int{}
	for kind, r := range l.KindRates {
		want[rateKey{kind: kind, period: time.Second}] = r.PerSecond
		want[rateKey{kind: kind, period: time.Minute}] = r.PerMinute
	}
	for model, r := range l.ModelRates {
		want[rateKey{model: model, period: time.Second}] = r.PerSecond
		want[rateKey{model: model, period: time.Minute}] = r.PerMinute
	}
	for key := range b {
		if want[key] <= 0 {
			delete(b, key)
		}
	}
	for key, n := range want {
		if n <= 0 {
			continue
		}
		limit := rate.Limit(float64(n) / key.period.Seconds())
		if have := b[key]; have != nil {
			have.SetLimitAt(now, limit)
			have.SetBurstAt(now, n)
			continue
		}
		b[key] = rate.NewLimiter(limit, n)
	}
}

// reserve takes a token of every bucket that counts r, or none of any. The rejection's
// time is then when all of them have one, as far as nobody else takes it.
func (b rates) reserve(now time.Time, r *Request) ([]*rate.Limiter, *Rejection) {
	var taken []*rate.Limiter
	var reservations []*rate.Reservation
	var refused *Rejection
	for _, key := range keysOf(r.Choice.Worker, r.Model) {
		bucket := b[key]
		if bucket == nil {
			continue
		}
		reservation := bucket.ReserveN(now, 1)
		reservations = append(reservations, reservation)
		taken = append(taken, bucket)
		if wait := reservation.DelayFrom(now); wait > 0 {
			refused = later(refused, limited(job.WaitRate, wait, "the rate limit of %d requests of %s is reached", bucket.Burst(), key))
		}
	}
	if refused == nil {
		return taken, nil
	}
	for _, reservation := range reservations {
		reservation.CancelAt(now)
	}
	return nil, refused
}

// keysOf returns the names of the buckets that count a permit, each once: of its kind, and
// of each name of its model. "openrouter/anthropic/opus" has the names "openrouter",
// "openrouter/anthropic", "openrouter/anthropic/opus" and "opus".
func keysOf(kind job.WorkerKind, model string) []rateKey {
	keys := []rateKey{{kind: kind, period: time.Second}, {kind: kind, period: time.Minute}}
	for _, name := range namesOf(model) {
		keys = append(keys, rateKey{model: name, period: time.Second}, rateKey{model: name, period: time.Minute})
	}
	return keys
}

// namesOf returns the names that a rate can have which counts a model.
func namesOf(model string) (names []string) {
	for i, c := range model + "/" {
		if c == '/' && i > 0 {
			names = append(names, model[:i])
		}
	}
	bare := model[strings.LastIndexByte(model, '/')+1:]
	if bare != "" && bare != model && !strings.HasPrefix(model, bare+"/") {
		names = append(names, bare)
	}
	return names
}

// requestRates are the token buckets of Limits.RequestRates. Guarded by Gate.mu.
type requestRates map[string]requestRate

type requestRate struct{ requests, tokens *rate.Limiter } // nil: no bound

// configure is that of rates.
func (b requestRates) configure(now time.Time, l *Limits) {
	maps.DeleteFunc(b, func(name string, _ requestRate) bool { return l.RequestRates[name] == RequestRate{} })
	for name, r := range l.RequestRates {
		b[name] = requestRate{aMinute(now, b[name].requests, r.PerMinute), aMinute(now, b[name].tokens, r.TokensPerMinute)}
	}
}

// aMinute returns a bucket of n a minute: that which is there, or a full one.
func aMinute(now time.Time, have *rate.Limiter, n int) *rate.Limiter {
	switch limit := rate.Limit(float64(n) / 60); {
	case n <= 0:
		return nil
	case have == nil:
		return rate.NewLimiter(limit, n)
	default:
		have.SetLimitAt(now, limit)
		have.SetBurstAt(now, n)
		return have
	}
}

// paced is what a request has taken of the rates.
type paced struct {
	requests, tokens []*rate.Limiter
	taken            []int // of each of tokens
}

// pace waits until each rate that counts a request has room for it. Its tokens are those that it probably has: what it has
// in the end is booked by end. Requests come in the order in which they began to wait.
func (g *Gate) pace(ctx context.Context, d Demand) (paced, error) {
	var p paced
	var wait time.Duration
	var all []*rate.Reservation
	g.mu.Lock()
	now := time.Now()
	take := func(bucket *rate.Limiter, n int) {
		r := bucket.ReserveN(now, n)
		all, wait = append(all, r), max(wait, r.DelayFrom(now))
	}
	for _, key := range namesOf(d.Model) {
		bucket := g.requests[key]
		if bucket.requests != nil {
			p.requests = append(p.requests, bucket.requests)
			take(bucket.requests, 1)
		}
		if bucket.tokens != nil {
			n := int(min(d.Estimate, int64(bucket.tokens.Burst())))
			p.tokens, p.taken = append(p.tokens, bucket.tokens), append(p.taken, n)
			take(bucket.tokens, n)
		}
	}
	g.mu.Unlock()
	if wait <= 0 {
		return p, nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		now := time.Now()
		for _, r := range slices.Backward(all) {
			r.CancelAt(now)
		}
		return paced{}, context.Cause(ctx)
	}
}

// end books the tokens that a request has used.
func (p *paced) end(used int64) {
	now := time.Now()
	for i, bucket := range p.tokens {
		for more := used - int64(p.taken[i]); more != 0; { // a bucket takes as much as it holds at a time
			n := min(more, int64(max(bucket.Burst(), 1)))
			bucket.ReserveN(now, int(n))
			more -= n
		}
	}
}

// unsent gives back what a request took that was not sent.
func (p *paced) unsent() {
	p.end(0)
	giveBack(time.Now(), p.requests)
}

// giveBack puts back what reserve took for a permit that was not used. Cancelling the
// reservation would not: after its time to act, rate.Reservation.CancelAt restores nothing.
// Taking -1 tokens does. A bucket that has filled up meanwhile does not overflow, since
// the limiter caps its tokens at its size whenever it computes them.
func giveBack(now time.Time, taken []*rate.Limiter) {
	for _, bucket := range taken {
		bucket.AllowN(now, -1)
	}
}
