package agentcore

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/ask"
	"github.com/agentsched/agentsched/internal/egress"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/worker"
)

// conversation is the part of an execution that is about what its agent asks and is told. What
// the job was granted and its rules answer here; a question for a person goes to the scheduler,
// and the run waits for as long as the job says:
//
//	Ask ──► policy ──► Answer at once
//	          └─► ask_person ──► tell_run, or nobody in time ──► Answer
//	tell_run ──► Message, Interrupt ──► Settle ──► report_talk
//
// What is to be reported is reported until the scheduler has it, at the latest with the end of
// the attempt.
type conversation struct {
	peer    *ipc.Peer
	job     job.ID
	attempt int
	log     zerolog.Logger
	emit    func(job.Event)
	clock   func(waits bool) // stops the clocks of the run, or has them go on
	inputs  *inbox
	wait    time.Duration // how long the run waits for a person
	clean   func(string) string

	ctx    context.Context // ends with the run
	cancel context.CancelFunc
	beside sync.WaitGroup

	mu          sync.Mutex // guards what follows
	session     string     // of the program: that with which the attempt goes on, until it tells another
	resumes     bool       // the attempt goes on with one
	spec        *job.Spec
	rules       []job.AskRule
	policy      *ask.Policy
	dir         string // the workspace
	able        worker.Conversation
	name        string                 // what the adapter is called, for who cannot be told
	live        bool                   // the worker's session takes inputs
	open        map[string]*asked      // by the program's ids
	asks        int                    // questions so far
	heard       map[string]ipc.Message // messages that the run has, by id
	shown       map[string]bool        // of these, those of which an event has told
	refused     int                    // messages that the program did not take
	interrupted bool
	unreported  ipc.ReportTalk
	reporting   bool
}

// asked is a question that waits for a person.
type asked struct {
	id       string // which no other question of the run has: a program may use its own again
	question worker.Question
	timer    *time.Timer
	reply    chan<- worker.Answer // of who asks beside the program's protocol, with room for the answer; nil: the program asks
}

// maxAsked bounds the questions of a run that wait at once.
const maxAsked = 64

