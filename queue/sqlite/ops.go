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

// endAs is the Finish of an attempt with what most attempts store just before: its last
// events and its Move to Running. All that can refuse one of them is looked at before any
// of it is written, so that they need no savepoint.
type endAs struct {
	queue.Finish
	events []job.Event  // of this attempt, without usage
	state  job.RunState // which the attempt takes before its end; "": it stays in its own
}

// fold returns ops with each such group as one.
func fold(ops []queue.Op) (list []queue.Op) {
	for _, op := range ops {
		list = append(list, op)
		n := len(list)
		switch op := op.(type) {
		case queue.Move:
			if n < 2 {
				break
			}
			b, begins := list[n-2].(queue.Begin)
			if begins && op.ID == b.ID && op.Fence == b.Fence && op.Attempt == b.Attempt.Number &&
				op.To != "" && op.Waiting == "" && !op.To.Terminal() && job.Pending.CheckMove(op.To) == nil {
				list = append(list[:n-2], beginAs{b, op})
			}
		case queue.Finish:
			if op.Attempt == 0 {
				break
			}
			end, from := endAs{Finish: op}, n-1
			if from > 0 {
				m, moves := list[from-1].(queue.Move)
				if moves && m.ID == op.ID && m.Fence == op.Fence && m.Attempt == op.Attempt && m.Session == "" && m.Waiting == "" && m.To != "" && !m.To.Terminal() {
					end.state, from = m.To, from-1
				}
			}
			if from > 0 {
				a, appends := list[from-1].(queue.Append)
				if appends && !slices.ContainsFunc(a.Events, func(e job.Event) bool { return e.Job != op.ID || e.Usage != nil }) {
					end.events, from = a.Events, from-1
				}
			}
			list = append(list[:from], end)
		}
	}
	return list
}

// looked returns ops with those that can be looked at before the transaction, as
// they then are.
func looked(ops []queue.Op) (list []queue.Op, err error) {
	list = slices.Clone(ops)
	for i, op := range ops {
		switch op := op.(type) {
		case queue.Spawn:
			list[i], err = newSpawning(op)
		case queue.Add:
			list[i], err = newAdding(op)
		case queue.Write:
			list[i], err = newWriting(op)
		}
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}

// encodeBodies returns what the folded ops store as JSON: the events of each, and then
// its outcome. It takes time, which the writer need not spend.
func encodeBodies(ops []queue.Op) ([][]string, error) {
	bodies := make([][]string, len(ops))
	for i, op := range ops {
		var err error
		switch op := op.(type) {
		case queue.Append:
			err = encodeEvents(&bodies[i], op.Events)
		case endAs:
			if err = encodeEvents(&bodies[i], op.events); err == nil {
				err = encodeOutcome(&bodies[i], op.ID, op.Attempt, op.Outcome)
			}
		case queue.Await:
			err = encodeOutcome(&bodies[i], op.ID, op.Attempt, op.Outcome)
		}
		if err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

func encodeEvents(to *[]string, events []job.Event) error {
	for _, ev := range events {
		ev.Time = ev.Time.UTC()
		body, err := encode(&ev)
		if err != nil {
			return fmt.Errorf("event %d of job %s, attempt %d: %w", ev.Seq, ev.Job, ev.Attempt, err)
		}
		*to = append(*to, body)
	}
	return nil
}

func encodeOutcome(to *[]string, id job.ID, attempt int, o job.Outcome) error {
	body, err := encode(&o)
	if err != nil {
		return fmt.Errorf("outcome of job %s, attempt %d: %w", id, attempt, err)
	}
	*to = append(*to, body)
	return nil
}
