package worker

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/job"
)

// guarded calls a session so that its panic ends its run, and not the core
// with every other run: adapters read what programs print, and are plugged in
// by third parties.
type guarded struct {
	session Session
	framer  Framer      // nil if the session is none
	reader  ErrorReader // likewise
	asking  sync.Mutex  // of judge: both of the output's readers ask
	judge   Judge       // likewise; nil after its verdict
	end     context.CancelCauseFunc
	log     zerolog.Logger
}

func newGuarded(s Session, end context.CancelCauseFunc, log zerolog.Logger) *guarded {
	g := &guarded{session: s, end: end, log: log}
	g.framer, _ = s.(Framer)
	g.reader, _ = s.(ErrorReader)
	g.judge, _ = s.(Judge)
	return g
}

// call calls f, a method of the session, and returns its panic as an error.
func (g *guarded) call(method string, f func()) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the worker's adapter panicked in %s: %v", method, v)
			g.log.Error().Err(err).Bytes("stack", debug.Stack()).Msg("adapter panicked")
			g.end(&Stop{Class: job.Crash, Message: err.Error(), Hint: "this is a fault in the adapter: please report it with the run's logs", ours: true})
		}
	}()
	f()
	return nil
}

func (g *guarded) command() (c Command, err error) {
	err = g.call("Command", func() { c = g.session.Command() })
	return c, err
}

func (g *guarded) event(line []byte) (events []job.Event) {
	g.call("Event", func() { events = g.session.Event(line) })
	return events
}

func (g *guarded) errorLine(line []byte) (events []job.Event) {
	g.call("ErrorLine", func() { events = g.reader.ErrorLine(line) })
	return events
}

// judgeNow ends the run if the session's output has decided it.
func (g *guarded) judgeNow() {
	g.asking.Lock()
	defer g.asking.Unlock()
	if g.judge == nil {
		return
	}
	g.call("Verdict", func() {
		if result, decided := g.judge.Verdict(); decided {
			g.judge = nil
			g.end(&Stop{Class: result.Class, Message: result.Message, Hint: result.Hint, ours: true, verdict: &result})
		}
	})
}

func (g *guarded) opening() (events []job.Event) {
	if g.framer != nil {
		g.call("Opening", func() { events = g.framer.Opening() })
	}
	return events
}

func (g *guarded) closing(e Exit) (events []job.Event) {
	if g.framer != nil {
		g.call("Closing", func() { events = g.framer.Closing(e) })
	}
	return events
}

func (g *guarded) cancel(stdin io.Writer) (err error) {
	if panicked := g.call("Cancel", func() { err = g.session.Cancel(stdin) }); panicked != nil {
		return panicked
	}
	return err
}

func (g *guarded) result(e Exit) (r Result) {
	if err := g.call("Result", func() { r = g.session.Result(e) }); err != nil {
		return Result{Class: job.Crash, Message: err.Error()}
	}
	return r
}
