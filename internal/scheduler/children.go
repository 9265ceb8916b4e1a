package scheduler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// ChildBounds are the bounds of what agents submit.
type ChildBounds struct {
	Depth   int              // levels of children below a job that no agent has submitted; 0: none may submit any
	Each    int              // children of one job
	Workers []job.WorkerKind // that a child may run on beside those of its lead
}

// Children are the jobs that agents of runs submit (job.Lead). All that an agent says of them comes by the core that has its
// run, and is checked here by that run alone: which job it is, and what that may. The store has, in one transaction with the
// child itself:
//
//	job/LEAD/children  NUMBER   a child
//	leads/LEAD                  there are children of it that may not have ended
//
// A child ends at the latest with its lead: what nobody gathers is not worth what it costs.
type Children struct {
	store    queue.Store
	feed     *Feed
	log      zerolog.Logger
	bounds   func() ChildBounds
	flying   func(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error)
	lock     func(job.ID) (unlock func()) // of all that is said about a job
	cancel   func(ctx context.Context, id job.ID, reason string) error
	fileHere func(context.Context, job.Artifact) (job.Artifact, error) // Config.FileHere
	dispatch func()

	wake bell

	mu  sync.Mutex // guards what follows
	due map[job.ID]bool
}

// child is a child as its lead's record has it.
type child struct {
	Name   string `json:"name"`   // as its lead calls it
	ID     job.ID `json:"id"`     // of the job
	Digest string `json:"digest"` // of what its lead has said of it

	entry queue.Entry
}

func childSpace(lead job.ID) string { return queue.JobSpace(lead, "children") }

const leadSpaces = "leads/"

func leadSpace(id job.ID) string { return leadSpaces + string(id) }

// of returns the children of a job, in the order in which they were submitted.
func (s *Children) of(ctx context.Context, lead job.ID) ([]child, error) {
	list, err := records[child](ctx, s.store, childSpace(lead))
	for i := range list {
		c := &list[i]
		switch c.entry, err = s.store.Get(ctx, c.ID); {
		case errors.Is(err, queue.ErrNotFound): // it has ended long ago, and was forgotten
			c.entry, err = queue.Entry{ID: c.ID, State: job.Cancelled}, nil
		case err != nil:
			return nil, fmt.Errorf("read job %s, which job %s has submitted: %w", c.ID, lead, err)
		}
	}
	return list, err
}

func named(list []child, name string) *child {
	if i := slices.IndexFunc(list, func(c child) bool { return c.Name == name }); i >= 0 {
		return &list[i]
	}
	return nil
}

// leads returns the entry of a run whose agent may use the scheduler, or why it may not.
func (s *Children) leads(c *supervisor.Core, id job.ID, attempt int) (e queue.Entry, refused string, err error) {
	if e, err = s.flying(c, id, attempt); err != nil {
		return e, "", err
	}
	if !e.Spec.Can(job.CanUseScheduler) {
		return e, "the job has not the capability scheduler", nil
	}
	return e, "", nil
}

// under returns the op that refuses all with which it is applied if the run's claim is over.
func under(e *queue.Entry) queue.Op { return queue.Move{ID: e.ID, Fence: e.Fence, Attempt: e.Attempts} }

// submit submits a child.
func (s *Children) submit(ctx context.Context, c *supervisor.Core, r ipc.SubmitChild) (out ipc.ChildResult, err error) {
	lead, refused, err := s.leads(c, r.Job, r.Attempt)
	if err != nil || refused != "" {
		return ipc.ChildResult{Refused: refused}, err
	}
	defer s.lock(lead.ID)()
	list, err := s.of(ctx, lead.ID)
	if err != nil {
		return out, err
	}
	if out.Ceded, err = s.ceded(ctx, list); err != nil {
		return out, err
	}
	said := digestOf(&r.Child)
	if old := named(list, r.Child.Name); old != nil {
		out.Child, out.Before = old.wire(), true
		if old.Digest != said {
			out.Refused = fmt.Sprintf("you have submitted a job named %s already, with other words; give this one another name", r.Child.Name)
		}
		return out, nil
	}
	spec, err := s.specOf(&lead, &r, len(list), out.Ceded)
	if err != nil {
		out.Refused = err.Error()
		return out, nil
	}
	e := newEntry(lead.Batch, spec, now())
	made := child{Name: r.Child.Name, ID: e.ID, Digest: said, entry: e}
	record, err := write(childSpace(lead.ID), len(list)+1, &made)
	if err != nil {
		return out, err
	}
	err = s.apply(ctx, under(&lead), queue.Add{Batch: queue.Batch{ID: e.Batch}, Entries: []queue.Entry{e}}, record,
		queue.Write{Record: queue.Record{Space: leadSpace(lead.ID), Key: openKey, Value: json.RawMessage(`true`), At: e.CreatedAt}})
	if errors.Is(err, queue.ErrDuplicate) {
		out.Refused = fmt.Sprintf("there is a job named %s already; give this one another name", spec.Name)
		return out, nil
	}
	for _, full := range []error{queue.ErrQueueFull, queue.ErrTooManyJobs, queue.ErrDeadOwner, queue.ErrFenced} {
		if errors.Is(err, full) {
			out.Refused = err.Error()
			return out, nil
		}
	}
	if err != nil {
		return out, fmt.Errorf("submit job %s of job %s: %w", spec.Name, lead.Spec.Name, err)
	}
	s.feed.observe(Moment{Kind: MomentSubmitted, At: e.CreatedAt, Entry: &e})
	s.feed.publishEntry(ctx, e.ID)
	s.dispatch()
	list = append(list, made)
	out.Child = made.wire()
	out.Ceded, err = s.ceded(ctx, list)
	return out, err
}