func newConversation(e *execution) *conversation {
	r := &e.submit
	c := &conversation{
		peer: e.core.peer, job: r.Job, attempt: r.Attempt, session: r.Session, resumes: r.Session != "", log: e.log, emit: e.emit, inputs: newInbox(),
		wait: r.Spec.Ask.WaitOrDefault(), clean: e.secrets.String,
		spec: &r.Spec, rules: r.Rules, open: map[string]*asked{}, heard: map[string]ipc.Message{}, shown: map[string]bool{},
		unreported: ipc.ReportTalk{Job: r.Job, Attempt: r.Attempt},
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// begin says which worker runs, in which folder, and gives a session that goes on what it was told
// meanwhile. What a new session is to know stands in its instructions.
func (c *conversation) begin(a worker.Adapter, name, dir string, clock func(bool), given, spoken []ipc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if talks, ok := a.(worker.Conversing); ok {
		c.able = talks.Converses()
	}
	c.name, c.clock, c.live = name, clock, true
	c.dir = dir
	c.judge()
	for _, m := range given {
		c.hear(m)
	}
	for _, m := range spoken {
		c.heard[m.ID] = m
	}
}

// judge makes the policy by which questions are answered. mu is held.
func (c *conversation) judge() {
	presets := map[string][]string{}
	for _, p := range egress.Presets() {
		presets[p.Name] = p.Hosts
	}
	c.policy = ask.New(ask.Config{
		Spec: c.spec, Dir: c.dir, Read: c.spec.Sandbox.Read, Write: c.spec.Sandbox.Write, Presets: presets, Standing: c.rules,
	})
}

// divide returns which messages are for a session that goes on, and which are for the instructions: those of
// a new session, and those that an earlier attempt has not read.
func (c *conversation) divide(a worker.Adapter, all []ipc.Message) (given, spoken []ipc.Message) {
	talks, ok := a.(worker.Conversing)
	goesOn := ok && talks.Converses().Messages && c.resumes
	for _, m := range all {
		if goesOn && !m.Unread {
			given = append(given, m)
		} else {
			spoken = append(spoken, m)
		}
	}
	return given, spoken
}

// unread reports whether the run was given a message that it has neither passed on nor read.
func (c *conversation) unread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused > 0 || len(c.heard) > len(c.shown)
}

// sessionIs says by which session the program goes on.
func (c *conversation) sessionIs(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = cmp.Or(id, c.session)
}

// hear gives the session a message that it does not have. mu is held.
func (c *conversation) hear(m ipc.Message) bool {
	if _, has := c.heard[m.ID]; has {
		return true
	}
	if !c.inputs.put(worker.Message{ID: m.ID, From: m.From, Text: m.Text, Again: m.Again}) {
		return false
	}
	c.heard[m.ID] = m
	return true
}

// tell is the run's worker.Run.Tell.
func (c *conversation) tell(a worker.Action) {
	switch a := a.(type) {
	case worker.Ask:
		c.ask(a.Question)
	case worker.Withdraw:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shut(a.Question, ipc.ClosedWithdrawn)
	case worker.Settle:
		c.settle(a)
	}
}

// ask answers a question, or has a person asked.
func (c *conversation) ask(q worker.Question) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.policy.Decide(subjectOf(&q))
	switch {
	case v.Answer == job.AllowAsked:
		c.answer(worker.Answer{Question: q.ID, Decision: worker.Allow})
		return
	case v.Answer == job.DenyAsked:
		c.answer(worker.Answer{Question: q.ID, Decision: worker.Unanswered, Text: c.clean(v.Because)})
		return
	case c.open[q.ID] != nil:
		return // the answer comes
	case len(q.Command)+len(q.Path)+len(q.Host)+len(q.Tool) > job.MaxEventText:
		c.answer(worker.Answer{Question: q.ID, Text: fmt.Sprintf("it is too long to ask a person about: say it in at most %d bytes", job.MaxEventText)})
		return
	case len(c.open) >= maxAsked:
		c.answer(worker.Answer{Question: q.ID, Text: fmt.Sprintf("%d questions wait for a person already", maxAsked)})
		return
	}
	c.askPerson(&asked{question: q})
}

// askPerson has a person asked. mu is held.
func (c *conversation) askPerson(entry *asked) {
	q := &entry.question
	c.asks++
	entry.id = strconv.Itoa(c.asks)
	first := len(c.open) == 0
	if first {
		c.clock(true) // before the question's time begins: all of it counts as waited
	}
	entry.timer = time.AfterFunc(c.wait, func() { c.expire(entry) })
	c.open[q.ID] = entry
	wire := c.wire(entry)
	c.beside.Go(func() { c.put(wire) })
	c.emit(job.Event{Kind: job.EventQuestion, Ref: entry.id, Text: wire.Text, Tool: wire.Tool, Command: wire.Command, Path: wire.Path})
	if first {
		c.emit(job.Event{Kind: job.EventState, State: job.WaitingApproval, Text: oneLine(wire.Text)})
	}
	q.Text, q.Diff, q.Input, q.Schema = "", "", nil, nil // can be large, and are not needed any more
}

