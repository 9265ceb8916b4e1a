package worker

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
)

// recorder passes on the events of a run, adds up what it uses and
// stops it where a limit is crossed. Secrets are taken out first, so that what is
// added up, cut and passed on holds none.
type recorder struct {
	run    Run
	cancel context.CancelCauseFunc
	log    zerolog.Logger

	mu       sync.Mutex               // guards what follows, and the order of Sink
	words    func(line []byte) []byte // redacts the lines of what is said
	scratch  []byte
	usage    job.Usage
	said     job.Usage // by the program, where a Meter says what counts
	session  string
	commands []job.CommandRun
	running  map[string]*runningCommand // by call id
	waits    bool                       // a question waits for its answer: no command takes time
	closed   bool
}

// runningCommand is a tool command that was said to have started. Its timer ends
// the run when max_command_time is over.
type runningCommand struct {
	started time.Time
	text    string
	left    time.Duration // of max_command_time, when it went on last
	since   time.Time     // when that was
	timer   *time.Timer   // nil without a limit, and while a question waits
}

// stop stops the time of a command.
func (c *runningCommand) stop() {
	if c.timer != nil {
		c.timer.Stop()
		c.left -= time.Since(c.since)
		c.timer = nil
	}
}

func newRecorder(run Run, cancel context.CancelCauseFunc, log zerolog.Logger) *recorder {
	r := &recorder{run: run, cancel: cancel, log: log, words: run.Redact.Lines(), running: map[string]*runningCommand{}}
	if run.Meter != nil {
		run.Meter.attach(r)
	}
	return r
}

// record passes one event on. Events come from several goroutines; Sink gets them
// one after the other, in the order in which they were recorded.
func (r *recorder) record(e job.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	now := time.Now()
	r.redact(&e)
	switch e.Kind {
	case job.EventSession:
		if e.Session == "" || e.Session == r.session {
			return
		}
		r.session = e.Session
	case job.EventUsage:
		if e.Usage == nil {
			return
		}
		if r.run.Meter != nil {
			r.said = r.said.Add(*e.Usage)
			return
		}
		r.charge(&e, true)
	case job.EventStep:
		e.Step, _ = job.Cut(e.Step, job.MaxStepID)
		r.usage.Steps++
		if limit := r.run.MaxSteps; limit > 0 && r.usage.Steps > limit {
			r.exceeded("the run took more than max_steps, %d", limit)
		}
	case job.EventCommand:
		r.command(&e, now)
	}
	if e.Time.IsZero() {
		e.Time = now
	}
	var cut int64
	e.Text, cut = job.Cut(e.Text, job.MaxEventText)
	e.Truncated += cut
	e.Command, _ = job.Cut(e.Command, job.MaxEventText)
	r.run.Sink(e)
}

// metered adds what the run's Meter has counted.
func (r *recorder) metered(e job.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.charge(&e, false)
	e.Time = time.Now()
	r.run.Sink(e)
}

// settle ends the Meter and tells where it differs from what the program said. cost is the program's own total; nil if it
// has said none.
func (r *recorder) settle(cost *float64) {
	m := r.run.Meter
	if m == nil {
		return
	}
	if m.Settle != nil {
		m.Settle()
	}
	m.attach(nil)
	r.mu.Lock()
	said, metered := r.said, r.usage
	r.mu.Unlock()
	if cost != nil {
		said.CostUSD, said.CostKnown = *cost, true
	}
	if text := compare(said, metered); text != "" {
		r.record(job.Event{Kind: job.EventWarning, Text: text})
	}
}

// charge adds an increment of usage, priced by the table if asked to and the program printed no
// cost. The budget is what is left of the job's, so it is compared with this run's
// use alone. It is crossed when it is exceeded, not when it is reached.
func (r *recorder) charge(e *job.Event, price bool) {
	u := *e.Usage
	u.Steps, u.Commands, u.CommandMillis = 0, 0, 0 // counted here, from the events
	if price && !u.CostKnown && u.Tokens() > 0 {
		if price, ok := r.run.Prices[r.run.Model]; ok {
			u.CostUSD, u.CostKnown = price.Cost(u), true
		}
	}
	e.Usage = &u
	r.usage = r.usage.Add(u)
	if limit := r.run.Tokens; limit > 0 && r.usage.Tokens() > limit {
		r.exceeded("the run used %d tokens, %d were left of the job's max_tokens", r.usage.Tokens(), limit)
	}
	if limit := r.run.CostUSD; limit > 0 && r.usage.CostUSD > limit {
		r.exceeded("the run cost %.4f US dollars, %.4f were left of the job's cost limit", r.usage.CostUSD, limit)
	}
}