// digestOf tells whether what an agent says of a child is the same again. What it may spend may differ: that is what was left.
func digestOf(c *ipc.NewChild) string {
	text, _ := json.Marshal(c) // of such a struct there is always one
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// apply makes ops durable, whatever becomes of who asks.
func (s *Children) apply(ctx context.Context, ops ...queue.Op) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	return s.store.Apply(ctx, ops...)
}

// list says how the children of a run's job stand.
func (s *Children) list(ctx context.Context, c *supervisor.Core, r ipc.ListChildren) (out ipc.Children, err error) {
	lead, refused, err := s.leads(c, r.Job, r.Attempt)
	if err != nil || refused != "" {
		return ipc.Children{Refused: refused}, err
	}
	list, err := s.of(ctx, lead.ID)
	if err != nil {
		return out, err
	}
	for i := range list {
		out.Children = append(out.Children, list[i].wire())
	}
	b := s.bounds()
	if out.Depth = max(b.Depth-lead.Spec.Lead.Depth, 0); out.Depth > 0 {
		out.Free = max(b.Each-len(list), 0)
	}
	out.Ceded, err = s.ceded(ctx, list)
	return out, err
}

// read tells what a child has left.
func (s *Children) read(ctx context.Context, c *supervisor.Core, r ipc.ReadChild) (out ipc.ChildResult, err error) {
	kid, out, err := s.find(ctx, c, r.Job, r.Attempt, r.Name)
	if kid == nil {
		return out, err
	}
	attempts, err := s.store.Attempts(ctx, kid.ID)
	if err != nil || len(attempts) == 0 || attempts[len(attempts)-1].Outcome == nil || r.Offset < 0 {
		return out, err
	}
	o := attempts[len(attempts)-1].Outcome
	out.Answer, _ = job.Cut(o.Answer, job.MaxEventText)
	patch, has := o.Artifact(job.ArtifactPatch)
	if !has || patch.Bytes == 0 {
		return out, nil
	}
	at, err := fileHere(ctx, s.fileHere, patch)
	if err == nil {
		out.Patch, err = pieceOf(at, r.Offset)
	}
	if err != nil {
		s.log.Warn().Err(err).Str("job", string(kid.ID)).Msg("the patch of a job cannot be read for its lead")
		out.Child.Why = strings.TrimPrefix(out.Child.Why+"; its patch cannot be read", "; ")
		return out, nil
	}
	out.Patch, out.PatchBytes = out.Patch[:min(len(out.Patch), ipc.MaxPatchPiece)], patch.Bytes
	return out, nil
}

// find returns a child of a run's job by its name; nil if there is none, which out says.
func (s *Children) find(ctx context.Context, c *supervisor.Core, id job.ID, attempt int, name string) (kid *child, out ipc.ChildResult, err error) {
	lead, refused, err := s.leads(c, id, attempt)
	if err != nil || refused != "" {
		return nil, ipc.ChildResult{Refused: refused}, err
	}
	list, err := s.of(ctx, lead.ID)
	if err != nil {
		return nil, out, err
	}
	if out.Ceded, err = s.ceded(ctx, list); err != nil {
		return nil, out, err
	}
	if kid = named(list, name); kid == nil {
		out.Refused = fmt.Sprintf("you have submitted no job named %.100q", name)
		return nil, out, nil
	}
	out.Child = kid.wire()
	return kid, out, nil
}

// withdraw cancels a child.
func (s *Children) withdraw(ctx context.Context, c *supervisor.Core, r ipc.CancelChild) (out ipc.ChildResult, err error) {
	kid, out, err := s.find(ctx, c, r.Job, r.Attempt, r.Name)
	if kid == nil || out.Child.Ended {
		return out, err
	}
	if err := s.cancel(ctx, kid.ID, "cancelled by the agent that has submitted it"); err != nil && !errors.Is(err, queue.ErrIllegalTransition) {
		return out, err
	}
	_, out, err = s.find(ctx, c, r.Job, r.Attempt, r.Name)
	return out, err
}

// maxWhy bounds why a child has failed, in bytes: all children of a job fit into a frame, whatever their agents wrote.
const maxWhy = 1 << 10