// askWords asks a person for words, and returns the answer, or why there is none. It calls tick now and then while it waits.
func (c *conversation) askWords(ctx context.Context, text string, tick func()) (worker.Answer, error) {
	const tool = "ask_person"
	input, err := json.Marshal(text)
	if err != nil {
		return worker.Answer{}, err
	}
	answer := make(chan worker.Answer, 1)
	entry := &asked{reply: answer, question: worker.Question{ID: tool + " " + rand.Text(), Kind: worker.AboutWords, Text: text, Tool: tool, Input: input}}
	c.mu.Lock()
	if n := len(c.open); n >= maxAsked || !c.live {
		c.mu.Unlock()
		return worker.Answer{}, fmt.Errorf("nobody can be asked now: %d questions wait for a person already, or the run is about to end", n)
	}
	c.askPerson(entry)
	c.mu.Unlock()
	ticks := time.NewTicker(tickEvery)
	defer ticks.Stop()
	for {
		select {
		case a := <-answer:
			return a, nil
		case <-ticks.C:
			tick()
			continue
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.ctx.Done():
			err = context.Cause(c.ctx)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shut(entry.question.ID, ipc.ClosedWithdrawn)
		return worker.Answer{}, err
	}
}

// subjectOf returns what a question is about.
func subjectOf(q *worker.Question) ask.Request {
	return ask.Request{Kind: ask.Kind(q.Kind), Tool: q.Tool, Command: q.Command, Path: q.Path, Host: q.Host}
}

// Bounds of what a question takes on the wire, in bytes.
const (
	maxQuestionText = 8 << 10
	maxQuestionDiff = 64 << 10
)

// wire returns a question as the scheduler is asked it, without secrets. mu is held.
func (c *conversation) wire(entry *asked) ipc.Question {
	q := &entry.question
	cut := func(text string, most int) string {
		text, _ = job.Cut(c.clean(strings.ToValidUTF8(text, "\uFFFD")), most)
		return text
	}
	out := ipc.Question{
		ID: entry.id, Key: ask.Key(c.session, q.Tool, q.Input), Kind: string(q.Kind), Text: cut(q.Text, maxQuestionText), Tool: cut(q.Tool, maxQuestionText),
		Command: cut(q.Command, maxQuestionText), Path: cut(c.within(q.Path), maxQuestionText), Host: cut(q.Host, maxQuestionText), Diff: cut(q.Diff, maxQuestionDiff),
	}
	for _, d := range q.Decisions {
		out.Decisions = append(out.Decisions, string(d))
	}
	if len(q.Schema) <= maxQuestionDiff {
		out.Schema = q.Schema
	}
	return out
}

// within returns a path as it is called in the workspace, if it lies there: a folder of another attempt may be another.
func (c *conversation) within(path string) string {
	if !filepath.IsAbs(path) {
		return path
	}
	if rel, err := filepath.Rel(c.dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// put stores a question, and takes the answer if there is one already.
func (c *conversation) put(q ipc.Question) {
	var r ipc.AskPersonResult
	err := c.call(ipc.MethodAskPerson, ipc.AskPerson{Job: c.job, Attempt: c.attempt, Question: q, Wait: job.Duration(c.wait)}, &r)
	if err != nil {
		c.log.Debug().Err(err).Msg("a question was not stored")
		return // the run is over, or it expires
	}
	if r.Answer != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.take(*r.Answer)
	}
}

// call asks the scheduler until it answers, or the run is over.
func (c *conversation) call(method string, params, result any) error {
	return c.callWithin(c.ctx, method, params, result)
}

// callWithin is call for somebody who gives up when ctx ends.
func (c *conversation) callWithin(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })()
	again := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(5*time.Second), backoff.WithMaxElapsedTime(0))
	return backoff.Retry(func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, stepTime, fmt.Errorf("no answer within %s", stepTime))
		defer cancel()
		err := c.peer.Call(ctx, method, params, result)
		var refused *ipc.Error
		var oversize *ipc.OversizeError
		if errors.As(err, &refused) && refused.Code == ipc.CodeMethodNotFound || errors.As(err, &oversize) || errors.Is(err, ipc.ErrClosed) || errors.Is(err, ipc.ErrEOF) {
			return backoff.Permanent(err)
		}
		return err
	}, backoff.WithContext(again, ctx))
}

