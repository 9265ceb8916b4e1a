package daemon

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// target is one receiver of a Hook and what is to be told to it.
type target struct {
	address string // as Addressed is told
	send    func(ctx context.Context, body []byte) error
	timeout time.Duration
	log     zerolog.Logger
	more    chan struct{} // capacity 1: queue may have become longer

	mu      sync.Mutex // guards what follows
	queue   []any      // the oldest first, at most hookCapacity
	dropped int        // for lack of room, since it was last logged
}

func (t *target) put(payload any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == hookCapacity {
		t.queue = t.queue[1:]
		t.dropped++
	}
	t.queue = append(t.queue, payload)
	select {
	case t.more <- struct{}{}:
	default:
	}
}

// run tells one after the other. When ctx ends it goes on until nothing is left
// or work ends.
func (t *target) run(ctx, work context.Context) {
	for {
		payload, ok := t.next(ctx)
		if !ok {
			return
		}
		m, err := t.message(work, payload)
		if err != nil {
			t.log.Error().Err(err).Msg("an escalation cannot be told: it has no JSON form")
			continue
		}
		if work.Err() != nil {
			t.log.Error().AnErr("cause", context.Cause(work)).RawJSON("escalation", m.shown()).Int("more", t.left()).Msg("escalations were not told")
			return
		}
		t.deliver(work, &m)
	}
}

// message is what one target is told.
type message struct {
	body   []byte
	secret string // in body; "": there is none
}

func (t *target) message(ctx context.Context, payload any) (m message, err error) {
	if a, ok := payload.(Addressed); ok {
		ctx, cancel := context.WithTimeoutCause(ctx, t.timeout, errTimeout)
		defer cancel()
		payload, m.secret = a.To(ctx, t.address)
	}
	m.body, err = json.Marshal(payload)
	return m, err
}

// shown returns the body for a log.
func (m *message) shown() []byte { return []byte(m.hide(string(m.body))) }

// partOfSecret is how many characters of a secret in a row may be shown, and one more.
const partOfSecret = 8

// hide takes the secret, and longer parts of it, out of a text: a target may say what it was sent, and be cut off within.
func (m *message) hide(text string) string {
	var shown strings.Builder
	for len(text) > 0 {
		n := 0
		for n < len(text) && strings.Contains(m.secret, text[:n+1]) {
			n++
		}
		if n >= partOfSecret {
			shown.WriteString("[hidden]")
		} else {
			n = 1
			shown.WriteByte(text[0])
		}
		text = text[n:]
	}
	return shown.String()
}

// next takes the oldest, for which it waits until ctx ends.
func (t *target) next(ctx context.Context) (any, bool) {
	for {
		if payload, ok := t.take(); ok {
			return payload, true
		}
		select {
		case <-t.more:
		case <-ctx.Done():
			return t.take() // both may have come at once
		}
	}
}

func (t *target) take() (any, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped > 0 {
		t.log.Error().Int("dropped", t.dropped).Msg("the oldest escalations were not told: too many waited")
		t.dropped = 0
	}
	if len(t.queue) == 0 {
		return nil, false
	}
	payload := t.queue[0]
	t.queue = t.queue[1:]
	return payload, true
}

func (t *target) left() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// deliver sends the body, twice if the first try fails.
func (t *target) deliver(work context.Context, m *message) {
	for try := 1; ; try++ {
		began := time.Now()
		err := t.try(work, m.body)
		if err == nil {
			t.log.Info().Dur("took_ms", time.Since(began)).Msg("escalation told")
			return
		}
		if try == hookTries || work.Err() != nil {
			t.log.Error().Str("error", m.hide(err.Error())).Int("try", try).RawJSON("escalation", m.shown()).Msg("an escalation was not told")
			return
		}
		t.log.Warn().Str("error", m.hide(err.Error())).Int("try", try).Msg("an escalation was not told; it is tried once more")
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