// wire returns how a child stands, as a core is told it.
func (c *child) wire() ipc.Child {
	e := &c.entry
	out := ipc.Child{
		Name: c.Name, Job: c.ID, State: string(StateOf(e)), Ended: e.State.Terminal(), Why: e.Waiting, Spent: e.Spent,
		Limits: ipc.Budget{Tokens: e.Spec.Limits.MaxTokens, CostUSD: e.Spec.Limits.MaxCostUSD},
	}
	switch {
	case e.State == job.Expired:
		out.State, out.Why = "expired", "its deadline has passed"
	case e.State == job.Cancelled || e.ExitKind == job.ExitCancelled:
		out.State = "cancelled"
	case e.ExitKind == job.ExitFailed:
		out.State, out.Why = "failed", e.DeadLetter
	case e.ExitKind == job.ExitSucceeded:
		out.State, out.Why = "succeeded", ""
	case e.State == job.Queued && e.Held == "":
		out.State = "queued"
	}
	out.Why, _ = job.Cut(out.Why, maxWhy)
	return out
}

// ceded returns what children take of the limits of their lead.
func (s *Children) ceded(ctx context.Context, list []child) (sum ipc.Ceded, err error) {
	for i := range list {
		e := &list[i].entry
		below, err := s.of(ctx, e.ID)
		if err != nil {
			return sum, err
		}
		of, err := s.ceded(ctx, below)
		if err != nil {
			return sum, err
		}
		of.Tokens, of.CostUSD = of.Tokens+e.Spent.Tokens(), of.CostUSD+e.Spent.CostUSD
		if of.Version++; e.State.Terminal() {
			of.Version++
		} else {
			of.Tokens, of.CostUSD = max(of.Tokens, e.Spec.Limits.MaxTokens), max(of.CostUSD, e.Spec.Limits.MaxCostUSD)
		}
		sum.Tokens, sum.CostUSD, sum.Version = sum.Tokens+of.Tokens, sum.CostUSD+of.CostUSD, sum.Version+of.Version
	}
	return sum, nil
}

// cededBy returns what the children of a job that is about to run take of its limits.
func (s *Children) cededBy(ctx context.Context, e *queue.Entry) (ipc.Ceded, error) {
	if !e.Spec.Can(job.CanUseScheduler) || e.Attempts == 0 {
		return ipc.Ceded{}, nil
	}
	list, err := s.of(ctx, e.ID)
	if err != nil {
		return ipc.Ceded{}, err
	}
	return s.ceded(ctx, list)
}

// ended notes that a job has ended, which may have led others, or was led.
func (s *Children) ended(e *queue.Entry) {
	lead := e.Spec.Lead.Job
	if lead == "" && !e.Spec.Can(job.CanUseScheduler) {
		return
	}
	s.mu.Lock()
	if s.due[e.ID] = true; lead != "" {
		s.due[lead] = true
	}
	s.mu.Unlock()
	s.wake.ring()
}

// run ends the children of jobs that have ended.
func (s *Children) run(ctx context.Context) error {
	if err := s.recall(ctx); err != nil && ctx.Err() == nil {
		s.log.Error().Err(err).Msg("look for jobs whose leads have ended")
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-timer.C:
		}
		s.mu.Lock()
		due := s.due
		s.due = map[job.ID]bool{}
		s.mu.Unlock()
		for id := range due {
			err := s.follow(ctx, id)
			if err == nil || ctx.Err() != nil {
				continue
			}
			s.log.Error().Err(err).Str("job", string(id)).Msg("end the jobs that a job has submitted")
			s.mu.Lock()
			s.due[id] = true
			s.mu.Unlock()
			timer.Reset(againLate)
		}
	}
}

// recall has the children of all jobs looked at that may have some.
func (s *Children) recall(ctx context.Context) error {
	spaces, err := s.store.Spaces(ctx, leadSpaces)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, space := range spaces {
		s.due[job.ID(strings.TrimPrefix(space, leadSpaces))] = true
	}
	return err
}

// follow ends the children of a job that has ended, and forgets that it has some when all have.
func (s *Children) follow(ctx context.Context, id job.ID) error {
	lead, err := s.store.Get(ctx, id)
	known := !errors.Is(err, queue.ErrNotFound)
	if err != nil && known || known && !lead.State.Terminal() {
		return err
	}
	defer s.lock(id)()
	var list []child
	if known {
		if list, err = s.of(ctx, id); err != nil || len(list) == 0 {
			return err
		}
	}
	left := false
	for i := range list {
		e := &list[i].entry
		if e.State.Terminal() {
			continue
		}
		left = true
		if e.CancelRequested {
			continue
		}
		if err := s.cancel(ctx, e.ID, "the job that has submitted it has ended"); err != nil && !errors.Is(err, queue.ErrIllegalTransition) {
			return err
		}
	}
	if left { // the end of the last one comes here
		return nil
	}
	return s.apply(ctx, queue.Erase{Space: leadSpace(id), UpTo: openKey})
}
