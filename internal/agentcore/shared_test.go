package agentcore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// keeper is a scheduler that answers what a test says, and notes what it was asked.
type keeper struct {
	mu     sync.Mutex
	ledger string
	heard  []string
	refuse *ipc.Rejection
	answer []ipc.ReserveResult // to the next ones; the last one again
}

func (k *keeper) HandleNotify(context.Context, string, json.RawMessage) {}

func (k *keeper) HandleCall(_ context.Context, method string, params json.RawMessage) (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch method {
	case ipc.MethodReserve:
		var q ipc.Reserve
		if err := json.Unmarshal(params, &q); err != nil {
			return nil, err
		}
		k.heard = append(k.heard, fmt.Sprintf("reserve %d of %s, %d tokens, running %t", q.ID, q.Job, q.Demand.Output, q.Running))
		got := k.answer[0]
		if len(k.answer) > 1 && !q.Running {
			k.answer = k.answer[1:]
		}
		got.Ledger = k.ledger
		return got, nil
	case ipc.MethodRelease:
		var q ipc.Release
		if err := json.Unmarshal(params, &q); err != nil {
			return nil, err
		}
		k.heard = append(k.heard, fmt.Sprintf("release %d of %s, %g US dollars", q.ID, q.Job, q.Spent.CostUSD))
		return ipc.Empty{}, nil
	}
	var q ipc.SharePermit
	if err := json.Unmarshal(params, &q); err != nil {
		return nil, err
	}
	k.heard = append(k.heard, fmt.Sprintf("%s %s/%d %s %s", method, q.Job, q.Attempt, q.Worker, q.Model))
	return ipc.SharePermitResult{Rejection: k.refuse}, nil
}

// wants checks what was asked since the last call.
func (k *keeper) wants(t *testing.T, when string, want ...string) {
	t.Helper()
	synctest.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	slices.Sort(k.heard)
	slices.Sort(want)
	if !slices.Equal(k.heard, want) {
		t.Errorf("%s: the scheduler was asked %q, want %q", when, k.heard, want)
	}
	k.heard = nil
}

// sharedTest plays with a gate whose rates and windows a scheduler keeps.
func sharedTest(t *testing.T, play func(t *testing.T, k *keeper, g *permit.Gate, s *shared)) {
	synctest.Test(t, func(t *testing.T) {
		k := &keeper{ledger: "one", answer: []ipc.ReserveResult{{Output: 50}}}
		toCore, fromKeeper := io.Pipe()
		toKeeper, fromCore := io.Pipe()
		life, end := context.WithCancel(t.Context())
		c := &Core{cfg: Config{Log: zerolog.Nop()}, life: life, peer: ipc.NewPeer(toCore, fromCore, ipc.Config{Log: zerolog.Nop()})}
		other := ipc.NewPeer(toKeeper, fromKeeper, ipc.Config{Log: zerolog.Nop(), Handler: k})
		var peers sync.WaitGroup
		peers.Go(func() { c.peer.Run(life) }) //nolint:errcheck // it ends with its context
		peers.Go(func() { other.Run(life) })  //nolint:errcheck // likewise
		defer peers.Wait()
		defer end()
		c.shared = newShared(c)
		g := permit.NewGate(permit.Limits{MaxConcurrent: 10, TTL: time.Hour})
		g.SetShared(c.shared)
		play(t, k, g, c.shared)
		end()
		c.shared.telling.Wait()
	})
}

func requestOf(id job.ID) permit.Request {
	return permit.Request{Job: id, Tenant: "t", Attempt: 1, Choice: job.Choice{Worker: "codex"}, Model: "openai/gpt"}
}

