package breaker

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
)

// maxModels bounds how many breakers of models are kept: their names come from
// jobs. For one more, that which was asked longest ago is forgotten, if it is
// not open and nothing runs under it. If there is no such one, the newcomer
// has the breaker of its kind alone.
const maxModels = 256

// changeBuffer is how many changes wait for a reader.
const changeBuffer = 64

// Set is all breakers of a core. It is safe for concurrent use.
type Set struct {
	log     zerolog.Logger
	changes chan Change // written with mu held, never closed

	mu       sync.Mutex // guards what follows; gobreaker's own locks are taken inside it
	cfg      Config
	breakers map[Key]*breaker // made when first asked, all closed
	models   int              // of them with a model
}

// NewSet returns a set whose breakers are all closed. It panics if cfg is
// invalid: what comes from outside is for Config.Validate before.
func NewSet(cfg Config, log zerolog.Logger) *Set {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Sprintf("breaker.NewSet: %v", err))
	}
	return &Set{log: log, changes: make(chan Change, changeBuffer), cfg: cfg, breakers: map[Key]*breaker{}}
}

// Configure changes the configuration or, if cfg is invalid, nothing. The
// windows of closed breakers begin anew, open ones keep their time and
// half-open ones the probes that they had.
func (s *Set) Configure(cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cfg == s.cfg {
		return nil
	}
	s.cfg = cfg
	now := time.Now()
	for _, b := range s.breakers {
		b.configure(now, cfg)
	}
	return nil
}

// Allow asks the breaker of c's worker kind and, if c names one, that of its
// model. The error is an *OpenError of the first that refuses; then nothing is
// held. Otherwise the ticket must be settled or discarded, or a slot among the
// probes is lost until the breaker is reset.
func (s *Set) Allow(c job.Choice) (*Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	t := &Ticket{set: s, modelNamed: c.Model != ""}
	for _, key := range keys(c) {
		b := s.get(key, now)
		if b == nil {
			continue
		}
		p, err := b.allow(now)
		if err != nil {
			t.discard(now)
			return nil, err
		}
		t.passes = append(t.passes, p)
	}
	return t, nil
}

// keys returns the breakers that have a say about c, the kind's first.
func keys(c job.Choice) []Key {
	kind := Key{Worker: c.Worker}
	if c.Model == "" {
		return []Key{kind}
	}
	return []Key{kind, {Worker: c.Worker, Model: c.Model}}
}

// get returns the breaker of key, made if need be; nil if there is no room.
func (s *Set) get(key Key, now time.Time) *breaker {
	if b := s.breakers[key]; b != nil {
		return b
	}
	if key.Model != "" && s.models >= maxModels && !s.evict(now) {
		s.log.Warn().Str("worker", string(key.Worker)).Str("model", key.Model).Int("kept", s.models).
			Msg("no room for a circuit breaker of this model: all others are in use or open")
		return nil
	}
	return s.add(key, now)
}

func (s *Set) add(key Key, now time.Time) *breaker {
	b := newBreaker(key, s.cfg, now, s.tell)
	s.breakers[key] = b
	if key.Model != "" {
		s.models++
	}
	return b
}

// evict forgets the model's breaker that was asked longest ago and can be missed.
func (s *Set) evict(now time.Time) bool {
	var idle *breaker
	for _, b := range s.breakers {
		b.observe(now)
		if b.key.Model == "" || b.phase == Open || b.out > 0 {
			continue
		}
		if idle == nil || b.used.Before(idle.used) {
			idle = b
		}
	}
	if idle == nil {
		return false
	}
	delete(s.breakers, idle.key)
	s.models--
	return true
}

// Trip opens the breaker of key until the given time (OpenFor from now if it
// has passed), or leaves it if it is open for longer.
func (s *Set) Trip(key Key, until time.Time, cause string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !until.After(now) {
		until = now.Add(s.cfg.OpenFor.Std())
	}
	b := s.named(key, now)
	b.observe(now)
	b.open(now, until, cause)
}

// named returns the breaker of key, made even if there is no room: somebody
// who knows asks for it.
func (s *Set) named(key Key, now time.Time) *breaker {
	if b := s.breakers[key]; b != nil {
		return b
	}
	return s.add(key, now)
}

// Reset closes the breaker of key, with nothing counted: also what still runs
// has no say any more. It frees slots of lost tickets.
func (s *Set) Reset(key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.breakers[key]; b != nil {
		b.close(time.Now(), "reset")
	}
}

// Snapshot returns every breaker, sorted by worker and model.
func (s *Set) Snapshot() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	states := make([]State, 0, len(s.breakers))
	for _, b := range s.breakers {
		states = append(states, b.state(now))
	}
	slices.SortFunc(states, func(a, b State) int { return compareKeys(a.Key, b.Key) })
	return states
}

// State describes the breakers that have a say about c in a few words, e.g.
// "codex closed, codex:gpt-5 half-open". One that was never asked is closed.
func (s *Set) State(c job.Choice) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var words []string
	for _, key := range keys(c) {
		phase := Closed
		if b := s.breakers[key]; b != nil {
			b.observe(now)
			phase = b.phase
		}
		words = append(words, key.String()+" "+string(phase))
	}
	return strings.Join(words, ", ")
}

// Restore brings a fresh set to where another one's Snapshot says that it was:
// what was open is open until its time, what was half-open (or whose time has
// passed) lets probes through anew, what was closed begins to count anew. A
// breaker that is open for longer already stays so. No Change tells of it: who
// restores knows. On an error, which names each bad state, nothing is restored.
func (s *Set) Restore(states []State) error {
	var errs []error
	for i, state := range states {
		if err := state.validate(); err != nil {
			errs = append(errs, fmt.Errorf("breakers[%d].%w", i, err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, state := range states {
		if state.State == Closed {
			continue
		}
		b := s.named(state.Key, now)
		b.notify = func(Change) {}
		b.observe(now)
		b.open(now, state.OpenUntil, state.Cause)
		b.notify = s.tell
	}
	return nil
}

// Changes returns the channel of changes. If it is not read, the oldest are
// dropped; Snapshot always tells the truth. It is never closed.
func (s *Set) Changes() <-chan Change { return s.changes }

// tell logs a change and hands it out. Called with s.mu held, so no other goroutine
// writes: after at most one drop there is room.
func (s *Set) tell(c Change) {
	line := s.log.Info()
	if c.To == Open {
		line = s.log.Warn().Time("until", c.OpenUntil)
	}
	line.Str("worker", string(c.Worker)).Str("model", c.Model).Str("from", string(c.From)).Str("to", string(c.To)).
		Str("cause", c.Cause).Msg("circuit breaker changed")
	for {
		select {
		case s.changes <- c:
			return
		default:
		}
		select {
		case <-s.changes:
		default: // a reader has taken one meanwhile
		}
	}
}
