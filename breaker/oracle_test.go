package breaker_test

import (
	"time"

	"github.com/agentsched/agentsched/breaker"
	"github.com/agentsched/agentsched/job"
)

// oracle is a set as one would write it on paper: by key, for the classes
// that the property test draws.
type oracle map[breaker.Key]*oracleBreaker

type oracleBreaker struct {
	phase  breaker.Phase
	until  time.Time // Open
	start  time.Time // Closed: where the buckets begin
	ends   []oracleEnd
	quota  int // HalfOpen: probes, as configured when it was opened
	probes []*oraclePass
	period int // grows with each opening and closing
}

type oracleEnd struct {
	at         time.Time
	fail, slow bool
}

type oraclePass struct {
	period int
	probe  bool
	ended  bool
	says   bool // it ended as a success or a failure
}

func (o oracle) of(key breaker.Key, now time.Time) *oracleBreaker {
	if o[key] == nil {
		o[key] = &oracleBreaker{phase: breaker.Closed, start: now}
	}
	b := o[key]
	if b.phase == breaker.Open && !now.Before(b.until) {
		b.phase = breaker.HalfOpen
		b.probes = nil
	}
	return b
}

// allow returns a pass of each breaker, or nil and the one that refuses.
func (o oracle) allow(c job.Choice, cfg breaker.Config, now time.Time) (map[breaker.Key]*oraclePass, breaker.Key) {
	asked := []breaker.Key{{Worker: c.Worker}}
	if c.Model != "" {
		asked = append(asked, breaker.Key{Worker: c.Worker, Model: c.Model})
	}
	for _, key := range asked {
		if !o.of(key, now).free() {
			return nil, key
		}
	}
	passes := map[breaker.Key]*oraclePass{}
	for _, key := range asked {
		b := o[key]
		p := &oraclePass{period: b.period, probe: b.phase == breaker.HalfOpen}
		if p.probe {
			b.probes = append(b.probes, p)
		}
		passes[key] = p
	}
	return passes, breaker.Key{}
}

func (b *oracleBreaker) free() bool {
	taken := 0
	for _, p := range b.probes {
		if !p.ended || p.says {
			taken++
		}
	}
	return b.phase == breaker.Closed || b.phase == breaker.HalfOpen && taken < b.quota
}

func (o oracle) settle(t both, class job.ErrorClass, took time.Duration, retryAt time.Time, cfg breaker.Config, now time.Time) {
	for key, p := range t.passes {
		b := o.of(key, now)
		p.ended = true
		of := key.Model != "" || t.choice.Model == "" // whom a rate limit is of
		switch {
		case class == job.RateLimit && of:
			b.open(retryAt, cfg, now)
			continue
		case class == job.RateLimit, class == job.Unknown, class == job.CancelledClass, class == job.Crash && key.Model != "":
			continue
		}
		if p.period != b.period {
			continue
		}
		p.says = true
		fail := class != job.NoError
		slow := !fail && cfg.SlowAfter > 0 && cfg.SlowRatio > 0 && took > cfg.SlowAfter.Std()
		if b.phase == breaker.HalfOpen {
			b.endProbe(fail || slow, cfg, now)
			continue
		}
		b.ends = append(b.ends, oracleEnd{now, fail, slow})
		n, fails, slows := b.window(cfg, now)
		if n < cfg.MinRequests {
			continue
		}
		if fail && float64(fails)/float64(n) >= cfg.FailureRatio || slow && float64(slows)/float64(n) >= cfg.SlowRatio {
			b.open(time.Time{}, cfg, now)
		}
	}
}

func (b *oracleBreaker) endProbe(bad bool, cfg breaker.Config, now time.Time) {
	if bad {
		b.open(time.Time{}, cfg, now)
		return
	}
	well := 0
	for _, p := range b.probes {
		if p.says {
			well++
		}
	}
	if well >= b.quota {
		b.close(now)
	}
}

// window counts the ends whose bucket is one of those that the window has.
func (b *oracleBreaker) window(cfg breaker.Config, now time.Time) (n, fails, slows int) {
	bucket := func(at time.Time) int { return int(at.Sub(b.start) / cfg.BucketPeriod.Std()) }
	for _, e := range b.ends {
		if bucket(now)-bucket(e.at) >= int(cfg.Window/cfg.BucketPeriod) {
			continue
		}
		n++
		if e.fail {
			fails++
		}
		if e.slow {
			slows++
		}
	}
	return n, fails, slows
}

func (b *oracleBreaker) open(until time.Time, cfg breaker.Config, now time.Time) {
	if !until.After(now) {
		until = now.Add(cfg.OpenFor.Std())
	}
	if b.phase == breaker.Open && !until.After(b.until) {
		return
	}
	*b = oracleBreaker{phase: breaker.Open, until: until, quota: cfg.Probes, period: b.period + 1}
}

func (b *oracleBreaker) close(now time.Time) {
	*b = oracleBreaker{phase: breaker.Closed, start: now, period: b.period + 1}
}

// restart is a new core: closed ones are unknown to it, and nothing is out.
func (o oracle) restart(cfg breaker.Config) {
	for key, b := range o {
		if b.phase == breaker.Closed {
			delete(o, key)
			continue
		}
		b.probes, b.period, b.quota = nil, b.period+1, cfg.Probes
	}
}

func (o oracle) configure(cfg breaker.Config, now time.Time) {
	for key := range o {
		b := o.of(key, now)
		switch b.phase {
		case breaker.Closed:
			b.start, b.ends = now, nil
		case breaker.Open:
			b.quota = cfg.Probes
		}
	}
}

// checkProbes counts, from the tickets alone, the probes of each half-open breaker.
func (o oracle) checkProbes(out []both, i int) {
	for key, b := range o {
		n := 0
		for _, ticket := range out {
			if p := ticket.passes[key]; p != nil && p.probe && p.period == b.period {
				n++
			}
		}
		if n > b.quota {
			disagree("step %d: %s has %d probes out, at most %d are allowed", i, key, n, b.quota)
		}
	}
}

func (o oracle) compare(states []breaker.State, cfg breaker.Config, i int) {
	if len(states) != len(o) {
		disagree("step %d: %d breakers %v, the oracle has %d", i, len(states), states, len(o))
	}
	now := time.Now()
	for _, s := range states {
		if o[s.Key] == nil {
			disagree("step %d: the oracle does not know %s", i, s)
		}
		b := o.of(s.Key, now)
		if s.State != b.phase || s.State == breaker.Open && !s.OpenUntil.Equal(b.until) {
			disagree("step %d: %s, the oracle's is %s until %s", i, s, b.phase, b.until)
		}
		if s.State == breaker.Closed {
			if n, fails, slows := b.window(cfg, now); s.Requests != n || s.Failures != fails || s.Slow != slows {
				disagree("step %d: %s, the oracle counts %d, %d, %d", i, s, n, fails, slows)
			}
		}
	}
}