// begins asks for a permit and uses it.
func begins(t *testing.T, g *permit.Gate, id job.ID) *permit.Permit {
	t.Helper()
	p, err := g.Request(t.Context(), requestOf(id))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = g.Use(p.ID, id, 1); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSharedPermit: the scheduler's refusal is the gate's, and what a permit took that was not used goes back.
func TestSharedPermit(t *testing.T) {
	sharedTest(t, func(t *testing.T, k *keeper, g *permit.Gate, _ *shared) {
		p, err := g.Request(t.Context(), requestOf("a"))
		if err != nil {
			t.Fatal(err)
		}
		k.wants(t, "asked for", "share_permit a/1 codex openai/gpt")
		p.Revoke(errors.New("isolated"))
		k.wants(t, "not used", "return_permit a/1 codex openai/gpt")
		begins(t, g, "a").Settle(job.Usage{}, false)
		k.wants(t, "used", "share_permit a/1 codex openai/gpt")
		k.refuse = &ipc.Rejection{Reason: job.RateLimited, RetryAfterMS: 1500, Message: "full", Waiting: job.WaitRate}
		_, err = g.Request(t.Context(), requestOf("b"))
		var no *permit.Rejection
		if !errors.As(err, &no) || no.Reason != job.RateLimited || no.RetryAfter != 1500*time.Millisecond || no.Waiting != job.WaitRate {
			t.Errorf("refused with %v", err)
		}
		k.wants(t, "refused", "share_permit b/1 codex openai/gpt")
		if unused, running := g.Counts(); unused+running != 0 {
			t.Error("a refused permit holds a slot")
		}
	})
}

// TestSharedReserve: a request waits as long as the scheduler says, and says what it has used.
func TestSharedReserve(t *testing.T) {
	sharedTest(t, func(t *testing.T, k *keeper, g *permit.Gate, s *shared) {
		p := begins(t, g, "a")
		k.wants(t, "begins", "share_permit a/1 codex openai/gpt")
		k.answer = []ipc.ReserveResult{{Pending: true}, {Pending: true, WaitMS: 250}, {Output: 50}}
		begun := time.Now()
		r, err := p.Reserve(t.Context(), permit.Demand{Output: 80})
		if err != nil || r.Output != 50 || time.Since(begun) != 250*time.Millisecond {
			t.Fatalf("answered %+v, %v after %s", r, err, time.Since(begun))
		}
		again := "reserve 1 of a, 80 tokens, running false"
		k.wants(t, "reserved", again, again, again)
		r.Charge(job.Usage{CostUSD: 0.25})
		r.End()
		r.End()
		k.wants(t, "ended", "release 1 of a, 0.25 US dollars")

		k.answer = []ipc.ReserveResult{{Stop: &ipc.ReserveStop{Limit: "cost_window", RetryAfterMS: 1000, Message: "used up"}}}
		_, err = p.Reserve(t.Context(), permit.Demand{Output: 80})
		var stop *permit.Stop
		if !errors.As(err, &stop) || *stop != (permit.Stop{Limit: permit.LimitWindow, RetryAfter: time.Second, Message: "used up"}) {
			t.Errorf("stopped with %v", err)
		}
		k.answer = []ipc.ReserveResult{{Refused: "over"}}
		if _, err = p.Reserve(t.Context(), permit.Demand{Output: 80}); !errors.Is(err, permit.ErrUnknown) {
			t.Errorf("refused with %v", err)
		}
		k.wants(t, "refused", "reserve 2 of a, 80 tokens, running false", "reserve 3 of a, 80 tokens, running false")

		k.answer = []ipc.ReserveResult{{Pending: true, WaitMS: 1000}}
		gone := errors.New("the program has gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(500*time.Millisecond, func() { cancel(gone) })
		if _, err = p.Reserve(ctx, permit.Demand{Output: 80}); !errors.Is(err, gone) {
			t.Errorf("given up with %v", err)
		}
		k.wants(t, "given up", "reserve 4 of a, 80 tokens, running false", "release 4 of a, 0 US dollars")
		p.Settle(job.Usage{}, false)
	})
}

// TestSharedTakeover: the next scheduler hears of what is under way.
func TestSharedTakeover(t *testing.T) {
	sharedTest(t, func(t *testing.T, k *keeper, g *permit.Gate, s *shared) {
		a, b := begins(t, g, "a"), begins(t, g, "b")
		first, err := a.Reserve(t.Context(), permit.Demand{Output: 80})
		if err != nil {
			t.Fatal(err)
		}
		k.wants(t, "one scheduler", "share_permit a/1 codex openai/gpt", "share_permit b/1 codex openai/gpt", "reserve 1 of a, 80 tokens, running false")
		k.ledger = "two"
		second, err := b.Reserve(t.Context(), permit.Demand{Output: 80})
		if err != nil {
			t.Fatal(err)
		}
		k.wants(t, "another one", "reserve 2 of b, 80 tokens, running false", "reserve 1 of a, 50 tokens, running true")
		k.ledger = "three"
		k.wants(t, "while nobody asks anything")
		s.remember(t.Context(), "three") // as a report says
		k.wants(t, "heard of by a report", "reserve 1 of a, 50 tokens, running true", "reserve 2 of b, 50 tokens, running true")
		s.remember(t.Context(), "three")
		k.wants(t, "heard of again")
		first.End()
		second.End()
		a.Settle(job.Usage{}, false)
		b.Settle(job.Usage{}, false)
	})
}
