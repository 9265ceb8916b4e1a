package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
)

// driver tells a session what happens in its run and does what it says.
//
//	standard output ─┐                          ┌► recorder ► Run.Sink
//	standard error ──┤                          ├► feed ► standard input
//	timers ──────────┼► mu ► Session.Step ► do ─┼► Run.Tell
//	Run.Inputs ──────┤                          ├► end: the run's context
//	Stream.Attach ───┘                          ├► files of the workspace
//	                                            └► Run.StoreStep, Stream.Take
//
// Each source is a goroutine of its own, which calls step and waits for mu. What the
// session says is done by that goroutine, with mu held, so that the bytes and events
// of one step stand together. Nothing on the right waits for a program or a person.
// The last two wait for the scheduler, and files for a disk: they are called without mu,
// and only their own source waits for them.
//
// Locks are taken in this order: driver.mu, then recorder.mu or feed.mu.
//
// A panic of the session ends its run, and not the core with every other run:
// adapters read what programs print, and are plugged in by third parties.
type driver struct {
	session Session
	run     *Run
	ctx     context.Context // of the run: what waits for the scheduler ends with it
	end     context.CancelCauseFunc
	log     zerolog.Logger
	rec     *recorder
	stdin   *feed

	beside sync.WaitGroup // listen and cancel
	deaf   chan struct{}  // closed by deafen: listen ends

	// mu is held while the session is called and its actions are done, so that one
	// step's writes stand together. Only what may take long is done without it.
	mu     sync.Mutex
	timers map[string]*time.Timer
	dir    string          // Command.Dir
	asked  map[string]bool // questions that wait for their answers
	own    []Input         // that actions have caused here; they are told after the step
	logged int             // events of lines of standard error
	over   bool            // Ended was told
	early  *Result         // of a Finish before that
	final  *Result         // of the Finish that answered it
}

func newDriver(ctx context.Context, s Session, run *Run, rec *recorder, end context.CancelCauseFunc, log zerolog.Logger) *driver {
	return &driver{session: s, run: run, ctx: ctx, end: end, log: log, rec: rec, stdin: newFeed(), timers: map[string]*time.Timer{}, asked: map[string]bool{}, deaf: make(chan struct{})}
}

// call calls f, a method of the session, and returns its panic as an error.
func (d *driver) call(method string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the worker's adapter panicked in %s: %v", method, v)
			d.log.Error().Err(err).Bytes("stack", debug.Stack()).Msg("adapter panicked")
			d.end(&Stop{Class: job.Crash, Message: err.Error(), Hint: adapterFault, ours: true})
		}
	}()
	f()
	return nil
}

const adapterFault = "this is a fault in the adapter: please report it with the run's logs"

func (d *driver) command() (c Command, err error) {
	err = d.call("Command", func() { c = d.session.Command() })
	d.dir = c.Dir
	return c, err
}

// close lets the session tidy up. It is the last call of a session.
func (d *driver) close() {
	c, ok := d.session.(io.Closer)
	if !ok {
		return
	}
	d.call("Close", func() {
		if err := c.Close(); err != nil {
			d.log.Warn().Err(err).Msg("the adapter's cleanup after a run failed")
		}
	})
}

// step tells the session what happened and does what it says.
func (d *driver) step(in Input) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stepLocked(in)
}

func (d *driver) stepLocked(in Input) {
	if d.over {
		return
	}
	if a, answers := in.(Answer); answers && !d.answered(a.Question) {
		return // taken back meanwhile
	}
	var actions []Action
	if d.call(fmt.Sprintf("Step(%T)", in), func() { actions = d.session.Step(time.Now(), in) }) != nil {
		return
	}
	for _, a := range actions {
		d.do(a, in)
	}
	for len(d.own) > 0 {
		next := d.own[0]
		d.own = d.own[1:]
		d.stepLocked(next)
	}
}

// answered takes a question from those that wait, and reports whether it did.
func (d *driver) answered(question string) bool {
	if !d.asked[question] {
		return false
	}
	delete(d.asked, question)
	d.rec.wait(len(d.asked) > 0)
	return true
}