// take gives the program the answer to a question that is open. mu is held.
func (c *conversation) take(a ipc.Answer) {
	var entry *asked
	for _, e := range c.open {
		if e.id == a.Question {
			entry = e
		}
	}
	if entry == nil {
		return
	}
	said := worker.Answer{Question: entry.question.ID, Decision: worker.Decision(a.Decision), Text: a.Text, Value: a.Value}
	switch words := len(entry.question.Decisions) == 0; {
	case words && (a.Text != "" || len(a.Value) > 0):
		said.Decision = worker.Allow // there is an answer
	case !words && said.Decision != worker.Unanswered && !slices.Contains(entry.question.Decisions, said.Decision):
		said.Decision = nearest(said.Decision, entry.question.Decisions)
	}
	c.answer(said)
	text := "denied"
	switch {
	case len(entry.question.Decisions) == 0:
		text = "answered"
	case said.Decision.Allows():
		text = "allowed"
	}
	if a.Text != "" {
		text += ": " + a.Text
	}
	c.emit(job.Event{Kind: job.EventAnswer, Ref: entry.id, From: a.By, Text: text})
	c.shut(entry.question.ID, ipc.ClosedAnswered)
}

// nearest returns the decision that a program takes and that comes nearest to d without allowing
// more.
func nearest(d worker.Decision, taken []worker.Decision) worker.Decision {
	other := map[worker.Decision]worker.Decision{worker.AllowInRun: worker.Allow, worker.DenyAndStop: worker.Deny}[d]
	if slices.Contains(taken, other) {
		return other
	}
	return worker.Unanswered
}

func (c *conversation) answer(a worker.Answer) {
	if entry := c.open[a.Question]; entry != nil && entry.reply != nil {
		entry.reply <- a
		return
	}
	if !c.inputs.put(a) {
		c.log.Debug().Str("question", a.Question).Msg("the run takes no answer any more")
	}
}

// expire answers a question that nobody has answered in time.
func (c *conversation) expire(entry *asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := entry.question.ID
	if c.open[id] != entry {
		return
	}
	text := fmt.Sprintf("nobody answered within %s", c.wait)
	c.answer(worker.Answer{Question: id, Text: text})
	c.emit(job.Event{Kind: job.EventAnswer, Ref: entry.id, Text: text})
	c.shut(id, ipc.ClosedExpired)
}

// shut ends the wait for an answer. mu is held.
func (c *conversation) shut(id, how string) {
	entry := c.open[id]
	if entry == nil {
		return
	}
	entry.timer.Stop()
	delete(c.open, id)
	c.report(func(r *ipc.ReportTalk) { r.Closed = append(r.Closed, ipc.Closed{Question: entry.id, How: how}) })
	if len(c.open) == 0 {
		c.clock(false)
		c.emit(job.Event{Kind: job.EventState, State: job.Running})
	}
}

// waits reports whether the run waits for a person.
func (c *conversation) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open) > 0
}

// settle tells what became of a message.
func (c *conversation) settle(s worker.Settle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, has := c.heard[s.Message]
	if !has {
		return
	}
	if s.State == worker.MessageRefused {
		delete(c.heard, s.Message) // the next attempt is told
		delete(c.shown, s.Message)
		c.refused++
	}
	reason, _ := job.Cut(c.clean(s.Reason), 1<<10)
	if !c.shown[s.Message] {
		if s.State != worker.MessageRefused {
			c.shown[s.Message] = true
		}
		c.emit(job.Event{Kind: job.EventMessage, Ref: m.ID, From: m.From, Text: m.Text, Change: string(s.State)})
	}
	c.report(func(r *ipc.ReportTalk) {
		r.Settled = append(r.Settled, ipc.Settled{Message: s.Message, State: string(s.State), Reason: reason})
	})
}

// settleWords tells that messages stand in the instructions of a program that has begun.
func (c *conversation) settleWords(given []ipc.Message) {
	for _, m := range given {
		c.settle(worker.Settle{Message: m.ID, State: worker.MessageFolded})
	}
}

