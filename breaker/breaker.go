package breaker

import (
	"errors"
	"fmt"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/agentsched/agentsched/job"
)

// How gobreaker is told of an attempt's end.
var (
	errExcluded = errors.New("says nothing")
	errFailed   = errors.New("failed")
	errSlow     = errors.New("took too long")
)

// probeRetry is how soon to ask a half-open breaker again whose probes are out.
const probeRetry = 5 * time.Second

// breaker is one circuit breaker. gobreaker counts, decides and guards the
// probes; what it cannot do is added around it:
//
//   - It is open for a time that is fixed when it is made, ours differs each
//     time. So each opening makes a new one and fails it (see hold).
//   - It counts an attempt in the bucket in which it began and forgets it if
//     that has left the window, as that of an agent often has. So an end that
//     counts is counted as an attempt that begins and ends now (see count).
//   - It cannot trip on slowness. A second one, for which slow is a failure,
//     does that.
//
// Every method is called with the set's lock held. OnStateChange is not used:
// it would run under gobreaker's lock, and State() after the call tells as much.
type breaker struct {
	key    Key
	cfg    Config
	notify func(Change) // must not call back

	main  *gobreaker.TwoStepCircuitBreaker[any]
	slow  *gobreaker.TwoStepCircuitBreaker[any] // used while closed
	worst gobreaker.Counts                      // what tripped last

	phase Phase
	until time.Time // end of Open; gobreaker's own end comes before it, never after
	cause string    // of the last opening
	// epoch grows with each opening and closing: a pass of an older one was
	// given before that, and its end has no say any more.
	epoch uint64
	out   int       // passes that were neither settled nor discarded
	used  time.Time // when it was last asked
}

// pass is one attempt that a breaker allowed.
type pass struct {
	b     *breaker
	epoch uint64
	done  func(error)
}

func newBreaker(key Key, cfg Config, now time.Time, notify func(Change)) *breaker {
	b := &breaker{key: key, cfg: cfg, notify: notify, phase: Closed, used: now}
	b.recount()
	return b
}

// allow returns a pass or an *OpenError.
func (b *breaker) allow(now time.Time) (pass, error) {
	b.used = now
	b.observe(now)
	if b.phase == Open {
		return pass{}, &OpenError{b.key, Open, b.until, b.cause}
	}
	done, err := b.main.Allow()
	if err != nil {
		return pass{}, &OpenError{b.key, b.phase, now.Add(probeRetry), b.cause}
	}
	b.out++
	return pass{b, b.epoch, done}, nil
}

// settle takes p back and lets its end count.
func (b *breaker) settle(now time.Time, p pass, e effect, r Result) {
	b.observe(now)
	b.out--
	if e == limited { // news of now, whenever the attempt began
		p.done(errExcluded)
		b.limit(now, r.RetryAt)
		return
	}
	if e == excluded || p.epoch != b.epoch {
		p.done(errExcluded)
		return
	}
	slow := e == success && b.cfg.slow(r.Took)
	if b.phase == HalfOpen {
		b.settleProbe(now, p, e == failure, slow, r)
		return
	}
	p.done(errExcluded) // counted below, in the bucket of now
	b.count(now, e == failure, slow, r.Class)
}

// settleProbe ends a probe. One that is slow, where slowness matters, shows
// that the breaker would be closed too early: it is a failure.
func (b *breaker) settleProbe(now time.Time, p pass, failed, slow bool, r Result) {
	cause := fmt.Sprintf("a probe failed with %s", r.Class)
	switch {
	case slow:
		cause = fmt.Sprintf("a probe took %s, longer than %s", r.Took, b.cfg.SlowAfter)
		p.done(errSlow)
	case failed:
		p.done(errFailed)
	default:
		p.done(nil)
	}
	switch b.main.State() {
	case gobreaker.StateOpen:
		b.open(now, now.Add(b.cfg.OpenFor.Std()), cause)
	case gobreaker.StateClosed:
		b.close(now, "probes succeeded")
	}
}

// count lets an end count in the current bucket of a closed breaker.
func (b *breaker) count(now time.Time, failed, slow bool, class job.ErrorClass) {
	if countIn(b.main, failed, errFailed) {
		b.open(now, now.Add(b.cfg.OpenFor.Std()), fmt.Sprintf("%d of %d attempts failed within %s, the last with %s",
			b.worst.TotalFailures, ended(b.worst), b.cfg.Window, class))
		return
	}
	if countIn(b.slow, slow, errSlow) {
		b.open(now, now.Add(b.cfg.OpenFor.Std()), fmt.Sprintf("%d of %d attempts took longer than %s within %s",
			b.worst.TotalFailures, ended(b.worst), b.cfg.SlowAfter, b.cfg.Window))
	}
}

// countIn counts one attempt and reports whether cb tripped. cb is closed.
func countIn(cb *gobreaker.TwoStepCircuitBreaker[any], bad bool, as error) bool {
	done, err := cb.Allow()
	if err != nil {
		return true
	}
	if !bad {
		as = nil
	}
	done(as)
	return cb.State() == gobreaker.StateOpen
}

