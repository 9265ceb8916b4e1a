package agentcore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agentsched/agentsched/internal/redact"
	"github.com/agentsched/agentsched/internal/runmcp"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/permit"
	"github.com/agentsched/agentsched/worker"
)

// lead is the part of an execution whose agent uses the scheduler: what its MCP server (package runmcp) does. Jobs that the
// agent submits are the scheduler's to check and to keep; what they may spend is set apart here, of the run's own permit,
// before the scheduler hears of them.
type lead struct {
	*execution
	key      string
	url      string    // of the server
	endpoint *endpoint // that serves it where nothing holds the run; else nil

	submitting sync.Mutex // one job at a time: what it may spend depends on the others

	mu      sync.Mutex    // guards what follows, and the order of what is told of it
	ceded   ipc.Ceded     // as the scheduler told last
	pending permit.Budget // of a job that is being submitted
	waiting int           // calls that wait for jobs
}

// newLead returns nil if the run's job may not use the scheduler.
func newLead(e *execution) *lead {
	if !e.submit.Spec.Can(job.CanUseScheduler) {
		return nil
	}
	return &lead{execution: e, key: newKey()}
}

// How long wait_jobs waits if the agent does not say: of programs that wait for a tool for as long as it takes, and of others,
// which give up after a minute.
const (
	patientWait = 10 * time.Minute
	shortWait   = 50 * time.Second
)

// serveIn has the run's endpoint serve the tools.
func (l *lead) serveIn(p *endpoint, address string, adapter worker.Adapter) {
	if l == nil {
		return
	}
	wait := shortWait
	if a, ok := adapter.(worker.Tooled); ok && a.Tooled() {
		wait = patientWait
	}
	l.url = "http://" + address + runmcp.Path
	p.tools = runmcp.New(runmcp.Config{Key: l.key, Version: l.core.cfg.Version, Scheduler: l, Wait: wait})
}

// serve serves the tools of a run that nothing holds, until close.
func (l *lead) serve(ctx context.Context, adapter worker.Adapter) error {
	if l == nil {
		return nil
	}
	at, err := listenLoopback()
	if err != nil {
		return err
	}
	l.endpoint = newEndpoint(ctx)
	l.serveIn(l.endpoint, at.Addr().(*net.TCPAddr).String(), adapter)
	l.endpoint.serve(at)
	l.secrets = l.secrets.With(l.redacted())
	return nil
}

func (l *lead) redacted() redact.Value { return redact.Value{Name: "run-key", Text: l.key} }

func (l *lead) close() error {
	if l == nil || l.endpoint == nil {
		return nil
	}
	return l.endpoint.close()
}

// tools returns where the run's program finds the tools; nil if it has none.
func (l *lead) tools() *worker.ToolServer {
	if l == nil {
		return nil
	}
	return &worker.ToolServer{Name: runmcp.Name, URL: l.url, Key: l.key}
}

// waits reports whether the agent waits for jobs of its own.
func (l *lead) waits() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > 0
}

// wait notes that the agent waits for its jobs, until the function that it returns is called. The run holds no slot meanwhile:
// they may need it.
func (l *lead) wait() (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting++; l.waiting == 1 {
		l.permit.Lend(true)
		l.tellWait()
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.waiting--; l.waiting == 0 {
			l.permit.Lend(false)
			l.emit(job.Event{Kind: job.EventState, State: job.Running, Change: job.WaitedForJobs})
		}
	}
}

func (l *lead) tellWait() {
	l.emit(job.Event{Kind: job.EventState, State: job.Running, Change: job.WaitsForJobs, Text: "waits for the jobs that its agent has submitted"})
}

// cede takes what the scheduler says of what the jobs take of the run's budget.
func (l *lead) cede(c ipc.Ceded) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Version >= l.ceded.Version {
		l.ceded = c
	}
	l.permit.Cede(permit.Budget{Tokens: l.ceded.Tokens + l.pending.Tokens, CostUSD: l.ceded.CostUSD + l.pending.CostUSD})
}

// submits notes what is set apart for the job that is being submitted.
func (l *lead) submits(b permit.Budget) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = b
}

// list returns how the jobs stand.
func (l *lead) list(ctx context.Context) (out ipc.Children, err error) {
	if err := l.talk.callWithin(ctx, ipc.MethodListChildren, ipc.ListChildren{Job: l.submit.Job, Attempt: l.submit.Attempt}, &out); err != nil {
		return out, err
	}
	if out.Refused != "" {
		return out, errors.New(out.Refused)
	}
	l.cede(out.Ceded)
	return out, nil
}

