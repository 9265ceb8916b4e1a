package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

	jobs, oldest, dead, age *prometheus.Desc
	errors                  prometheus.Counter

	mu     sync.Mutex // guards what follows, also while a census is taken
	census queue.Census
	taken  time.Time // zero: never
	tried  time.Time
}

func newSurvey(cfg Config, n *names) *survey {
	s := &survey{
		log: cfg.Log, store: cfg.Store, names: n, now: cfg.Now,
		jobs:   prometheus.NewDesc("agentsched_queue_jobs", "Jobs that have not ended.", []string{"tenant", "state"}, nil),
		oldest: prometheus.NewDesc("agentsched_queue_oldest_age_seconds", "For how long the queued job could have run that could first, of those neither held nor waiting for another.", []string{"tenant"}, nil),
		dead:   prometheus.NewDesc("agentsched_dead_letters", "Failed jobs that wait for somebody to look at them.", nil, nil),
		age:    prometheus.NewDesc("agentsched_queue_census_age_seconds", "How old the figures of the queue are.", nil, nil),
		errors: prometheus.NewCounter(prometheus.CounterOpts{Name: "agentsched_queue_census_errors_total", Help: "How often the figures of the queue could not be taken."}),
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *survey) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.jobs, s.oldest, s.dead, s.age, s.errors.Desc()} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *survey) Collect(ch chan<- prometheus.Metric) {
	ch <- s.errors
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
			ch <- prometheus.MustNewConstMetric(s.jobs, prometheus.GaugeValue, float64(n), label, state)
		}
		age := 0.0
		if !f.oldest.IsZero() {
			age = max(now.Sub(f.oldest).Seconds(), 0)
		}
		ch <- prometheus.MustNewConstMetric(s.oldest, prometheus.GaugeValue, age, label)
	}
	ch <- prometheus.MustNewConstMetric(s.dead, prometheus.GaugeValue, float64(census.DeadLetters))
	ch <- prometheus.MustNewConstMetric(s.age, prometheus.GaugeValue, max(now.Sub(taken).Seconds(), 0))
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
		s.errors.Inc()
		s.log.Warn().Err(err).Msg("the queue's figures cannot be taken")
		return s.census, s.taken
	}
	s.census, s.taken = census, now
	return s.census, s.taken
}
