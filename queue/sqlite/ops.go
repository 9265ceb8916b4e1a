package sqlite

import (
	"fmt"
	"slices"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// beginAs is a Begin and the Move that follows it at once, which cannot fail
// where the Begin does not: a way of most attempts, for half of the writes.
type beginAs struct {
	queue.Begin
	move queue.Move
}

// fold returns ops with each such pair as one.
func fold(ops []queue.Op) []queue.Op {
	for i := 1; i < len(ops); i++ {
		b, begins := ops[i-1].(queue.Begin)
		m, moves := ops[i].(queue.Move)
		if begins && moves && m.ID == b.ID && m.Fence == b.Fence && m.Attempt == b.Attempt.Number &&
			m.To != "" && !m.To.Terminal() && job.Pending.CheckMove(m.To) == nil {
			folded := append(slices.Clone(ops[:i-1]), beginAs{b, m})
			return append(folded, fold(ops[i+1:])...)
		}
	}
	return ops
}

// looked returns ops with those that can be looked at before the transaction, as
// they then are.
func looked(ops []queue.Op) (list []queue.Op, err error) {
	list = slices.Clone(ops)
	for i, op := range ops {
		switch op := op.(type) {
		case queue.Spawn:
			list[i], err = newSpawning(op)
		case queue.Write:
			list[i], err = newWriting(op)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// encodeBodies returns what the ops store as JSON: of each Append its events, of
// each Finish and Await its outcome. It takes time, which the writer need not spend.
func encodeBodies(ops []queue.Op) ([][]string, error) {
	bodies := make([][]string, len(ops))
	for i, op := range ops {
		if f, ok := op.(queue.Finish); ok && f.Attempt != 0 {
			body, err := encode(&f.Outcome)
			if err != nil {
				return nil, fmt.Errorf("outcome of job %s, attempt %d: %w", f.ID, f.Attempt, err)
			}
			bodies[i] = []string{body}
		}
		if a, ok := op.(queue.Await); ok {
			body, err := encode(&a.Outcome)
			if err != nil {
				return nil, fmt.Errorf("outcome of job %s, attempt %d: %w", a.ID, a.Attempt, err)
			}
			bodies[i] = []string{body}
		}
		a, ok := op.(queue.Append)
		if !ok {
			continue
		}
		for _, ev := range a.Events {
			ev.Time = ev.Time.UTC()
			body, err := encode(&ev)
			if err != nil {
				return nil, fmt.Errorf("event %d of job %s, attempt %d: %w", ev.Seq, ev.Job, ev.Attempt, err)
			}
			bodies[i] = append(bodies[i], body)
		}
	}
	return bodies, nil
}
