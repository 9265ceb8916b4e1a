package eval

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Part is what one worker, with one model, did for a job.
type Part struct {
	Choice job.Choice
	// Attempts are those that it made and that are to be held for or against it.
	Attempts []job.Attempt
	// Delivered is set if the job succeeded, by this one.
	Delivered bool
	// Last is set if it is the one that the job ended with.
	Last bool
	// Pieces are attempts that stopped at a step's boundary: their work is in a
	// later one's, and so are their time and usage.
	Pieces []job.Attempt
}

// Number is the number of the latest attempt.
func (p *Part) Number() int { return p.Attempts[len(p.Attempts)-1].Number }

// Parts splits an ended job by who worked on it, in the order of their latest
// attempts. An attempt that was lost, cancelled, or failed by how the job or the
// host is set up says nothing of a worker, and is left out.
func Parts(e *queue.Entry, attempts []job.Attempt) []Part {
	if e.State != job.Completed || e.ExitKind == job.ExitCancelled || e.CoalescedWith != "" {
		return nil
	}
	var parts []Part
	var pieces []job.Attempt
	for i := range attempts {
		a := attempts[i]
		if a.Outcome != nil && a.Outcome.Checkpointed {
			pieces = append(pieces, a)
			continue
		}
		if !tells(&a) {
			continue
		}
		p := Part{Choice: a.Choice}
		if at := slices.IndexFunc(parts, func(p Part) bool { return p.Choice == a.Choice }); at >= 0 {
			p = parts[at]
			parts = slices.Delete(parts, at, at+1)
		}
		p.Attempts = append(p.Attempts, a)
		parts = append(parts, p)
	}
	for _, a := range pieces {
		if at := slices.IndexFunc(parts, func(p Part) bool { return p.Choice == a.Choice }); at >= 0 {
			parts[at].Pieces = append(parts[at].Pieces, a)
		}
	}
	if n := len(parts); n > 0 {
		last := &parts[n-1]
		last.Last = last.Number() == attempts[len(attempts)-1].Number
		last.Delivered = last.Last && e.ExitKind == job.ExitSucceeded
	}
	return parts
}

// tells reports whether an attempt says anything of who made it.
func tells(a *job.Attempt) bool {
	if a.Lost || a.Outcome == nil || a.State == job.RunCancelled {
		return false
	}
	switch a.Outcome.Class {
	case job.CancelledClass, job.Auth, job.Config, job.ConflictClass:
		return false
	}
	return true
}

// Measure says what can be seen of a part without judging it.
//
//	speed           min(1, SLA / time), the wall time of all its attempts; absent without an SLA
//	cost            min(1, target / used), target: what the job was expected to cost in US dollars
//	                or tokens, else half of what it may; absent without either, or where the
//	                price of what was used is not known
//	error_rate      1 − failed attempts / attempts; a person's no is no error
//	revision_count  1 / (1 + times it was done again or rejected)
//	adherence       1 if the work passed what checked it (verify, schema, a person), 0 if it did
//	                not; absent if nothing checks it
//
// What was not delivered was neither fast nor cheap nor what was asked for: these
// three are then 0 where they are judged at all, and adherence always.
func Measure(e *queue.Entry, p *Part) Vector {
	var v Vector
	v = v.With(ErrorRate, 1-float64(failures(p))/float64(len(p.Attempts)))
	v = v.With(RevisionCount, 1/float64(1+revisions(e, p)))
	if x, judged := speed(e, p); judged {
		v = v.With(Speed, x)
	}
	if x, judged := cost(e, p); judged {
		v = v.With(Cost, x)
	}
	switch {
	case !p.Delivered:
		v = v.With(Adherence, 0)
	case checked(e):
		v = v.With(Adherence, 1)
	}
	return v
}

func failures(p *Part) (n int) {
	for i := range p.Attempts {
		if a := &p.Attempts[i]; a.State == job.RunFailed && a.Outcome.Class != job.HumanRejected {
			n++
		}
	}
	return n
}

func revisions(e *queue.Entry, p *Part) int {
	rejected := 0
	for i := range p.Attempts {
		if p.Attempts[i].Outcome.Class == job.HumanRejected {
			rejected++
		}
	}
	if p.Last {
		// The parts of a workflow may be rejected without an attempt that says so.
		rejected = max(rejected, min(e.Rejections, len(p.Attempts)))
	}
	return max(len(p.Attempts)-1, rejected)
}

// outcomes returns those of all attempts that the work took.
func (p *Part) outcomes() (list []*job.Outcome) {
	for _, of := range [][]job.Attempt{p.Pieces, p.Attempts} {
		for i := range of {
			list = append(list, of[i].Outcome)
		}
	}
	return list
}

func speed(e *queue.Entry, p *Part) (float64, bool) {
	if e.Spec.Flow.Evaluation == nil || e.Spec.Flow.Evaluation.SLA <= 0 {
		return 0, false
	}
	var took time.Duration
	for _, o := range p.outcomes() {
		took += max(0, o.EndedAt.Sub(o.StartedAt))
	}
	return under(float64(e.Spec.Flow.Evaluation.SLA.Std()), float64(took), p), true
}

func cost(e *queue.Entry, p *Part) (float64, bool) {
	var used job.Usage
	for _, o := range p.outcomes() {
		used = used.Add(o.Usage)
	}
	priced := used.CostKnown || used.Tokens() == 0
	expect, limits := e.Spec.Expect, e.Spec.Limits
	for _, t := range []struct {
		target, used float64
		known        bool
	}{
		{expect.CostUSD, used.CostUSD, priced},
		{float64(expect.Tokens), float64(used.Tokens()), true},
		{limits.MaxCostUSD / 2, used.CostUSD, priced},
		{float64(limits.MaxTokens) / 2, float64(used.Tokens()), true},
	} {
		if t.target > 0 && t.known {
			return under(t.target, t.used, p), true
		}
	}
	return 0, false
}

// under is 1 at or under the target, and falls as what it took grows beyond it.
func under(target, took float64, p *Part) float64 {
	switch {
	case !p.Delivered:
		return 0
	case took <= target:
		return 1
	}
	return target / took
}

// checked reports whether something has looked at what a job that succeeded made.
func checked(e *queue.Entry) bool {
	if e.Spec.Verify != "" || e.Resolved != nil && e.Resolved.Verify != "" {
		return true
	}
	if len(e.Spec.Output) > 0 && json.Valid(e.Spec.Output) {
		return true
	}
	return e.Approval != nil && e.Approval.Approved && e.Approval.By != queue.ByTimeout
}
