package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"
)

const (
	// firstRetry and lastRetry bound the wait after a failure, which doubles.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// source is a trigger that runs.
type source struct {
	runner   *Runner
	name     Name
	settings Settings
	id       string // see sourceID
	log      zerolog.Logger
}

// sourceID says what a trigger waits for. What was kept about another source
// is no help: a trigger that was at nine and is at ten now has missed nothing.
func sourceID(s Settings) string {
	var about any
	switch {
	case s.Cron != "":
		about = []string{s.Cron, s.Zone}
	case s.Every != 0:
		about = s.Every
	case s.Watch != nil:
		about = s.Watch
	case s.Webhook != nil:
		about = s.Webhook.Path
	case s.Command != nil:
		about = []string{s.Command.Run, s.Command.Dir, string(s.Command.When)}
	}
	text, _ := json.Marshal(about) // texts, numbers and lists of them
	return s.Source() + " " + string(text)
}

// run fires until ctx ends.
func (s *source) run(ctx context.Context) {
	switch {
	case s.settings.timed():
		s.runTimed(ctx)
	case s.settings.Watch != nil:
		s.runWatch(ctx)
	case s.settings.Webhook != nil:
		s.runWebhook(ctx)
	case s.settings.Command != nil:
		s.runCommand(ctx)
	}
}

// fire submits once. note is what is written down together with the success,
// which a skipped firing is too.
func (s *source) fire(ctx context.Context, f Firing, note func(*record)) (skipped bool, err error) {
	f.Trigger, f.Kind, f.Settings = s.name, s.settings.Kind(), s.settings
	if err = s.held(ctx); err == nil {
		err = s.runner.cfg.Submit(ctx, f)
	}
	skipped = errors.Is(err, ErrActive)
	if err != nil && !skipped {
		err = fmt.Errorf("submit firing %s: %w", f.ID, err)
		s.failed(ctx, err)
		return false, err
	}
	s.note(func(r *record) {
		if skipped {
			r.Skipped++
		} else {
			r.Fired++
			r.FiredAt = f.At
			r.Recent = append(r.Recent, f.ID)
			r.Recent = r.Recent[max(len(r.Recent)-maxRecent, 0):]
		}
		note(r)
	})
	s.runner.Judge() // its jobs may have ended before it was noted
	s.show(func(st *state) { st.err = "" })
	s.log.Info().Str("firing", f.ID).Bool("skipped", skipped).Msg("trigger fired")
	return skipped, nil
}

// fireUntilDone submits until that succeeds. It returns an error only when ctx
// has ended.
func (s *source) fireUntilDone(ctx context.Context, f Firing, note func(*record)) error {
	wait := retries()
	for {
		if _, err := s.fire(ctx, f, note); err == nil {
			return nil
		}
		if err := sleep(ctx, wait.NextBackOff()); err != nil {
			return err
		}
	}
}

func retries() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRetry), backoff.WithMultiplier(2),
		backoff.WithRandomizationFactor(0), backoff.WithMaxInterval(lastRetry), backoff.WithMaxElapsedTime(0))
}

// failed shows and logs an error, but for one that is the end of ctx.
func (s *source) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.show(func(st *state) { st.err = err.Error() })
	if errors.Is(err, errIsolated) {
		return // that was told when it was isolated
	}
	s.log.Warn().Err(err).Msg("trigger failed")
}

// note changes the trigger's record.
func (s *source) note(change func(*record)) {
	if err := s.runner.book.update(s.name, s.id, change); err != nil {
		s.log.Error().Err(err).Msg("what a trigger did cannot be kept; after a restart it may fire again")
	}
}

func (s *source) record() record { return s.runner.book.get(s.name, s.id) }

func (s *source) show(change func(*state)) {
	s.runner.mu.Lock()
	defer s.runner.mu.Unlock()
	if st := s.runner.states[s.name]; st != nil {
		change(st)
	}
}

// sleep waits for d, or returns the cause of the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
