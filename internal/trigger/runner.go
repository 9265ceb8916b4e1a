package trigger

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/statedir"
)

// Config of a Runner. What is not said to be optional is required.
type Config struct {
	Triggers map[Name]Settings // valid, with absolute paths (Settings.Resolved)
	// Submit makes jobs of a firing, durably. It may be called by several at once
	// and again with the same ID, see Firing. An error that wraps ErrActive skips
	// the firing; any other has it tried again later, or by a webhook's sender.
	Submit func(ctx context.Context, f Firing) error
	// Outcome returns what has become of the jobs of a firing, false if nobody
	// remembers them. Isolate is told of a trigger that is isolated since its jobs keep
	// failing, and Isolated says why a trigger must not fire; "" it may. Optional, all
	// or none: then nobody looks whether jobs fail.
	Outcome  func(ctx context.Context, firing string) (Outcome, bool, error)
	Isolate  func(i Isolation)
	Isolated func(t Name) string
	// State has the document TriggersFile, in which the runner keeps what it did.
	State statedir.Documents
	// Run runs a shell command in a folder with its standard output going to
	// stdout, until it has ended or ctx has, and then leaves nothing of it behind.
	// Required for triggers with a command. See Through.
	Run func(ctx context.Context, command, dir string, stdout io.Writer) error
	// Listen opens the listener for webhooks. It is called once there is a
	// webhook, and again after there was none. See Listener.
	Listen func() (net.Listener, error)
	Getenv func(string) string // for the secrets of webhooks; optional: os.Getenv
	Now    func() time.Time    // the wall clock; optional: time.Now
	Log    zerolog.Logger
}

// Runner fires triggers. Make it with New and run it once.
type Runner struct {
	cfg  Config
	book *book
	kick chan struct{} // capacity 1: wanted is another
	// judging has capacity 1: jobs have ended.
	judging chan struct{}

	mu     sync.Mutex // guards what follows
	wanted map[Name]Settings
	states map[Name]*state // of those in wanted
	hooks  map[string]*endpoint

	readings readings      // bodies of requests to webhooks
	room     chan struct{} // one for each request that is handled
}

// New returns a runner that has read its document. Nothing fires before Run.
func New(ctx context.Context, cfg Config) (*Runner, error) {
	if cfg.Getenv == nil {
		cfg.Getenv = os.Getenv
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	b, aside, err := openBook(ctx, cfg.State, cfg.Now())
	if err != nil {
		return nil, err
	}
	if aside != "" {
		cfg.Log.Error().Str("file", aside).Msg("what triggers did is damaged and was set aside; all of them begin anew")
	}
	r := &Runner{cfg: cfg, book: b, kick: make(chan struct{}, 1), judging: make(chan struct{}, 1), states: map[Name]*state{}, hooks: map[string]*endpoint{}, room: make(chan struct{}, maxRequests)}
	return r, r.Reload(cfg.Triggers)
}

// Reload replaces the triggers. Those that are the same go on undisturbed, but
// for webhooks, whose secrets are read again. If one is not valid, it returns an
// error and nothing changes.
func (r *Runner) Reload(triggers map[Name]Settings) error {
	found := ValidateAll(triggers)
	for _, name := range sortedNames(triggers) {
		if err := found[name]; err != nil {
			return fmt.Errorf("trigger %s: %w", name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = maps.Clone(triggers)
	for name := range r.states {
		if _, still := triggers[name]; !still {
			delete(r.states, name)
		}
	}
	for name := range triggers {
		if r.states[name] == nil {
			r.states[name] = &state{}
		}
	}
	select {
	case r.kick <- struct{}{}:
	default:
	}
	return nil
}

// Run fires the triggers until ctx ends, and returns its cause, or earlier when
// it cannot listen for the webhooks that are there at the start. When it
// returns, no command that it started is left, and it may be called again.
func (r *Runner) Run(ctx context.Context) error {
	select {
	case r.kick <- struct{}{}: // also if it has run before
	default:
	}
	r.Judge() // jobs may have ended meanwhile
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	running := map[Name]*active{}
	defer func() {
		stop(errors.New("the triggers are stopped"))
		for _, a := range running {
			<-a.done
		}
	}()
	web := &server{runner: r}
	defer web.close()
	for first := true; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.judging:
			r.judge(ctx)
			continue
		case <-r.kick:
		}
		r.mu.Lock()
		wanted := maps.Clone(r.wanted)
		r.mu.Unlock()
		r.apply(ctx, running, wanted)
		if err := web.adjust(ctx, wanted); err != nil {
			if first {
				return err
			}
			r.failHooks(wanted, err)
			r.cfg.Log.Error().Err(err).Msg("webhooks are not heard; the next reload tries again")
		}
		first = false
	}
}

// active is a trigger whose source runs.
type active struct {
	settings Settings
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when its source has ended
}

var errReplaced = errors.New("the configuration of triggers changed")

// apply ends the sources that are wanted no longer, or not so, and starts those
// that are missing.
func (r *Runner) apply(ctx context.Context, running map[Name]*active, wanted map[Name]Settings) {
	for name, a := range running {
		s, still := wanted[name]
		if still && s.IsEnabled() && s.equal(a.settings) && s.Webhook == nil {
			continue
		}
		a.cancel(errReplaced)
		<-a.done
		delete(running, name)
	}
	var enabled []Name
	for _, name := range sortedNames(wanted) {
		if wanted[name].IsEnabled() {
			enabled = append(enabled, name)
		}
	}
	if err := r.book.keep(enabled); err != nil {
		r.cfg.Log.Error().Err(err).Msg("what triggers did cannot be kept")
	}
	for _, name := range enabled {
		if running[name] == nil {
			running[name] = r.start(ctx, name, wanted[name])
		}
	}
}

func (r *Runner) start(ctx context.Context, name Name, s Settings) *active {
	ctx, cancel := context.WithCancelCause(ctx)
	a := &active{settings: s, cancel: cancel, done: make(chan struct{})}
	src := &source{
		runner: r, name: name, settings: s, id: sourceID(s),
		log: r.cfg.Log.With().Str("trigger", string(name)).Logger(),
	}
	src.show(func(st *state) { *st = state{} })
	go func() {
		defer close(a.done)
		defer cancel(nil)
		src.run(ctx)
	}()
	return a
}

// failHooks shows why no webhook is heard.
func (r *Runner) failHooks(wanted map[Name]Settings, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, s := range wanted {
		if st := r.states[name]; st != nil && s.Webhook != nil {
			st.err = err.Error()
		}
	}
}

// state is what Status shows beside the book.
type state struct {
	next     time.Time
	err      string
	failures int // in a row, as the breaker counts
}

// Status returns how each trigger is doing, by name. It may be called at any
// time.
func (r *Runner) Status() []api.Trigger {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := []api.Trigger{}
	for _, name := range sortedNames(r.wanted) {
		s := r.wanted[name]
		one := api.Trigger{Name: string(name), Source: s.Source(), Enabled: s.IsEnabled()}
		if one.Enabled {
			rec, st := r.book.get(name, sourceID(s)), r.states[name]
			one.Next, one.LastError = st.next, st.err
			one.Last, one.Fired, one.Skipped, one.Failures = rec.FiredAt, rec.Fired, rec.Skipped, st.failures
			if r.cfg.Isolated != nil {
				one.Isolated = r.cfg.Isolated(name)
			}
		}
		list = append(list, one)
	}
	return slices.Clip(list)
}