// do does one action that answers in.
func (d *driver) do(a Action, in Input) {
	switch a := a.(type) {
	case Emit:
		d.emit(a.Event, in)
	case Write:
		if _, err := d.stdin.Write(a.Data); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			d.log.Warn().Err(err).Int("bytes", len(a.Data)).Msg("the adapter's input was not written to the worker")
		}
	case CloseInput:
		d.stdin.finish()
	case Ask:
		d.asked[a.Question.ID] = true
		d.rec.wait(true)
		if d.run.Tell == nil {
			d.own = append(d.own, Answer{Question: a.Question.ID})
			return
		}
		d.run.Tell(a)
	case Withdraw:
		if d.answered(a.Question) && d.run.Tell != nil {
			d.run.Tell(a)
		}
	case Settle:
		if d.run.Tell != nil {
			d.run.Tell(a)
		}
	case SetTimer:
		d.setTimer(a)
	case Finish:
		d.finish(a.Result)
	case Store:
		d.unlocked(func() { d.store(a.Step) })
	case ReadFile:
		done := FileDone{ID: a.ID}
		d.unlocked(func() { done.Data, done.Err = readFile(d.dir, a.Path) })
		d.own = append(d.own, done)
	case WriteFile:
		done := FileDone{ID: a.ID}
		d.unlocked(func() { done.Created, done.Err = writeFile(d.dir, a.Path, a.Data) })
		d.own = append(d.own, done)
	case Forward:
		if d.run.Stream != nil {
			d.unlocked(func() { d.run.Stream.pass(d.ctx, a.Line, d.log) })
		}
	}
}

// listen gives the session what others have for it, until deafen.
func (d *driver) listen() {
	d.beside.Go(func() {
		for {
			select {
			case in := <-d.run.Inputs:
				d.step(in)
			case <-d.deaf:
				return
			}
		}
	})
}

// cancel tells the session that the run is being stopped. It does not wait: the
// session may wait for the receiver of the events, and the processes are to end
// all the same.
func (d *driver) cancel() {
	d.beside.Go(func() { d.step(Cancel{}) })
}

// deafen ends listen and waits for it, and for cancel.
func (d *driver) deafen() {
	close(d.deaf)
	d.beside.Wait()
}

// unlocked calls f, which may take long, without the lock. Steps of other sources
// may be done meanwhile; the actions after this one wait.
func (d *driver) unlocked(f func()) {
	d.mu.Unlock()
	defer d.mu.Lock()
	f()
}

// emit reports an event. What answers lines of standard error is bounded: a program
// may write there without end, and all of it is in the log file.
func (d *driver) emit(e job.Event, in Input) {
	if _, fromStderr := in.(ErrorOutput); fromStderr && e.Kind == job.EventLog {
		if d.logged++; d.logged > maxLogEvents {
			return
		}
	}
	e.Result = nil // of a durable step, for which there is Store
	d.rec.record(e)
}

// setTimer sets, replaces or stops a timer. One that fires at the moment when it is
// replaced finds another in its place, and does nothing.
func (d *driver) setTimer(a SetTimer) {
	if t := d.timers[a.Name]; t != nil {
		t.Stop()
		delete(d.timers, a.Name)
	}
	if a.After <= 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(a.After, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.timers[a.Name] == t {
			delete(d.timers, a.Name)
			d.stepLocked(Timer{a.Name})
		}
	})
	d.timers[a.Name] = t
}

// finish takes the result of a run. One that comes before the program's end ends
// the run.
func (d *driver) finish(r Result) {
	switch {
	case d.over:
		if d.final == nil {
			d.final = &r
		}
	case d.early == nil:
		d.early = &r
		d.end(&Stop{Class: r.Class, Message: r.Message, Hint: r.Hint, ours: true, decided: true})
	}
}

// ended tells the session the end of its program. It returns the result that the
// session gives for that, and the one that decided the run before, with the cost
// that was said since; nil if none did. Nothing is told to the session after it.
func (d *driver) ended(e Exit) (r Result, early *Result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.timers {
		d.setTimer(SetTimer{Name: name})
	}
	in := Ended{e}
	var actions []Action
	err := d.call(fmt.Sprintf("Step(%T)", in), func() { actions = d.session.Step(time.Now(), in) })
	d.over = true
	for _, a := range actions {
		d.do(a, in)
	}
	switch {
	case err != nil:
		r = Result{Class: job.Crash, Message: err.Error()}
	case d.final == nil:
		r = Result{Class: job.Crash, Message: "the worker's adapter reported no result of the run", Hint: adapterFault}
	default:
		r = *d.final
	}
	if d.early != nil && r.CostUSD != nil {
		d.early.CostUSD = r.CostUSD
	}
	return r, d.early
}

// Write is the Stream's way to the session: it is told the lines if there is room
// for them. So the writer learns that the program does not keep up, although the
// session's own writes never wait.
func (d *driver) Write(lines []byte) (int, error) {
	if err := d.stdin.room(len(lines)); err != nil {
		return 0, err
	}
	d.step(StreamLines{lines})
	return len(lines), nil
}
