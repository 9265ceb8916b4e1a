package daemon

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// target is one receiver of a Hook and what is to be told to it.
type target struct {
	send    func(ctx context.Context, body []byte) error
	timeout time.Duration
	log     zerolog.Logger
	more    chan struct{} // capacity 1: queue may have become longer

	mu      sync.Mutex // guards what follows
	queue   [][]byte   // the oldest first, at most hookCapacity
	dropped int        // for lack of room, since it was last logged
}

func (t *target) put(body []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == hookCapacity {
		t.queue = t.queue[1:]
		t.dropped++
	}
	t.queue = append(t.queue, body)
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// run tells one after the other. When ctx ends it goes on until nothing is left
// or work ends.
func (t *target) run(ctx, work context.Context) {
	for {
		body, ok := t.next(ctx)
		if !ok {
			return
		}
		if work.Err() != nil {
			t.log.Error().AnErr("cause", context.Cause(work)).RawJSON("escalation", body).Int("more", t.left()).Msg("escalations were not told")
			return
		}
		t.deliver(work, body)
	}
}

// next takes the oldest, for which it waits until ctx ends.
func (t *target) next(ctx context.Context) ([]byte, bool) {
	for {
		if body, ok := t.take(); ok {
			return body, true
		}
		select {
		case <-t.more:
		case <-ctx.Done():
			return t.take() // both may have come at once
		}
	}
}

func (t *target) take() ([]byte, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped > 0 {
		t.log.Error().Int("dropped", t.dropped).Msg("the oldest escalations were not told: too many waited")
		t.dropped = 0
	}
	if len(t.queue) == 0 {
		return nil, false
	}
	body := t.queue[0]
	t.queue = t.queue[1:]
	return body, true
}

func (t *target) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// deliver sends the body, twice if the first try fails.
func (t *target) deliver(work context.Context, body []byte) {
	for try := 1; ; try++ {
		began := time.Now()
		err := t.try(work, body)
		if err == nil {
			t.log.Info().Dur("took_ms", time.Since(began)).Msg("escalation told")
			return
		}
		if try == hookTries || work.Err() != nil {
			t.log.Error().Err(err).Int("try", try).RawJSON("escalation", body).Msg("an escalation was not told")
			return
		}
		t.log.Warn().Err(err).Int("try", try).Msg("an escalation was not told; it is tried once more")
		select {
		case <-time.After(hookPause):
		case <-work.Done():
		}
	}
}

func (t *target) try(work context.Context, body []byte) error {
	ctx, cancel := context.WithTimeoutCause(work, t.timeout, errTimeout)
	defer cancel()
	return t.send(ctx, body)
}
