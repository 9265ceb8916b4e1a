package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
)

// bodyTime is how long a run may take to send a request.
const bodyTime = time.Minute

// exchange is one request of a run, from its body to its bill.
type exchange struct {
	*Session
	endpoint endpoint
	request  *request
	provider *provider
	model    Model
	price    *job.Price
	from     *http.Request
	body     []byte // as the run sent it
}

// serve answers a request. Its error is a *refusal, which is to be written, or another: then there is nobody to answer, or the
// answer has begun.
func (s *Session) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, e endpoint) error {
	if e.path == "" {
		s.list(w)
		return nil
	}
	if err := s.slots.Acquire(ctx, 1); err != nil {
		return context.Cause(ctx)
	}
	defer s.slots.Release(1)
	size := s.gateway.config.MaxBody
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength)
	}
	if err := s.room.Acquire(ctx, size); err != nil {
		return context.Cause(ctx)
	}
	defer s.room.Release(size)
	body, err := s.read(ctx, w, r)
	if err != nil {
		return err
	}
	x := &exchange{Session: s, endpoint: e, from: r, body: body}
	if err := x.understand(); err != nil {
		return err
	}
	if e.free {
		return x.pass(ctx, w, nil)
	}
	return x.charged(ctx, w)
}

// read returns the body, which is at most MaxBody.
func (s *Session) read(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return nil, refuse(http.StatusUnsupportedMediaType, "unsupported_encoding", "content-encoding %s is not read: send the request as it is", printable(coding))
	}
	most := s.gateway.config.MaxBody
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "request_too_large", "the request has more than %d bytes", most)
	if r.ContentLength > most {
		return nil, tooLarge
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // not every writer has deadlines
	var body bytes.Buffer
	body.Grow(int(min(max(r.ContentLength, 0), 1<<20)) + bytes.MinRead)
	n, err := body.ReadFrom(io.LimitReader(r.Body, most+1))
	_ = control.SetReadDeadline(time.Time{})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, refuse(http.StatusRequestTimeout, "incomplete_request", "the request did not come whole within %s", bodyTime)
	case n > most:
		return nil, tooLarge
	}
	return body.Bytes(), nil
}

// understand reads the request, and refuses what the run may not ask.
func (x *exchange) understand() error {
	q, err := parse(x.endpoint, x.body)
	if err != nil {
		return err
	}
	x.request = q
	if len(x.config.Models) > 0 && !matches(x.config.Models, q.model) {
		x.deny("model " + printable(q.model))
		return refuse(http.StatusNotFound, "model_not_found", "the model %q does not exist or this run may not use it: it may use %s",
			printable(q.model), strings.Join(x.config.Models, ", "))
	}
	if !x.config.HostedTools {
		if err := q.confine(); err != nil {
			if q.stored != "" {
				x.deny(q.stored)
			}
			return err
		}
		for _, what := range q.removed {
			x.deny(what)
		}
	}
	for _, p := range x.providers {
		if p.serves(x.endpoint.api, q.model) {
			x.provider = p
			break
		}
	}
	if x.provider == nil {
		return refuse(http.StatusNotFound, "model_not_found", "no provider of the gateway has the model %q for the API %s", printable(q.model), x.endpoint.api)
	}
	x.model = x.gateway.config.bounds(q.model)
	if p, known := x.gateway.config.Prices[q.model]; known {
		x.price = &p
	}
	return nil
}

// charged reserves what the request can cost, has it answered, and books what it did cost.
func (x *exchange) charged(ctx context.Context, w http.ResponseWriter) error {
	q, p := x.request, x.config.Permit
	if p.CostUSD > 0 && x.price == nil {
		return refuse(http.StatusBadRequest, "no_price", "the model %q has no price, and this run is limited in US dollars: "+
			"add prices: {%q: {input: …, output: …}}, in US dollars per million tokens, to the configuration", printable(q.model), printable(q.model))
	}
	field := x.provider.outputField(q.api, x.provider.base.Host)
	d := x.probably(q.demand(x.model, x.price))
	if len(q.limits) == 0 && field == "" {
		d.Beside = d.Output // it cannot be told to say less
	}
	d.Model = strings.TrimPrefix(x.config.RatedAs+"/"+q.model, "/")
	x.waiting.Add(1)
	reserved, err := p.Reserve(ctx, d)
	x.waiting.Add(-1)
	var over *permit.Stop
	switch {
	case errors.As(err, &over):
		if x.config.Exceeded != nil {
			x.tell(func() { x.config.Exceeded(over) })
		}
		return refuse(http.StatusPaymentRequired, "budget_exceeded", "%v; the run is stopped", over)
	case errors.Is(err, permit.ErrUnknown):
		return refuse(http.StatusPaymentRequired, "budget_exceeded", "the run has ended")
	case err != nil:
		return err
	}
	defer reserved.End()
	b := &bill{provider: x.provider.Name, model: q.model, price: x.price, estimate: d.Estimate, charge: func(c Charge) {
		reserved.Charge(c.Usage)
		x.charge(c)
	}}
	q.allow(reserved.Output, x.model, field)
	return x.pass(ctx, w, b)
}