// Submit submits a job, for which it sets apart what it may spend.
func (l *lead) Submit(ctx context.Context, in runmcp.Submit) (runmcp.Job, error) {
	l.submitting.Lock()
	defer l.submitting.Unlock()
	l.submits(permit.Budget{}) // of one whose answer did not come
	all, err := l.list(ctx)
	if err != nil {
		return runmcp.Job{}, err
	}
	schema, err := in.Schema()
	if err != nil {
		return runmcp.Job{}, fmt.Errorf("output: %w", err)
	}
	b := permit.Budget{Tokens: in.MaxTokens, CostUSD: in.MaxCostUSD}
	if b.Tokens < 0 || !(b.CostUSD >= 0) || in.Timeout < 0 {
		return runmcp.Job{}, errors.New("max_tokens, max_cost_usd and timeout_seconds must not be below 0; leave them out for the usual")
	}
	if !slices.ContainsFunc(all.Children, func(c ipc.Child) bool { return c.Name == in.Name }) {
		if b, err = l.setApart(b, all.Free); err != nil {
			return runmcp.Job{}, err
		}
	}
	r := ipc.SubmitChild{
		Job: l.submit.Job, Attempt: l.submit.Attempt, Budget: ipc.Budget{Tokens: b.Tokens, CostUSD: b.CostUSD},
		Child: ipc.NewChild{
			Name: in.Name, Instructions: in.Instructions, Worker: in.Worker, Capabilities: in.Capabilities, AllowCommands: in.AllowCommands,
			Network: in.Network, Secrets: in.Secrets, Output: schema, Timeout: job.Duration(min(in.Timeout, 1e9) * float64(time.Second)),
		},
	}
	var out ipc.ChildResult
	if err := l.talk.callWithin(ctx, ipc.MethodSubmitChild, r, &out); err != nil {
		return runmcp.Job{}, err // whether there is such a job the next answer says, and what it takes
	}
	l.submits(permit.Budget{})
	l.cede(out.Ceded)
	j := jobOf(&out.Child)
	j.Before = out.Before
	return j, refused(&out)
}

// setApart takes what a job may spend from what the run has left: what the agent says, else an equal part of what is left, of
// those of the jobs that it may still submit and of its own.
func (l *lead) setApart(b permit.Budget, free int) (permit.Budget, error) {
	left, tokens, cost := l.permit.Left()
	if tokens && b.Tokens == 0 {
		b.Tokens = left.Tokens / int64(free+1)
	}
	if cost && b.CostUSD == 0 {
		b.CostUSD = float64(int64(left.CostUSD*1e6)/int64(free+1)) / 1e6 // whole micro-dollars
	}
	if tokens && b.Tokens == 0 || cost && b.CostUSD == 0 || !l.permit.CedeMore(b) {
		var has []string
		if tokens {
			has = append(has, fmt.Sprintf("%d tokens", left.Tokens))
		}
		if cost {
			has = append(has, fmt.Sprintf("%.4f US dollars", left.CostUSD))
		}
		return b, fmt.Errorf("your job has %s left: give less than that to the new one, so that something is left for you", strings.Join(has, " and "))
	}
	l.submits(b)
	return b, nil
}

func refused(out *ipc.ChildResult) error {
	if out.Refused != "" {
		return errors.New(out.Refused)
	}
	return nil
}

func jobOf(c *ipc.Child) runmcp.Job {
	return runmcp.Job{
		Name: c.Name, ID: string(c.Job), State: c.State, Ended: c.Ended, Why: c.Why, Tokens: c.Spent.Tokens(), CostUSD: c.Spent.CostUSD,
		MaxTokens: c.Limits.Tokens, MaxCostUSD: c.Limits.CostUSD,
	}
}

// How often it is asked how jobs stand that the agent waits for, and how often its program is told that it still waits.
const (
	askSoon   = 100 * time.Millisecond
	askLate   = 2 * time.Second
	tickEvery = 10 * time.Second
)

// Wait waits for jobs.
func (l *lead) Wait(ctx context.Context, names []string, any bool, wait time.Duration, tick func(string)) (out runmcp.Jobs, err error) {
	until, ticked := time.Now().Add(wait), time.Now()
	for pause := askSoon; ; pause = min(2*pause, askLate) {
		asked := time.Now()
		all, err := l.list(ctx)
		if err != nil {
			return out, err
		}
		if pause > askSoon && time.Since(asked) > askLate { // another scheduler may have answered, which has not heard it
			l.tellWait()
		}
		if out, err = stands(all.Children, names, any); err != nil || out.Done || !time.Now().Before(until) {
			return out, err
		}
		if pause == askSoon {
			defer l.wait()()
		}
		if time.Since(ticked) >= tickEvery {
			ticked = time.Now()
			tick("waits for jobs")
		}
		if err := pass(ctx, min(pause, time.Until(until))); err != nil {
			return out, err
		}
	}
}

// pass lets time pass.
func pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// stands returns how all jobs stand, and whether those that are named have ended; none are all.
func stands(all []ipc.Child, names []string, any bool) (out runmcp.Jobs, err error) {
	out.Jobs = []runmcp.Job{}
	left, ended, found := 0, 0, 0
	for i := range all {
		out.Jobs = append(out.Jobs, jobOf(&all[i]))
		if len(names) > 0 && !slices.Contains(names, all[i].Name) {
			continue
		}
		if found++; all[i].Ended {
			ended++
		} else {
			left++
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(c ipc.Child) bool { return c.Name == name }) {
			return out, fmt.Errorf("you have submitted no job named %.100q", name)
		}
	}
	if found == 0 {
		return out, errors.New("you have submitted no job")
	}
	out.Done = left == 0 || any && ended > 0
	return out, nil
}