// report has something reported. mu is held.
func (c *conversation) report(add func(*ipc.ReportTalk)) {
	add(&c.unreported)
	if !c.reporting && c.ctx.Err() == nil {
		c.reporting = true
		c.beside.Go(c.reportAll)
	}
}

// reportAll reports what there is, and ends when there is no more or the run is over.
func (c *conversation) reportAll() {
	for {
		c.mu.Lock()
		r := c.unreported
		r.Closed, r.Settled = slices.Clone(r.Closed), slices.Clone(r.Settled)
		if len(r.Closed)+len(r.Settled) == 0 || c.ctx.Err() != nil {
			c.reporting = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		err := c.call(ipc.MethodReportTalk, r, nil)
		c.mu.Lock()
		if err != nil {
			c.reporting = false
			c.mu.Unlock()
			return // it goes with the end of the attempt
		}
		c.unreported.Closed, c.unreported.Settled = c.unreported.Closed[len(r.Closed):], c.unreported.Settled[len(r.Settled):]
		c.mu.Unlock()
	}
}

// end ends the conversation of a run whose worker has ended: nobody waits for an answer any more.
// What is not reported yet goes with the attempt's end.
func (c *conversation) end() {
	c.mu.Lock()
	c.live = false
	for id := range c.open {
		c.shut(id, ipc.ClosedEnded)
	}
	c.mu.Unlock()
}

// close ends what goes on beside, and returns what the scheduler was not told; nil if it was told all.
func (c *conversation) close() *ipc.ReportTalk {
	c.inputs.close()
	c.cancel()
	c.beside.Wait()
	if r := &c.unreported; len(r.Closed)+len(r.Settled) > 0 {
		return r
	}
	return nil
}

// told takes what people have for the run.
func (c *conversation) told(r *ipc.TellRun) ipc.TellRunResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Rules != nil {
		c.rules = *r.Rules // also of a worker that is about to begin
	}
	if !c.live {
		return ipc.TellRunResult{Why: "its worker is not running at this moment"}
	}
	if r.Rules != nil {
		c.judge()
		c.judgeAgain()
	}
	for _, a := range r.Answers {
		c.take(a)
	}
	if len(r.Messages) > 0 && !c.able.Messages {
		return ipc.TellRunResult{Why: fmt.Sprintf("worker %s takes no messages while it runs", c.name)}
	}
	for _, m := range r.Messages {
		if !c.hear(m) {
			return ipc.TellRunResult{Why: "too much waits for the agent already"}
		}
	}
	if r.Interrupt != "" {
		if !c.able.Interrupts {
			return ipc.TellRunResult{Why: fmt.Sprintf("worker %s cannot be interrupted; cancel the job instead", c.name), Never: true}
		}
		if !c.inputs.put(worker.Interrupt{Reason: r.Interrupt}) {
			return ipc.TellRunResult{Why: "too much waits for the agent already"}
		}
		c.interrupted = true
	}
	return ipc.TellRunResult{Taken: true}
}

// judgeAgain answers open questions that are allowed by now. mu is held.
func (c *conversation) judgeAgain() {
	for _, entry := range c.open {
		if c.policy.Decide(subjectOf(&entry.question)).Answer == job.AllowAsked {
			c.take(ipc.Answer{Question: entry.id, Decision: string(worker.Allow)})
		}
	}
}

// wasInterrupted reports whether somebody has interrupted the run.
func (c *conversation) wasInterrupted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted
}

func (c *Core) tellRun(_ context.Context, r ipc.TellRun) (ipc.TellRunResult, error) {
	s, _, err := c.ready()
	if err != nil {
		return ipc.TellRunResult{}, err
	}
	c.mu.Lock()
	e := c.live[job.RunTag(s.instance, r.Job, r.Attempt)]
	c.mu.Unlock()
	if e == nil {
		return ipc.TellRunResult{Why: "there is no such run here"}, nil
	}
	return e.talk.told(&r), nil
}

func oneLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text, _ = job.Cut(text, 200)
	return text
}