// limit opens b until the time that a provider named. A time that has passed
// names none.
func (b *breaker) limit(now time.Time, retryAt *time.Time) {
	if retryAt == nil || !retryAt.After(now) {
		b.open(now, now.Add(b.cfg.OpenFor.Std()), "rate limit")
		return
	}
	b.open(now, *retryAt, "rate limit until "+retryAt.UTC().Format(time.RFC3339))
}

// observe notices that the open time is over.
func (b *breaker) observe(now time.Time) {
	if b.phase == Open && !now.Before(b.until) {
		b.move(now, HalfOpen, b.cause)
	}
}

// open opens b until the given time. An open one is never closed earlier by it.
func (b *breaker) open(now, until time.Time, cause string) {
	if b.phase == Open && !until.After(b.until) {
		return
	}
	b.hold(now, until)
	b.cause = cause
	b.epoch++
	b.move(now, Open, cause)
}

// hold makes a gobreaker that is open until the given time, and half-open then.
func (b *breaker) hold(now, until time.Time) {
	// gobreaker is half-open after its time, not at it, and 0 means a minute to it.
	timeout := min(max(until.Sub(now), 2), maxOpen) - 1
	settings := b.settings()
	settings.Timeout = timeout
	settings.ReadyToTrip = func(gobreaker.Counts) bool { return true }
	b.main = gobreaker.NewTwoStepCircuitBreaker[any](settings)
	countIn(b.main, true, errFailed)
	// It read the clock itself, after now was: with the clock as it is after
	// that, our end comes after its, and it agrees when we say half-open.
	b.until = time.Now().Add(timeout + 1)
}

// close closes b.
func (b *breaker) close(now time.Time, cause string) {
	b.recount()
	b.until = time.Time{}
	b.cause = ""
	b.epoch++
	b.move(now, Closed, cause)
}

// recount makes b's gobreakers anew: closed, with an empty window.
func (b *breaker) recount() {
	settings := b.settings()
	settings.ReadyToTrip = b.exceeds(b.cfg.FailureRatio)
	b.main = gobreaker.NewTwoStepCircuitBreaker[any](settings)
	settings.ReadyToTrip = b.exceeds(b.cfg.SlowRatio)
	b.slow = gobreaker.NewTwoStepCircuitBreaker[any](settings)
}

// exceeds is asked by gobreaker, under its lock, whenever something failed.
func (b *breaker) exceeds(ratio float64) func(gobreaker.Counts) bool {
	minimum := b.cfg.MinRequests
	return func(c gobreaker.Counts) bool {
		b.worst = c
		return ended(c) >= minimum && float64(c.TotalFailures)/float64(ended(c)) >= ratio
	}
}

// ended is what a ratio is of. Counts.Requests also has those that still run
// and those that say nothing.
func ended(c gobreaker.Counts) int { return int(c.TotalSuccesses) + int(c.TotalFailures) }

func (b *breaker) settings() gobreaker.Settings {
	return gobreaker.Settings{
		Name:         b.key.String(),
		MaxRequests:  uint32(b.cfg.Probes),
		Interval:     b.cfg.Window.Std(),
		BucketPeriod: b.cfg.BucketPeriod.Std(),
		IsExcluded:   func(err error) bool { return err == errExcluded },
	}
}

// configure applies cfg. The window of a closed breaker begins anew, with what
// runs still to be counted; an open one keeps its time; a half-open one keeps
// its probes until they have decided.
func (b *breaker) configure(now time.Time, cfg Config) {
	b.observe(now)
	b.cfg = cfg
	switch b.phase {
	case Closed:
		b.recount()
	case Open:
		b.hold(now, b.until)
	}
}

// state describes b.
func (b *breaker) state(now time.Time) State {
	b.observe(now)
	s := State{Key: b.key, State: b.phase, Cause: b.cause}
	switch b.phase {
	case Open:
		s.OpenUntil = outside(b.until)
	case HalfOpen:
		s.Requests, s.Failures = counts(b.main)
	case Closed:
		s.Requests, s.Failures = counts(b.main)
		_, s.Slow = counts(b.slow)
	}
	return s
}

// counts returns what cb has counted. Counts alone would return what was in
// the window when cb was last asked; State rolls it first.
func counts(cb *gobreaker.TwoStepCircuitBreaker[any]) (requests, failures int) {
	cb.State()
	c := cb.Counts()
	return ended(c), int(c.TotalFailures)
}

// move tells of a change. A closed one that is closed again (reset) is none.
func (b *breaker) move(now time.Time, to Phase, cause string) {
	c := Change{Key: b.key, From: b.phase, To: to, At: outside(now), Cause: cause}
	if to == Open {
		c.OpenUntil = outside(b.until)
	}
	b.phase = to
	if c.From != to || to == Open {
		b.notify(c)
	}
}

// outside returns t as others shall see it: UTC, without this process's clock.
func outside(t time.Time) time.Time { return t.Round(0).UTC() }