// maxGiven bounds the patch of a job that its lead is given, in bytes.
const maxGiven = 256 << 20

// Result returns what a job has left. Its patch is put into the run's folder for temporary files.
func (l *lead) Result(ctx context.Context, name string) (out runmcp.Result, err error) {
	var file *os.File
	for offset := int64(0); ; {
		var r ipc.ChildResult
		if err = l.talk.callWithin(ctx, ipc.MethodReadChild, ipc.ReadChild{Job: l.submit.Job, Attempt: l.submit.Attempt, Name: name, Offset: offset}, &r); err == nil {
			err = refused(&r)
		}
		if err == nil && offset == 0 {
			l.cede(r.Ceded)
			out = runmcp.Result{Job: jobOf(&r.Child), Answer: r.Answer, PatchBytes: r.PatchBytes}
			if len(r.Patch) > 0 {
				file, out.PatchFile, err = l.newFile(name)
			}
			if file != nil {
				defer file.Close()
			}
		}
		if err == nil && len(r.Patch) > 0 {
			_, err = file.Write(r.Patch)
		}
		if offset += int64(len(r.Patch)); err != nil || len(r.Patch) == 0 || offset >= out.PatchBytes {
			return out, err
		}
		if offset > maxGiven {
			return out, fmt.Errorf("the patch of job %s has %d bytes, at most %d are given to a run", name, out.PatchBytes, maxGiven)
		}
	}
}

// newFile makes a file for the patch of a job, which is the run's. The run can put what it likes into the folder, so that
// nothing is followed there.
func (l *lead) newFile(name string) (*os.File, string, error) {
	root, err := os.OpenRoot(l.temp)
	if err != nil {
		return nil, "", fmt.Errorf("open the run's temporary folder: %w", err)
	}
	defer root.Close()
	file := fmt.Sprintf("job-%s-%s.patch", name, rand.Text()[:8])
	f, err := root.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, "", fmt.Errorf("make a file for the patch: %w", err)
	}
	return f, filepath.Join(l.temp, file), nil
}

// Cancel cancels a job.
func (l *lead) Cancel(ctx context.Context, name string) (runmcp.Job, error) {
	var out ipc.ChildResult
	if err := l.talk.callWithin(ctx, ipc.MethodCancelChild, ipc.CancelChild{Job: l.submit.Job, Attempt: l.submit.Attempt, Name: name}, &out); err != nil {
		return runmcp.Job{}, err
	}
	return jobOf(&out.Child), refused(&out)
}

// Ask asks a person.
func (l *lead) Ask(ctx context.Context, question string, tick func(string)) (runmcp.Answer, error) {
	question = runmcp.Clean(question)
	switch n := len(question); {
	case strings.TrimSpace(question) == "":
		return runmcp.Answer{}, errors.New("question must not be empty: say what you want to know")
	case n > maxQuestionText:
		return runmcp.Answer{}, fmt.Errorf("question has %d bytes, at most %d are allowed: ask in a few sentences", n, maxQuestionText)
	}
	a, err := l.talk.askWords(ctx, question, func() { tick("waits for a person") })
	if err != nil {
		return runmcp.Answer{}, err
	}
	return runmcp.Answer{Answered: a.Decision.Allows(), Answer: runmcp.Clean(a.Text)}, nil
}

// Progress tells people how far the agent is.
func (l *lead) Progress(text string) {
	l.emit(job.Event{Kind: job.EventText, Text: "progress: " + text})
}

// Budget returns what is left.
func (l *lead) Budget(ctx context.Context) (out runmcp.Budget, err error) {
	all, err := l.list(ctx)
	if err != nil {
		return out, err
	}
	left, tokens, cost := l.permit.Left()
	if tokens {
		out.Tokens = &left.Tokens
	}
	if cost {
		out.CostUSD = &left.CostUSD
	}
	out.Seconds, out.Jobs = max(int64(l.clock.left().Seconds()), 0), all.Free
	out.CededTokens, out.CededUSD = all.Ceded.Tokens, all.Ceded.CostUSD
	return out, nil
}

// Notes keeps a note, if key is not empty, and returns all.
func (l *lead) Notes(ctx context.Context, key, text string) ([]runmcp.Note, error) {
	var out ipc.NotesResult
	r := ipc.Notes{Job: l.submit.Job, Attempt: l.submit.Attempt, Key: key, Text: l.secrets.String(text)}
	if err := l.talk.callWithin(ctx, ipc.MethodNotes, r, &out); err != nil {
		return nil, err
	}
	if out.Refused != "" {
		return nil, errors.New(out.Refused)
	}
	list := []runmcp.Note{}
	for _, n := range out.Notes {
		list = append(list, runmcp.Note(n))
	}
	return list, nil
}
