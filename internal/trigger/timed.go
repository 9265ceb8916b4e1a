package trigger

import (
	"context"
	"time"
)

const (
	// nap is how long a trigger sleeps at most. Timers follow a clock that nobody
	// sets, and that stands still while the host sleeps; so it looks at the wall
	// clock from time to time.
	nap = 30 * time.Second
	// farAhead is how far the last decision may lie in the future. A bit ahead,
	// the clock was set back and the times that come again have been fired; that
	// far, it was wrong before.
	farAhead = 24 * time.Hour
)

// runTimed fires at the times of a schedule.
func (s *source) runTimed(ctx context.Context) {
	s.begin()
	anchor := s.record().Last
	when, err := newSchedule(s.settings, anchor)
	if err != nil { // the settings are valid, so the zone files went away
		s.failed(ctx, err)
		return
	}
	for {
		now := s.runner.cfg.Now().UTC().Round(0)
		if s.rebase(now) {
			when, _ = newSchedule(s.settings, now) // it could be made before
		}
		s.decide(when, now)
		if s.fireDue(ctx) != nil {
			return
		}
		now = s.runner.cfg.Now()
		last := s.record().Last
		if last.Before(now) {
			last = now
		}
		next := when.next(last)
		s.show(func(st *state) { st.next = next })
		wait := nap
		if !next.IsZero() {
			wait = min(nap, max(next.Sub(now), 0))
		}
		if sleep(ctx, wait) != nil {
			return
		}
	}
}

// begin writes down from when on a new trigger counts, so that a restart right
// after misses nothing.
func (s *source) begin() {
	if s.record().Last.IsZero() {
		now := s.runner.cfg.Now().UTC().Round(0)
		s.note(func(r *record) { r.Last = now })
	}
}

// rebase has the trigger begin anew after a clock that was far ahead.
func (s *source) rebase(now time.Time) bool {
	last := s.record().Last
	if last.Sub(now) <= farAhead {
		return false
	}
	s.log.Warn().Time("last", last).Msg("the clock was set back far: the trigger counts from now on")
	s.note(func(r *record) { r.Last = now })
	return true
}

// decide writes down what is to be submitted of the times that passed.
func (s *source) decide(when schedule, now time.Time) {
	most := s.settings.MisfireMax
	if most == 0 {
		most = DefaultMisfireMax
	}
	d := due(when, s.record().Last, now, s.settings.Misfire, most)
	if d.latest.IsZero() {
		return
	}
	if d.missed > 0 {
		s.log.Warn().Int("missed", d.missed).Int("made_up", len(d.fire)).Msg("a trigger's times passed while nobody looked")
	}
	s.note(func(r *record) {
		r.Last = d.latest
		r.Due = append(r.Due, d.fire...)
		r.Skipped += d.missed
	})
}

// fireDue submits what is due, one after the other.
func (s *source) fireDue(ctx context.Context) error {
	for {
		list := s.record().Due
		if len(list) == 0 {
			return ctx.Err()
		}
		at := list[0].UTC()
		if err := s.fireUntilDone(ctx, Firing{ID: timedID(s.name, at), At: at}, func(r *record) { r.Due = r.Due[1:] }); err != nil {
			return err
		}
	}
}
