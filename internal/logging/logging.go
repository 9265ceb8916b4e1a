package logging

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/agentsched/agentsched/internal/fields"
)

// Options are what New makes loggers of.
type Options struct {
	Format Format              // of Out; "" is Auto
	Level  Level               // of components that Levels does not name; "" is Info
	Levels map[Component]Level // by component

	// Out is the stream, usually standard error; nil for none. It is written to by
	// a goroutine of its own: lines that it does not take in time are left out, and
	// how many is told.
	Out io.Writer
	// File gets every line as JSON; nil for none.
	File io.Writer
	// Redact returns a writer that takes secrets out of what goes to the one given,
	// a line at a time; nil takes out nothing.
	Redact func(io.Writer) io.Writer
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// Logs are the loggers of one program.
type Logs struct {
	out    io.Writer // everything that is written, from several goroutines
	stream *stream   // nil if there is none
	now    func() time.Time
	levels atomic.Pointer[levels]
}

// levels are those in force.
type levels struct {
	others Level
	by     map[Component]Level
}

func (l *levels) of(c Component) zerolog.Level {
	if level, ok := l.by[c]; ok {
		return level.zerolog()
	}
	return l.others.zerolog()
}

// New returns the loggers that the options describe. Close ends them. The error
// names the option that is not right.
func New(o Options) (*Logs, error) {
	l := &Logs{now: o.Now}
	if l.now == nil {
		l.now = time.Now
	}
	if err := l.SetLevels(o.Level, o.Levels); err != nil {
		return nil, err
	}
	redact := o.Redact
	if redact == nil {
		redact = func(w io.Writer) io.Writer { return w }
	}
	var outs []io.Writer
	if o.File != nil {
		outs = append(outs, redact(o.File))
	}
	if o.Out != nil {
		form, err := form(o.Format, o.Out)
		if err != nil {
			return nil, err
		}
		l.stream = newStream(redact(form), l.now)
		outs = append(outs, l.stream)
	}
	l.out = zerolog.SyncWriter(zerolog.MultiLevelWriter(outs...))
	return l, nil
}

// form returns a writer that takes JSON lines and gives them to out as f asks.
func form(f Format, out io.Writer) (io.Writer, error) {
	file, isFile := out.(*os.File)
	terminal := isFile && term.IsTerminal(int(file.Fd()))
	switch {
	case f == JSON, (f == Auto || f == "") && !terminal:
		return out, nil
	case f == Console, f == Auto, f == "":
		return zerolog.ConsoleWriter{
			Out: out, NoColor: !terminal, TimeFormat: time.DateTime,
			PartsOrder:    []string{zerolog.TimestampFieldName, zerolog.LevelFieldName, "component", zerolog.MessageFieldName},
			FieldsExclude: []string{"component", "process", "pid"},
		}, nil
	}
	return nil, fmt.Errorf("log format %q is unknown, want one of %s", f, strings.Join(fields.Words[Format](), ", "))
}

// SetLevels puts other levels in force, for lines from now on: others for every
// component that levels does not name; "" is Info.
func (l *Logs) SetLevels(others Level, by map[Component]Level) error {
	if others == "" {
		others = Info
	}
	var errs []error
	_, err := ParseLevel(string(others))
	errs = append(errs, err)
	for c, level := range by {
		if _, err := ParseLevel(string(level)); err != nil {
			errs = append(errs, fmt.Errorf("component %s: %w", c, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	l.levels.Store(&levels{others, maps.Clone(by)})
	return nil
}

// Level returns which lines of a component are written now.
func (l *Logs) Level(c Component) Level {
	in := l.levels.Load()
	if level, ok := in.by[c]; ok {
		return level
	}
	return in.others
}

// For returns the logger of a component. It and what is derived from it obey
// the levels that are in force when a line is begun.
func (l *Logs) For(c Component) zerolog.Logger {
	// A sampler is asked before a line is put together; a hook only afterwards.
	return zerolog.New(l.out).Level(zerolog.TraceLevel).Sample(sampler{l, c}).Hook(clock(l.now)).
		With().Str("process", "scheduler").Str("component", string(c)).Int("pid", os.Getpid()).Logger()
}

// sampler lets through the lines that are severe enough at this time.
type sampler struct {
	logs      *Logs
	component Component
}

func (s sampler) Sample(level zerolog.Level) bool {
	return level >= s.logs.levels.Load().of(s.component)
}

// clock says when a line was written.
type clock func() time.Time

func (c clock) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Time(zerolog.TimestampFieldName, c())
}

// Close waits until the stream has taken what was written, a second at most.
// Lines that come later go to the file alone.
func (l *Logs) Close() {
	if l.stream != nil {
		l.stream.close()
	}
}
