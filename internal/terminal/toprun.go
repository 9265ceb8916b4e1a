package terminal

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

const (
	// flushEvery is how late what changes may be seen: a frame for each of a
	// thousand changes a second would be seen by nobody.
	flushEvery = 100 * time.Millisecond
	// againAfter is how long after a broken connection the next one is tried.
	againAfter = time.Second
)

// RunTop shows the view on the terminal out, with keys from in, until the person
// leaves or ctx ends; then the terminal is as it was. termName is the value of
// $TERM. The error is that of the terminal, or nil.
func RunTop(ctx context.Context, in, out *os.File, termName string, source TopSource, opts TopOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	profile := colorprofile.ASCII
	if opts.Colour {
		profile = colorprofile.ANSI
	}
	program := tea.NewProgram(newTopModel(ctx, source, opts), tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out),
		tea.WithColorProfile(profile), tea.WithEnvironment([]string{"TERM=" + termName, "SSH_TTY=none"}))
	var work sync.WaitGroup
	work.Go(func() { watch(ctx, source, program.Send) })
	_, err := program.Run()
	cancel()
	work.Wait()
	if errors.Is(err, tea.ErrInterrupted) || errors.Is(err, tea.ErrProgramKilled) && !errors.Is(err, tea.ErrProgramPanic) {
		return nil // it was told to end
	}
	return err
}

// watch sends what changes to the view, and connects again whenever it breaks.
func watch(ctx context.Context, source TopSource, send func(tea.Msg)) {
	for ctx.Err() == nil {
		f := feed{}
		stop := make(chan struct{})
		var flushing sync.WaitGroup
		flushing.Go(func() { f.flush(stop, send) })
		err := source.Watch(ctx, f.add)
		close(stop)
		flushing.Wait()
		if ctx.Err() != nil {
			return
		}
		send(brokenMsg{err})
		select {
		case <-ctx.Done():
		case <-time.After(againAfter):
		}
	}
}

// maxFeed is how many updates are kept between two frames; what was left out is
// seen with the next look.
const maxFeed = 1000

// feed collects updates between two frames: of what happens in a run the last that says
// what it does.
type feed struct {
	mu   sync.Mutex
	list []api.Update
	runs map[job.ID]api.Update
}

func (f *feed) add(u api.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case u.Kind != api.UpdateEvent:
		if len(f.list) < maxFeed {
			f.list = append(f.list, u)
		}
	case len(f.runs) < maxFeed && lastLine(u.Event) != "":
		if f.runs == nil {
			f.runs = map[job.ID]api.Update{}
		}
		f.runs[u.Job] = u
	}
}

func (f *feed) take() []api.Update {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := slices.AppendSeq(f.list, maps.Values(f.runs))
	f.list, f.runs = nil, nil
	return list
}

func (f *feed) flush(stop <-chan struct{}, send func(tea.Msg)) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			if list := f.take(); len(list) > 0 {
				send(updatesMsg(list))
			}
		}
	}
}
