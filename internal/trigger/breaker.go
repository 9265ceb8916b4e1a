package trigger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Breaker says when a trigger is isolated since its jobs keep failing. An isolated
// trigger fires once its cool-down has ended or an operator has resumed it: the jobs
// of that firing are a try, and no other firing is submitted before they have ended.
// If they fail, the trigger is isolated again, for longer; if not, all is well.
type Breaker struct {
	// So many firings in a row whose jobs failed isolate the trigger; `0`: never.
	Failures int `json:"failures" min:"0" max:"30"`
	// For how long. It doubles with each try after it that fails, too.
	CoolDown job.Duration `json:"cool_down" min:"1s"`
	// The most that it doubles to.
	MaxCoolDown job.Duration `json:"max_cool_down" min:"1s"`
}

// DefaultBreaker is the breaker of a trigger that names none.
func DefaultBreaker() Breaker {
	return Breaker{Failures: 5, CoolDown: job.Duration(15 * time.Minute), MaxCoolDown: job.Duration(6 * time.Hour)}
}

// SetDefaults sets those of DefaultBreaker.
func (b *Breaker) SetDefaults() { *b = DefaultBreaker() }

func (b *Breaker) check(m *mistakes) {
	if b.MaxCoolDown < b.CoolDown {
		m.add("breaker.max_cool_down", "is %s, want at least cool_down (%s)", b.MaxCoolDown, b.CoolDown)
	}
}

func (s Settings) breaker() Breaker {
	if s.Breaker == nil {
		return DefaultBreaker()
	}
	return *s.Breaker
}

// Outcome is what has become of the jobs of a firing.
type Outcome struct {
	Firing string    // Firing.ID
	Ended  time.Time // when the last of them ended; zero: some have not
	Failed bool      // of those that have all ended: at least one failed
	Why    string    // of a failure, one line
}

// Verdict is what follows from the outcomes of a trigger's firings.
type Verdict struct {
	Failures int     // in a row, up to the newest that has ended
	Last     Outcome // the newest of these failures
	// Open is set if they are enough to isolate the trigger, until Until. Trying is
	// set if some jobs of the trigger have not ended.
	Open, Trying bool
	Until        time.Time
}

// Judge returns what follows from the outcomes of firings, the newest first.
func (b Breaker) Judge(outcomes []Outcome) Verdict {
	var v Verdict
	var ended time.Time
	for _, o := range outcomes {
		if o.Ended.IsZero() {
			v.Trying = true
			continue
		}
		if !o.Failed {
			break
		}
		if v.Failures++; v.Failures == 1 {
			v.Last = o
		}
		if o.Ended.After(ended) {
			ended = o.Ended
		}
	}
	if v.Open = b.Failures > 0 && v.Failures >= b.Failures; v.Open {
		cool := b.CoolDown
		for n := b.Failures; n < v.Failures && cool < b.MaxCoolDown; n++ {
			cool *= 2
		}
		v.Until = ended.Add(min(cool, b.MaxCoolDown).Std())
	}
	return v
}

// Isolation is what a trigger's Verdict has isolated.
type Isolation struct {
	Trigger Name
	Message string
	Until   time.Time
}

// maxRecent is how many of a trigger's firings are remembered: as many as may have to
// fail in a row, and those by which a cool-down of 1 s has doubled to a year.
const maxRecent = 60

// errIsolated: a firing is held, and tried again like one that could not be submitted.
var errIsolated = errors.New("held")

// verdict returns how the trigger's jobs have fared.
func (r *Runner) verdict(ctx context.Context, rec *record, s Settings) (Verdict, error) {
	if r.cfg.Outcome == nil || s.breaker().Failures == 0 {
		return Verdict{}, nil
	}
	var outcomes []Outcome
	for _, firing := range slices.Backward(rec.Recent) {
		o, known, err := r.cfg.Outcome(ctx, firing)
		if err != nil {
			return Verdict{}, fmt.Errorf("look how the jobs of firing %s have fared: %w", firing, err)
		}
		if !known {
			continue
		}
		outcomes = append(outcomes, o)
		if !o.Ended.IsZero() && !o.Failed {
			break // what came before does not count
		}
	}
	return s.breaker().Judge(outcomes), nil
}

// held returns why the trigger must not fire now.
func (s *source) held(ctx context.Context) error {
	cfg := &s.runner.cfg
	rec := s.record()
	v, err := s.runner.verdict(ctx, &rec, s.settings)
	// Asked for last: of what rec says was judged, the isolation is there by now.
	if cfg.Isolated != nil {
		if why := cfg.Isolated(s.name); why != "" {
			return fmt.Errorf("%w: %s", errIsolated, why)
		}
	}
	switch {
	case err != nil || !v.Open:
	case rec.Judged != v.Last.Firing:
		s.runner.Judge()
		err = fmt.Errorf("%w: its last %d firings failed, and it is about to be isolated", errIsolated, v.Failures)
	case v.Trying:
		err = fmt.Errorf("%w: its last %d firings failed, and the jobs of the one that is tried have not ended", errIsolated, v.Failures)
	}
	return err
}

// Judge has Run look how the jobs of triggers have fared: some have ended. It does
// not wait.
func (r *Runner) Judge() {
	select {
	case r.judging <- struct{}{}:
	default:
	}
}

// judge isolates the triggers whose jobs keep failing, each once for each failure.
func (r *Runner) judge(ctx context.Context) {
	r.mu.Lock()
	wanted := r.wanted
	r.mu.Unlock()
	for _, name := range sortedNames(wanted) {
		s := wanted[name]
		if !s.IsEnabled() {
			continue
		}
		id := sourceID(s)
		rec := r.book.get(name, id)
		v, err := r.verdict(ctx, &rec, s)
		if err != nil {
			if ctx.Err() == nil {
				r.cfg.Log.Error().Err(err).Str("trigger", string(name)).Msg("a trigger that keeps failing may go on")
			}
			continue
		}
		r.mu.Lock()
		if st := r.states[name]; st != nil {
			st.failures = v.Failures
		}
		r.mu.Unlock()
		if !v.Open || rec.Judged == v.Last.Firing {
			continue
		}
		if v.Until.After(r.cfg.Now()) { // else it is time to try again already
			r.cfg.Isolate(Isolation{name, fmt.Sprintf("the jobs of %d firings in a row failed, at last %s", v.Failures, v.Last.Why), v.Until})
		}
		if err := r.book.update(name, id, func(r *record) { r.Judged = v.Last.Firing }); err != nil {
			r.cfg.Log.Error().Err(err).Str("trigger", string(name)).Msg("after a restart the trigger may be isolated again")
		}
	}
}