// command keeps the time of a tool command, by its call id: from the event without
// an exit code to the one with it. A program that says how long it took is believed.
func (r *recorder) command(e *job.Event, now time.Time) {
	if e.ExitCode == nil {
		c := &runningCommand{started: now, text: e.Command, left: r.run.MaxCommandTime}
		if !r.waits {
			r.goOn(c)
		}
		if old := r.running[e.CallID]; old != nil {
			old.stop()
		}
		r.running[e.CallID] = c
		return
	}
	if c := r.running[e.CallID]; c != nil {
		c.stop()
		if e.Millis == 0 {
			e.Millis = now.Sub(c.started).Milliseconds()
		}
		delete(r.running, e.CallID)
	}
	r.usage.Commands++
	r.usage.CommandMillis += e.Millis
	short, _ := job.Cut(e.Command, 1<<10)
	r.commands = append(r.commands, job.CommandRun{Command: short, ExitCode: *e.ExitCode, Millis: e.Millis})
	if len(r.commands) > job.MaxCommands {
		r.commands = r.commands[1:]
	}
}

// goOn has the time of a command run. mu is held.
func (r *recorder) goOn(c *runningCommand) {
	limit := r.run.MaxCommandTime
	if limit <= 0 {
		return
	}
	c.since = time.Now()
	c.timer = time.AfterFunc(c.left, func() {
		short, _ := job.Cut(c.text, 200)
		r.cancel(&Stop{Class: job.Budget, Message: fmt.Sprintf("command %q ran longer than max_command_time, %s", short, limit), ours: true})
	})
}

// wait stops the time of commands while a question waits for its answer: many programs say that
// a command begins, and ask then.
func (r *recorder) wait(waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits == waits || r.closed {
		return
	}
	r.waits = waits
	for _, c := range r.running {
		if waits {
			c.stop()
		} else {
			r.goOn(c)
		}
	}
}

func (r *recorder) exceeded(format string, args ...any) {
	r.cancel(&Stop{Class: job.Budget, Message: fmt.Sprintf(format, args...), Hint: "raise the limit in the job file if the work is worth it", ours: true})
}

// outcome turns a session's result into the run's outcome. Two things no session
// decides: an exit code other than 0 is never a success, and a cost that is no
// number of US dollars is none. How a program ends that is stopped in the middle of a
// turn says nothing of it.
func (r *recorder) outcome(res Result, e Exit) job.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	metered := r.run.Meter != nil && (r.usage.CostKnown || r.usage.Tokens() == 0)
	if c := res.CostUSD; c != nil && *c >= 0 && *c <= math.MaxFloat64 && !metered { // false for NaN
		r.usage.CostUSD, r.usage.CostKnown = *c, true
	}
	o := job.Outcome{
		State: job.RunCompleted, Class: res.Class, Message: res.Message, Hint: res.Hint,
		Answer: res.Answer, Session: r.session, Usage: r.usage,
		ExitCode: e.Code, Signal: e.Signal, Commands: r.commands,
		Denied: deniedOnce(res.Denied, r.run.Redact),
	}
	if res.Checkpointed {
		o.State = job.Checkpointed
	}
	if res.Class != job.NoError {
		o.State = job.RunFailed
	} else if e.Code != 0 && !(res.Checkpointed && e.Stopped) {
		// No adapter may call this a success.
		o.State, o.Class = job.RunFailed, job.Crash
		o.Message = fmt.Sprintf("the worker ended with exit code %d", e.Code)
		if e.Signal != "" {
			o.Message = "the worker was ended by signal: " + e.Signal
		}
	}
	if ra := res.RetryAt; ra != nil && o.State == job.RunFailed {
		at := ra.At.UTC()
		if ra.At.IsZero() {
			at = time.Now().Add(ra.After) // with its monotonic reading: the wall clock may be set
		}
		o.RetryAt = &at
	}
	return o
}

// deniedOnce names each call once, without secrets and cut to one line's length.
func deniedOnce(calls []string, clean Redactor) (once []string) {
	for _, c := range calls {
		if c, _ = job.Cut(clean.String(c), 1<<10); !slices.Contains(once, c) && len(once) < job.MaxDenied {
			once = append(once, c)
		}
	}
	return once
}

// close stops the timers of commands that never ended; later events are void.
func (r *recorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, c := range r.running {
		c.stop()
	}
}
