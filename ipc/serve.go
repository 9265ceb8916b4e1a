package ipc

import (
	"context"
	"fmt"
	"runtime/debug"
)

// dispatch sends a frame on its way: an answer to its call, all else to the inbox.
func (p *Peer) dispatch(m *inbound) error {
	switch {
	case m.isAnswer():
		p.settle(m)
		return nil
	case m.bare && p.settleBare(m):
		return nil
	case m.refusal == nil && m.id == nil:
		return p.in.addNote(m)
	}
	copied, err := p.in.addRequest(m)
	if copied {
		p.log.Warn().Str("method", m.method).Str("id", string(head(m.id))).Msg("request dropped: one of its id has no answer yet")
	}
	return err
}

func (p *Peer) settle(m *inbound) {
	a := answer{result: m.result}
	if m.failure != nil {
		a = answer{err: m.failure}
		if m.id == nil {
			p.log.Warn().Err(m.failure).Msg("peer could not read a frame of ours")
			return
		}
	}
	if id, ok := m.callID(); ok && p.calls.settle(id, a) {
		return
	}
	p.unknownAnswers.Add(1)
	p.log.Warn().Str("id", string(head(m.id))).Msg("answer that no call waits for")
}

// settleBare fails the call that a frame with nothing but its id seems to answer. Otherwise the call would wait for ever.
func (p *Peer) settleBare(m *inbound) bool {
	id, ok := m.callID()
	return ok && p.calls.settle(id, answer{err: errMalformedAnswer})
}

// serveNotes handles notifications one by one, in the order in which they came.
func (p *Peer) serveNotes(ctx context.Context) {
	for {
		m, ok := p.in.nextNote()
		if !ok {
			return
		}
		if p.cfg.Handler == nil {
			continue
		}
		err := p.guard(m.method, func() error {
			p.cfg.Handler.HandleNotify(ctx, m.method, m.params)
			return nil
		})
		if err != nil {
			p.log.Error().Err(err).Msg("notification not handled")
		}
	}
}

// serveRequests is one of the bounded number of goroutines that answer requests; it lives while requests wait.
func (p *Peer) serveRequests(ctx context.Context) {
	for {
		m, ok := p.in.nextRequest()
		if !ok {
			return
		}
		err := p.answer(ctx, m)
		p.in.answered()
		if err != nil {
			p.log.Warn().Err(err).Str("method", m.method).Msg("answer not sent")
		}
	}
}

func (p *Peer) answer(ctx context.Context, m *inbound) error {
	result, failure := any(nil), m.refusal
	if failure == nil {
		result, failure = p.handle(ctx, m)
		p.in.release(m)
	}
	unhurried, patient := result.(Unhurried)
	if patient {
		result = unhurried.Result
	}
	frame, err := encodeAnswer(m.id, result, failure)
	if err == nil {
		err = checkFrame(frame, MaxFrame)
	}
	if err != nil {
		p.log.Error().Err(err).Str("method", m.method).Msg("answer cannot be sent as it is")
		failure = &Error{Code: CodeInternal, Message: fmt.Sprintf("answer to %s: %v", m.method, err)}
		if frame, err = encodeAnswer(m.id, nil, failure); err != nil {
			return err
		}
	}
	defer p.in.await()()
	return p.send(ctx, outFrame{bytes: frame, patient: patient})
}

func (p *Peer) handle(ctx context.Context, m *inbound) (result any, failure *Error) {
	if p.cfg.Handler == nil {
		return nil, MethodNotFound(m.method)
	}
	err := p.guard(m.method, func() (err error) {
		result, err = p.cfg.Handler.HandleCall(ctx, m.method, m.params)
		return err
	})
	if err != nil {
		return nil, asError(err)
	}
	return result, nil
}

// guard runs a handler and turns its panic into an error: one bad request must not end the conversation, and with it
// every run of the core.
func (p *Peer) guard(method string, run func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.log.Error().Str("method", method).Str("panic", fmt.Sprint(v)).Bytes("stack", debug.Stack()).Msg("handler panicked")
			err = &Error{Code: CodeInternal, Message: "handler of " + method + " panicked"}
		}
	}()
	return run()
}
