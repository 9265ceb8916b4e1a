package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/agentsched/agentsched/queue"
)

// Verdict is what was found, and what is to be stored of it.
type Verdict struct {
	Evaluations []Evaluation `json:"evaluations"`
	Reputations []Reputation `json:"reputations,omitempty"` // as they are now, of all that it counts for
	Alerts      []Alert      `json:"alerts,omitempty"`
	// Ops make it durable, in one Apply. That is refused with queue.ErrExists if
	// something else was counted in the meantime: judge again.
	Ops []queue.Op `json:"-"`
}

// kept is how many evaluations of an account are kept at least; of those before
// it only the reputation that they led to. What a thousand later ones have left
// of one is (1−α)^1000 of it.
const kept = 1000

// book gathers what one verdict counts.
type book struct {
	journal  queue.Journal
	settings Settings
	now      time.Time
	verdict  Verdict
	at       map[account]int // into verdict.Reputations
}

func newBook(j queue.Journal, s Settings, now time.Time) *book {
	return &book{journal: j, settings: s, now: now, at: map[account]int{}}
}

// has returns what was counted of a job's attempt by a source.
func (b *book) has(ctx context.Context, e *Evaluation) (Evaluation, bool, error) {
	return read[Evaluation](ctx, b.journal, ofJob(e.Job), jobKey(e.Attempt, e.Source))
}

// count adds an evaluation that was not counted yet. One of which nothing can be
// said is left out.
func (b *book) count(ctx context.Context, e Evaluation) error {
	composite, any := e.Weights.Composite(e.Vector)
	if !any {
		return nil
	}
	e.Composite = composite
	if err := b.write(ofJob(e.Job), jobKey(e.Attempt, e.Source), e, true); err != nil {
		return err
	}
	for _, a := range accounts(&e) {
		if err := b.fold(ctx, a, &e); err != nil {
			return err
		}
	}
	b.verdict.Evaluations = append(b.verdict.Evaluations, e)
	return nil
}

func (b *book) fold(ctx context.Context, a account, e *Evaluation) error {
	i, open := b.at[a]
	if !open {
		r, _, err := read[Reputation](ctx, b.journal, reputations, a.key())
		if err != nil {
			return err
		}
		r.Subject, r.Domain = a.subject, a.domain
		i, b.at[a] = len(b.verdict.Reputations), len(b.verdict.Reputations)
		b.verdict.Reputations = append(b.verdict.Reputations, r)
	}
	r := b.verdict.Reputations[i].Next(e)
	b.verdict.Reputations[i] = r
	if alert, far := r.Drifted(b.settings.Drift); far {
		b.verdict.Alerts = append(b.verdict.Alerts, alert)
	}
	// Its number is free unless somebody else counted something for the account
	// since we read it: then nothing of this verdict is stored.
	if err := b.write(counted+a.key(), numberKey(r.N), e, true); err != nil {
		return err
	}
	if r.N%kept != 0 {
		return nil
	}
	if err := b.write(bases+a.key(), numberKey(r.N), r, false); err != nil {
		return err
	}
	if r.N >= 2*kept {
		b.verdict.Ops = append(b.verdict.Ops,
			queue.Erase{Space: counted + a.key(), UpTo: numberKey(r.N - kept)},
			queue.Erase{Space: bases + a.key(), UpTo: numberKey(r.N - 2*kept)})
	}
	return nil
}

// close returns the verdict, complete.
func (b *book) close() (Verdict, error) {
	for i := range b.verdict.Reputations {
		r := &b.verdict.Reputations[i]
		if err := b.write(reputations, account{r.Subject, r.Domain}.key(), r, false); err != nil {
			return Verdict{}, err
		}
	}
	return b.verdict, nil
}

func (b *book) write(space, key string, value any, once bool) error {
	r, err := record(space, key, value, b.now)
	if err == nil {
		b.verdict.Ops = append(b.verdict.Ops, queue.Write{Record: r, Once: once})
	}
	return err
}

// read returns the value of a record; false: there is none.
func read[T any](ctx context.Context, j queue.Journal, space, key string) (v T, any bool, err error) {
	r, err := j.Record(ctx, space, key)
	if errors.Is(err, queue.ErrNotFound) {
		return v, false, nil
	}
	if err == nil {
		err = json.Unmarshal(r.Value, &v)
	}
	if err != nil {
		return v, false, fmt.Errorf("read %s of %s: %w", key, space, err)
	}
	return v, true, nil
}

// each calls do with the values of a space, in the order of their keys.
func each[T any](ctx context.Context, j queue.Journal, space string, do func(key string, v T)) error {
	const page = 500
	for after := ""; ; {
		records, err := j.Records(ctx, space, after, page)
		if err != nil {
			return fmt.Errorf("read %s: %w", space, err)
		}
		for _, r := range records {
			var v T
			if err := json.Unmarshal(r.Value, &v); err != nil {
				return fmt.Errorf("read %s of %s: %w", r.Key, space, err)
			}
			do(r.Key, v)
			after = r.Key
		}
		if len(records) < page {
			return nil
		}
	}
}
