package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// HookConfig says whom a Hook tells. Without a command and a webhook it tells nobody.
type HookConfig struct {
	Command []string      // program and arguments
	Webhook string        // http or https URL
	Timeout time.Duration // of one try, and of what is left to tell at the end
	Run     Run
	Log     zerolog.Logger
}

const (
	// hookCapacity is how many payloads may wait for one target.
	hookCapacity = 64
	// hookTries is how often one payload is sent to one target at most.
	hookTries = 2
	// hookPause is the wait between two tries.
	hookPause = time.Second
)

var (
	errTimeout        = errors.New("no end within the time limit")
	errSchedulerEnded = errors.New("the scheduler ended")
)

// Hook tells the world outside of escalations: a command, a webhook, or both get them
// as JSON. A target that hangs, fails or is not there costs a line in the log and
// nothing else. Make it with NewHook, run it once.
type Hook struct {
	cfg     HookConfig
	targets []*target
}

// NewHook returns a hook; nothing is told before Run.
func NewHook(cfg HookConfig) *Hook {
	h := &Hook{cfg: cfg}
	if len(cfg.Command) > 0 {
		h.add("command", "command "+filepath.Base(cfg.Command[0]), func(ctx context.Context, body []byte) error {
			_, err := cfg.Run(ctx, cfg.Command, body)
			return err
		})
	}
	if cfg.Webhook != "" {
		h.add("webhook", "webhook "+hostOf(cfg.Webhook), func(ctx context.Context, body []byte) error { return post(ctx, cfg.Webhook, body) })
	}
	return h
}

// Addressed is a payload that is not the same for all targets.
type Addressed interface {
	// To returns the payload for a target, such as "webhook alerts.example.com", when it is to be told, and a text in it that is
	// a secret of the target's; "" if there is none. It may take its time.
	To(ctx context.Context, target string) (payload any, secret string)
}

func (h *Hook) add(name, address string, send func(context.Context, []byte) error) {
	h.targets = append(h.targets, &target{
		address: address, send: send, timeout: h.cfg.Timeout, log: h.cfg.Log.With().Str("hook", name).Logger(), more: make(chan struct{}, 1),
	})
}

// Tell has payload told. It never waits.
func (h *Hook) Tell(payload any) {
	for _, t := range h.targets {
		t.put(payload)
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
	late := time.AfterFunc(h.cfg.Timeout, func() { giveUp(errSchedulerEnded) })
	defer late.Stop()
	targets.Wait()
	return context.Cause(ctx)
}
