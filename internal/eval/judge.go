package eval

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Judge says what a job that has ended counts for: who worked on it, and those
// jobs of its batch that it judges. It changes nothing and may be asked again;
// what was counted already is not in the answer. A job whose judge has not
// ended waits for it: when that has, Judge of the judge has both in it.
func (v *Evaluator) Judge(ctx context.Context, e *queue.Entry, attempts []job.Attempt) (Verdict, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.judge(ctx, e, attempts)
}

func (v *Evaluator) judge(ctx context.Context, e *queue.Entry, attempts []job.Attempt) (Verdict, error) {
	b := newBook(v.config.Store, v.settings, v.now())
	if err := v.one(ctx, b, e, attempts); err != nil {
		return Verdict{}, fmt.Errorf("judge job %s: %w", e.ID, err)
	}
	others, err := v.judgedBy(ctx, e)
	if err != nil {
		return Verdict{}, fmt.Errorf("judge what job %s judges: %w", e.ID, err)
	}
	for i := range others {
		attempts, err := v.config.Store.Attempts(ctx, others[i].ID)
		if err == nil {
			err = v.one(ctx, b, &others[i], attempts)
		}
		if err != nil {
			return Verdict{}, fmt.Errorf("judge job %s: %w", others[i].ID, err)
		}
	}
	return b.close()
}

// one counts a job's parts, unless its judge is to speak first.
func (v *Evaluator) one(ctx context.Context, b *book, e *queue.Entry, attempts []job.Attempt) error {
	asked := e.Spec.Flow.Evaluation
	if asked == nil || !e.State.Terminal() {
		return nil
	}
	judges, waits, err := v.judges(ctx, e)
	if err != nil || waits {
		return err
	}
	for _, p := range Parts(e, attempts) {
		found := begin(e, &p, &b.settings, BySelf, b.now)
		if _, any, err := b.has(ctx, &found); any || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if p.Last {
			found.own(asked, &p)
			if err := v.hear(ctx, &found, asked.Judge, judges); err != nil {
				return err
			}
		}
		if err := b.count(ctx, found); err != nil {
			return err
		}
	}
	return nil
}

// own puts in what the job's own command or report file says, which the core has
// read.
func (e *Evaluation) own(asked *job.Evaluation, p *Part) {
	source, name := command, asked.Command
	if name == "" {
		source, name = inFile, asked.Report
	}
	if name == "" {
		return
	}
	said := p.Attempts[len(p.Attempts)-1].Outcome.Report
	v, err := fromReport(said)
	switch {
	case err != nil:
		e.Problems = append(e.Problems, fmt.Sprintf("%s %s: %v", source, name, err))
	case len(said) == 0:
		e.Problems = append(e.Problems, fmt.Sprintf("%s %s: there is no report; a warning among the run's events says why", source, name))
	default:
		e.put(v, source)
	}
}

// take puts an answer in, or says why it cannot be.
func (e *Evaluation) take(answer []byte, source string) {
	r, err := FindReport(answer)
	if err != nil {
		e.Problems = append(e.Problems, fmt.Sprintf("%s: %v", source, err))
		return
	}
	e.put(r.Vector, source)
	if r.Comment != "" {
		e.Comment = r.Comment
	}
}

// hear puts in what the judge says, the latest that has an answer.
func (v *Evaluator) hear(ctx context.Context, e *Evaluation, name job.Name, judges []queue.Entry) error {
	if name == "" {
		return nil
	}
	source := "job " + string(name)
	for i := len(judges) - 1; i >= 0; i-- {
		j := &judges[i]
		if j.ExitKind != job.ExitSucceeded {
			continue
		}
		answer := j.Result
		if len(answer) == 0 {
			attempts, err := v.config.Store.Attempts(ctx, j.ID)
			if err != nil {
				return err
			}
			for _, a := range attempts {
				if a.Outcome != nil && a.Outcome.Succeeded() {
					answer = []byte(a.Outcome.Answer)
				}
			}
		}
		e.take(answer, source)
		return nil
	}
	e.Problems = append(e.Problems, source+": has not succeeded, and so has not judged")
	return nil
}

// judges returns the jobs that are the judge of e, done again ones included, in
// the order of submission; waits: one of them has not ended.
func (v *Evaluator) judges(ctx context.Context, e *queue.Entry) (list []queue.Entry, waits bool, err error) {
	name := e.Spec.Flow.Evaluation.Judge
	if name == "" {
		return nil, false, nil
	}
	all, err := v.batch(ctx, e.Batch)
	for _, j := range all {
		// What a node is made of answers through the node.
		if stem(j.Spec.Name) == name && j.Spec.Flow.Part == 0 {
			list = append(list, j)
			waits = waits || !j.State.Terminal()
		}
	}
	return list, waits, err
}

// judgedBy returns the ended jobs whose judge e is. A judge needs what it judges.
func (v *Evaluator) judgedBy(ctx context.Context, e *queue.Entry) (list []queue.Entry, err error) {
	if !e.State.Terminal() {
		return nil, nil
	}
	mine := func(other *queue.Entry) bool {
		asked := other.Spec.Flow.Evaluation
		return asked != nil && asked.Judge != "" && asked.Judge == stem(e.Spec.Name)
	}
	for _, need := range e.Spec.Flow.Needs {
		found, _, err := v.config.Store.List(ctx, queue.Filter{Batch: e.Batch, Name: need})
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(found, func(other queue.Entry) bool { return mine(&other) }) {
			continue
		}
		// What it judges may be many: parts, and what was done again.
		all, err := v.ended(ctx, e.Batch)
		return slices.DeleteFunc(all, func(other queue.Entry) bool { return !mine(&other) }), err
	}
	return nil, nil
}

func (v *Evaluator) batch(ctx context.Context, id job.BatchID) ([]queue.Entry, error) {
	all, _, err := v.config.Store.List(ctx, queue.Filter{Batch: id, Limit: 1 << 30})
	return all, err
}

func (v *Evaluator) ended(ctx context.Context, id job.BatchID) ([]queue.Entry, error) {
	all, err := v.batch(ctx, id)
	return slices.DeleteFunc(all, func(e queue.Entry) bool { return !e.State.Terminal() }), err
}

// stem is the name under which a job was submitted that was done again (see
// job.RestartName).
func stem(n job.Name) job.Name {
	name, _, _ := strings.Cut(string(n), "+")
	return job.Name(name)
}
