package hook

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Config of a Hook. Without a command and a webhook it tells nobody.
type Config struct {
	Command []string      // program and arguments
	Webhook string        // http or https URL
	Timeout time.Duration // of one try, and of what is left to tell at the end; DefaultTimeout if 0
	// Run runs argv, which gets stdin, to its end; when ctx ends, nothing of it
	// may be left. See Through.
	Run func(ctx context.Context, argv []string, stdin []byte) error
	Log zerolog.Logger
}

// DefaultTimeout is how long a try may take.
const DefaultTimeout = 10 * time.Second

const (
	// capacity is how many payloads may wait for one target.
	capacity = 64
	// tries is how often one payload is sent to one target at most.
	tries = 2
	// pause is the wait between two tries.
	pause = time.Second
)

var (
	errTimeout = errors.New("no end within the time limit")
	errEnded   = errors.New("the scheduler ended")
)

// Hook tells targets. Make it with New, run it once.
type Hook struct {
	cfg     Config
	targets []*target
}

// New returns a hook; nothing is told before Run.
func New(cfg Config) *Hook {
	if cfg.Timeout <= 0 {
		cfg.Timeout = DefaultTimeout
	}
	h := &Hook{cfg: cfg}
	if len(cfg.Command) > 0 {
		h.add("command", func(ctx context.Context, body []byte) error { return cfg.Run(ctx, cfg.Command, body) })
	}
	if cfg.Webhook != "" {
		h.add("webhook", func(ctx context.Context, body []byte) error { return post(ctx, cfg.Webhook, body) })
	}
	return h
}

func (h *Hook) add(name string, send func(context.Context, []byte) error) {
	h.targets = append(h.targets, &target{
		send: send, timeout: h.cfg.Timeout, log: h.cfg.Log.With().Str("hook", name).Logger(), more: make(chan struct{}, 1),
	})
}

// Tell has payload told. It never waits.
func (h *Hook) Tell(payload any) {
	if len(h.targets) == 0 {
		return
	}
	body, err := json.Marshal(payload)
	if err != nil {
		h.cfg.Log.Error().Err(err).Msg("an escalation cannot be told: it has no JSON form")
		return
	}
	for _, t := range h.targets {
		t.put(body)
	}
}

// Run tells what there is to tell until ctx ends; then what is left gets the
// time limit of one try, all together. It returns the cause of ctx.
func (h *Hook) Run(ctx context.Context) error {
	work, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	var targets sync.WaitGroup
	for _, t := range h.targets {
		targets.Go(func() { t.run(ctx, work) })
	}
	<-ctx.Done()
	late := time.AfterFunc(h.cfg.Timeout, func() { giveUp(errEnded) })
	defer late.Stop()
	targets.Wait()
	return context.Cause(ctx)
}
