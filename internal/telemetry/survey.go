package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/queue"
)

const (
	// censusAge is how old a census may be that a scrape is answered with: with a
	// million queued jobs one takes a fifth of a second.
	censusAge = 5 * time.Second
	// censusTimeout is how long a scrape waits for one.
	censusTimeout = 5 * time.Second
)

// survey collects how the queue stands.
type survey struct {
	log   zerolog.Logger
	store queue.Reader // nil: nothing is known
	names *names
	now   func() time.Time

	jobs, oldest, dead, age *metric
	errors                  *counter

	mu     sync.Mutex // guards what follows, also while a census is taken
	census queue.Census
	taken  time.Time // zero: never
	tried  time.Time
}

func newSurvey(cfg Config, n *names) *survey {
	s := &survey{
		log: cfg.Log, store: cfg.Store, names: n, now: cfg.Now,
		jobs:   newMetric(gaugeKind, "queue_jobs", "Jobs that have not ended.", "tenant", "state"),
		oldest: newMetric(gaugeKind, "queue_oldest_age_seconds", "For how long the queued job could have run that could first, of those neither held nor waiting for another.", "tenant"),
		dead:   newMetric(gaugeKind, "dead_letters", "Failed jobs that wait for somebody to look at them."),
		age:    newMetric(gaugeKind, "queue_census_age_seconds", "How old the figures of the queue are."),
		errors: newCounter("queue_census_errors_total", "How often the figures of the queue could not be taken."),
	}
	return s
}

func (s *survey) collect(p *page) {
	defer s.errors.collect(p)
	if s.store == nil {
		return
	}
	now := s.now()
	census, taken := s.take(now)
	if taken.IsZero() {
		return
	}
	type figures struct {
		states map[string]int
		oldest time.Time
	}
	tenants := map[string]*figures{} // by label: some share one
	for _, t := range census.Tenants {
		label := s.names.tenant(t.Tenant)
		f := tenants[label]
		if f == nil {
			f = &figures{states: map[string]int{}}
			tenants[label] = f
		}
		for state, n := range map[string]int{"queued": t.Queued, "held": t.Held, "approval": t.Approval, "dispatched": t.Dispatched} {
			f.states[state] += n
		}
		if t.Queued > 0 && (f.oldest.IsZero() || t.Oldest.Before(f.oldest)) {
			f.oldest = t.Oldest
		}
	}
	for label, f := range tenants {
		for state, n := range f.states {
			p.put(s.jobs, float64(n), label, state)
		}
		age := 0.0
		if !f.oldest.IsZero() {
			age = max(now.Sub(f.oldest).Seconds(), 0)
		}
		p.put(s.oldest, age, label)
	}
	p.put(s.dead, float64(census.DeadLetters))
	p.put(s.age, max(now.Sub(taken).Seconds(), 0))
}

// take returns a census that is young enough, or the last that could be taken.
func (s *survey) take(now time.Time) (queue.Census, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if age := now.Sub(s.tried); !s.tried.IsZero() && age >= 0 && age < censusAge {
		return s.census, s.taken
	}
	ctx, cancel := context.WithTimeout(context.Background(), censusTimeout)
	defer cancel()
	s.tried = now
	census, err := s.store.Census(ctx)
	if err != nil {
		s.errors.add(1)
		s.log.Warn().Err(err).Msg("the queue's figures cannot be taken")
		return s.census, s.taken
	}
	s.census, s.taken = census, now
	return s.census, s.taken
}
