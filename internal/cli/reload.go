package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/agentsched/agentsched/internal/config"
	"github.com/agentsched/agentsched/internal/daemon"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/logging"
	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/internal/server"
)

// hungUp reports whether a SIGHUP means that the terminal is gone, and not that
// somebody asks for the configuration to be read again.
func hungUp(hadTerminal bool) bool {
	if !hadTerminal {
		return false
	}
	return !hasTerminal()
}

// hasTerminal reports whether this process has a controlling terminal. After a
// hangup it cannot be opened any more.
func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	return tty.Close() == nil
}

// reload reads the configuration again, because of a signal, and says on out what
// has changed.
func (runs *runner) reload(ctx context.Context, e *engine, out io.Writer) {
	text, err := e.reloadNow(ctx)
	if text == "" {
		fmt.Fprintf(out, "scheduler: the configuration was not reloaded, the old one stays in force: %v\n", err)
		return
	}
	if err != nil {
		fmt.Fprintf(out, "scheduler: reload the configuration: %v\n", err)
	}
	fmt.Fprintln(out, text)
}

// reloadNow reads the configuration again, puts in force what can be, and returns
// what has changed. A file that is not right changes nothing, and the text is "".
func (e *engine) reloadNow(ctx context.Context) (string, error) {
	if e.notifier != nil {
		e.notifier.Reloading()
		defer e.notifier.Ready("working on what is submitted to " + e.state.dir.Path())
	}
	next, err := e.readConfig()
	if err != nil {
		e.state.log.Error().Err(err).Msg("configuration not reloaded")
		return "", err
	}
	text, err := e.reload(ctx, next)
	e.state.log.Info().Err(err).Msg(text)
	return text, err
}

// rereadConfig reads the configuration again, with the flags above it.
func (runs *runner) rereadConfig() (config.Config, error) {
	opts := runs.prog.configOptions()
	opts.NotEmpty = true
	next, err := runs.prog.loadConfigWith(opts)
	if err != nil {
		return next, err
	}
	if runs.atOnce > 0 {
		next.Concurrency.Max = runs.atOnce
	}
	if runs.cores > 0 {
		next.Cores.Count = runs.cores
	}
	return next, nil
}

// reload puts cfg in force and returns, for the user, what changed.
func (e *engine) reload(ctx context.Context, cfg config.Config) (string, error) {
	old := e.config()
	changed, fixed := config.Changes(old, cfg)
	t, err := tuning(&cfg, e.state.dir.EnforcesSandbox())
	if err != nil {
		return "the configuration stays as it was", err
	}
	e.hooks.use(e.newHook(&cfg))
	e.eval.Use(cfg.Evaluation)
	setLimits(e.state.store, &cfg)
	err = e.sched.Reload(ctx, t)
	limitRuns(e.host, &cfg, e.state.log)
	// What cannot be changed while it runs stays what it is.
	cfg = old.Reloaded(cfg)
	level, levelErr := e.level(&cfg.Log)
	err = errors.Join(err, levelErr, e.state.logs.SetLevels(level, cfg.Log.Levels))
	e.mu.Lock()
	e.cfg = cfg
	e.mu.Unlock()
	if e.triggers != nil {
		err = errors.Join(err, e.triggers.Reload(cfg.Triggers))
	}
	text := "the configuration was reloaded: nothing has changed"
	if len(changed) > 0 {
		text = "the configuration was reloaded: " + strings.Join(changed, ", ")
	}
	if len(fixed) > 0 {
		text += "; changed too, but only for the next start: " + strings.Join(fixed, ", ")
	}
	return text, err
}

// hooks is the hook that is told of escalations, which a reload replaces.
type hooks struct {
	engine  *engine
	mu      sync.Mutex
	current *daemon.Hook
	changed chan struct{} // capacity 1
}

func newHooks(e *engine, h *daemon.Hook) *hooks {
	return &hooks{engine: e, current: h, changed: make(chan struct{}, 1)}
}

// use makes h the hook from now on. The one before tells what it has to.
func (s *hooks) use(h *daemon.Hook) {
	s.mu.Lock()
	s.current = h
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *hooks) get() *daemon.Hook {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Tell tells of an escalation without waiting.
func (s *hooks) Tell(x isolation.Escalation) { s.get().Tell(x) }

// Ask tells a person that a job waits for them, without waiting.
func (s *hooks) Ask(q scheduler.Question) { s.get().Tell(linked{q, s}) }

// linked is a question that each target is told with a link of its own, if there are links.
type linked struct {
	scheduler.Question
	hooks *hooks
}

// To implements daemon.Addressed. A question without a link is told all the same.
func (a linked) To(ctx context.Context, target string) (payload any, secret string) {
	q, e := a.Question, a.hooks.engine
	cfg := e.config()
	if cfg.API.PublicURL == "" {
		return q, ""
	}
	code, err := e.sched.Links.New(ctx, &q, target, cfg.Escalation.LinkLasts.Std())
	if err != nil {
		log := e.state.logs.For(logging.Hooks)
		log.Error().Err(err).Str("job", string(q.Job)).Msg("a question is told without a link")
		return q, ""
	}
	q.Link = strings.TrimSuffix(cfg.API.PublicURL, "/") + server.AnswerPath + "?" + server.CodeParameter + "=" + code
	return q, code
}

// run works until ctx ends and every hook has told what it had to.
func (s *hooks) run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		turn, end := context.WithCancel(ctx)
		h := s.get()
		running.Go(func() { h.Run(turn) }) //nolint:errcheck // it is the cause of turn
		select {
		case <-ctx.Done():
		case <-s.changed:
		}
		end()
		if ctx.Err() != nil {
			return nil
		}
	}
}
