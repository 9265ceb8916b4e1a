package ipc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// Run reads, writes and serves until the conversation ends, and returns why: ErrClosed, ErrEOF, a *TornError, ErrHung,
// ErrGarbage, ErrOverrun, what reading failed with, the cause given to Stop, or that of ctx. It never returns nil. Every
// call that waits fails with the same cause. When it returns, both streams are closed and no goroutine of the peer is
// left. So it waits for handlers, whose context ends with the cause; a handler that ignores its context delays it.
//
// If the other side is the reason, what was received before is still handled, and what is queued is still written if the
// stream allows it, for no longer than the hang limit each. If Stop or ctx is the reason, all of it is dropped:
//
//	cause found → calls fail → [received frames handled → BeforeClose → queued frames written] → handlers' context ends
//	            → r and w closed → goroutines end → Run returns
func (p *Peer) Run(ctx context.Context) error {
	if p.started.Swap(true) {
		return fmt.Errorf("run peer %s: %w", p.cfg.Name, ErrStarted)
	}
	work, cancel := context.WithCancelCause(ctx)
	p.in.serve = func() { p.handlers.Go(func() { p.serveRequests(work) }) }
	readEnd, writeEnd := make(chan error, 1), make(chan error, 1)
	go func() { readEnd <- p.readLoop() }()
	go func() { writeEnd <- p.writeLoop() }()
	p.handlers.Go(func() { p.serveNotes(work) })

	e := p.await(ctx, readEnd, writeEnd)
	p.calls.close(p.final(e.cause))
	close(p.readDone)
	if !e.ours {
		p.drain(ctx, e)
	}

	cause := p.final(e.cause)
	cancel(cause)
	p.in.discard()
	p.out.fail(cause)
	closeErr := errors.Join(p.r.Close(), p.w.Close())
	if !e.read {
		<-readEnd
	}
	if !e.written {
		<-writeEnd
	}
	p.handlers.Wait()
	p.log.Debug().Err(cause).AnErr("close", closeErr).Msg("peer ended")
	return fmt.Errorf("peer %s: %w", p.cfg.Name, cause)
}

// ending is how a conversation ended, and what has ended by itself already.
type ending struct {
	cause         error
	ours          bool // by Stop or ctx
	read, written bool // that goroutine has ended
	writeFailed   bool
}

// await waits for the first thing that ends the conversation. A failed write does not end it at once: the other side has
// usually died, and what it sent before is still read, up to its end or for the hang limit. CloseSend does not end it
// either: the other side may still answer.
func (p *Peer) await(ctx context.Context, readEnd, writeEnd <-chan error) *ending {
	e := &ending{}
	var overdue <-chan time.Time
	var writeErr error
	for {
		select {
		case <-ctx.Done():
			e.cause, e.ours = context.Cause(ctx), true
			return e
		case <-p.stopped.done:
			e.cause, e.ours = *p.stopped.err, true
			return e
		case <-p.hung.done:
			e.cause, e.writeFailed = *p.hung.err, true
			return e
		case e.cause = <-readEnd:
			e.read = true
			return e
		case <-overdue:
			e.cause = fmt.Errorf("%w: %w", ErrHung, writeErr)
			return e
		case writeErr = <-writeEnd:
			e.written, writeEnd = true, nil
			if writeErr != nil {
				e.writeFailed = true
				p.out.fail(fmt.Errorf("%w: %w", ErrEOF, writeErr))
				overdue = time.After(p.cfg.HangLimit)
			}
		}
	}
}

// final returns ErrClosed or ErrEOF for the end of the stream, and any other cause as it is. Which of the two can still
// change while the last requests are handled: the request to shut down may be one of them.
func (p *Peer) final(cause error) error {
	switch {
	case !errors.Is(cause, io.EOF):
		return cause
	case p.expectEOF.Load():
		return ErrClosed
	}
	return ErrEOF
}