func (x *exchange) charge(c Charge) {
	if x.config.Charge != nil {
		x.tell(func() { x.config.Charge(c) })
	}
}

// input is what an answer said of its input.
type input struct {
	density float64 // tokens of a byte of the body
	token   float64 // what a token cost, in micro-dollars; 0: unknown
}

// probably returns the demand with the input that the last answer of the model lets expect for a body of this size: what a
// conversation grows by is mostly of the same kind, and what came from a cache does so again.
func (x *exchange) probably(d permit.Demand) permit.Demand {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last := x.inputs[x.request.model]; last.density > 0 {
		d.Estimate = min(int64(math.Ceil(last.density*float64(x.request.size))), d.Input)
		d.Token = last.token
	}
	return d
}

// learn takes what an answer has used.
func (x *exchange) learn(u job.Usage) {
	if u.InputTokens <= 0 {
		return
	}
	last := input{density: float64(u.InputTokens) / float64(x.request.size)}
	if x.price != nil {
		last.token = (u.CostUSD*1e6 - x.price.Output*float64(u.OutputTokens)) / float64(u.InputTokens)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.inputs) >= maxInputs {
		clear(x.inputs)
	}
	x.inputs[x.request.model] = last
}

// maxInputs bounds what a run that makes up names of models can make a session remember.
const maxInputs = 64

// pass sends the request and passes the answer on. b is nil for a request that costs nothing.
func (x *exchange) pass(ctx context.Context, w http.ResponseWriter, b *bill) error {
	ctx, cancel := context.WithCancel(ctx) // so that an answer that is not wanted to its end is cut
	defer cancel()
	got, err := x.send(ctx, x.provider, x.endpoint, x.from, x.request.model, x.request.body(x.body))
	if err != nil {
		if b != nil && errors.Is(err, errMaybeSent) {
			b.cut(nil)
		}
		var refused *refusal
		if ctx.Err() == nil && !errors.As(err, &refused) {
			err = refuse(http.StatusBadGateway, "provider_unreachable", "provider %s: %v", x.provider.Name, errMaybeSent)
		}
		return err
	}
	if got.buffered != nil {
		got.buffered.write(w, got.until)
		return nil
	}
	res := got.res
	defer res.Body.Close()
	if coding := res.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		if b != nil {
			b.cut(nil)
		}
		return refuse(http.StatusBadGateway, "unsupported_encoding", "provider %s answered in the encoding %s, which cannot be metered", x.provider.Name, printable(coding))
	}
	pass(w.Header(), res.Header, toRun, got.secret.Conceal)
	w.WriteHeader(res.StatusCode)
	m := newMeter(isEvents(res.Header), nil)
	if b != nil && m.events {
		m.changed = func() {
			b.hour = m.hour
			b.add(m.usage, false, false)
		}
	}
	err = x.gateway.relay(w, res, got.secret.Token, m)
	if b != nil {
		if m.final && (err == nil || !m.events || x.request.api != Chat) { // chat completions may count as they go
			b.hour = m.hour
			b.add(m.usage, false, true)
			x.learn(b.total)
		} else {
			b.cut(m)
		}
	}
	return err
}

// list names the models that the run may use, in the fields of both vendors.
func (s *Session) list(w http.ResponseWriter) {
	names := map[string]bool{}
	for name := range s.gateway.config.Models {
		names[name] = len(s.config.Models) == 0 || matches(s.config.Models, name)
	}
	for _, name := range s.config.Models {
		names[name] = !strings.Contains(name, "*")
	}
	data := []any{}
	for name, may := range names {
		if may {
			data = append(data, map[string]any{"id": name, "object": "model", "type": "model", "display_name": name, "owned_by": "gateway", "created": 0})
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(mustJSON(map[string]any{"object": "list", "data": data, "has_more": false}))
}