// drain waits until what was received is handled, then until what is queued is written, at whose end w is closed.
func (p *Peer) drain(ctx context.Context, e *ending) {
	if e.writeFailed {
		p.out.fail(e.cause)
	}
	p.in.close()
	handled := make(chan struct{})
	go func() { p.handlers.Wait(); close(handled) }()
	p.waitUpTo(ctx, handled)
	if p.cfg.BeforeClose != nil {
		p.cfg.BeforeClose(p.final(e.cause))
	}

	if e.writeFailed || e.written {
		return
	}
	p.out.close(p.final(e.cause))
	p.waitUpTo(ctx, p.out.drained)
}

// waitUpTo waits for done, but no longer than the hang limit, nor after Stop, the end of ctx or ErrHung.
func (p *Peer) waitUpTo(ctx context.Context, done <-chan struct{}) {
	timer := time.NewTimer(p.cfg.HangLimit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	case <-ctx.Done():
	case <-p.stopped.done:
	case <-p.hung.done:
	}
}

// writeLoop writes what is queued, up to batchSize bytes at a time, and closes w after CloseSend. A write that takes
// longer than the hang limit means a hung peer, unless the outbox is patient. Run then closes w, which ends the Write.
func (p *Peer) writeLoop() error {
	defer close(p.out.drained)
	var writing atomic.Bool
	var hung *time.Timer
	hung = time.AfterFunc(time.Hour, func() {
		switch {
		case !writing.Load(): // it was done when the limit was reached
		case p.out.patient.Load():
			hung.Reset(p.cfg.HangLimit)
		default:
			p.hung.set(fmt.Errorf("%w: a frame was not taken for %v", ErrHung, p.cfg.HangLimit))
		}
	})
	hung.Stop()
	defer hung.Stop()
	for {
		frame, ok := p.out.next()
		if !ok {
			return p.w.Close()
		}
		for n := 1; ok; n++ {
			if err := p.enc.add(frame); err != nil {
				return err
			}
			if len(p.enc.buf) >= batchSize {
				break
			}
			frame, ok = p.out.another(n)
		}
		writing.Store(true)
		hung.Reset(p.cfg.HangLimit)
		err := p.enc.flush()
		writing.Store(false)
		hung.Stop()
		if err != nil {
			return err
		}
	}
}

// readLoop reads until the stream ends, is full of garbage, or overruns the inbox. It never waits for the other side to
// read, so two peers cannot wait for each other here: an answer to a bad line is queued like an answer to a request.
func (p *Peer) readLoop() error {
	for {
		frame, err := p.dec.Next()
		var m *inbound
		var oversize *OversizeError
		var garbage *GarbageError
		switch {
		case err == nil:
			m = parse(frame)
		case errors.As(err, &oversize):
			m = p.refuseOversized(oversize)
		case errors.As(err, &garbage):
			m = p.refuseGarbage(garbage)
		default:
			return err
		}
		if err := p.dispatch(m); err != nil {
			return err
		}
		if garbage != nil && !garbage.JSON && p.bad.add(p.cfg.Now()) {
			return fmt.Errorf("%w: %d lines within %v, the last %q", ErrGarbage, p.cfg.GarbageLimit, p.cfg.GarbageWindow, garbage.Head)
		}
	}
}

func (p *Peer) refuseOversized(e *OversizeError) *inbound {
	p.oversized.Add(1)
	p.log.Warn().Int("size", e.Size).Int("limit", e.Max).Msg("oversized frame skipped")
	return new(inbound).refuse(CodeInvalidRequest, e.Error())
}

func (p *Peer) refuseGarbage(e *GarbageError) *inbound {
	if e.JSON {
		p.log.Warn().Err(e).Msg("frame refused")
		return new(inbound).refuse(CodeInvalidRequest, "a frame is one JSON object; batches are not taken")
	}
	p.garbage.Add(1)
	p.log.Warn().Int("size", e.Size).Str("head", fmt.Sprintf("%q", e.Head)).Msg("garbage on the stream")
	return new(inbound).refuse(CodeParse, "line is "+e.Why)
}
