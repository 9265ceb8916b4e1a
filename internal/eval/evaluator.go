package eval

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
)

// Store is what an Evaluator uses of a queue.Store.
type Store interface {
	queue.Journal
	Apply(ctx context.Context, ops ...queue.Op) error
	List(ctx context.Context, f queue.Filter) ([]queue.Entry, int, error)
	Attempts(ctx context.Context, id job.ID) ([]job.Attempt, error)
}

// Config sets up an Evaluator.
type Config struct {
	Store    Store
	Settings Settings
	// Now is the clock; nil: the system's.
	Now func() time.Time
	// Changed, if not nil, is told of each verdict that was stored by Record,
	// Report and Batch, one after the other. It must not call the Evaluator.
	Changed func(Verdict)
}

// Evaluator judges the jobs of a store. It may be used by many goroutines.
type Evaluator struct {
	config Config

	mu       sync.Mutex // from reading to storing, so that nothing is judged twice in vain
	settings Settings
}

// New returns an evaluator.
func New(c Config) *Evaluator {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Evaluator{config: c, settings: c.Settings}
}

// Use puts other settings in force, for what is judged from now on.
func (v *Evaluator) Use(s Settings) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.settings = s
}

// Settings returns the settings that are in force.
func (v *Evaluator) Settings() Settings {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.settings
}

// Record judges a job that has ended, as Judge, and stores what follows.
// Whatever was counted before is passed over, so that it may be called again at
// any time.
func (v *Evaluator) Record(ctx context.Context, e *queue.Entry, attempts []job.Attempt) (Verdict, error) {
	return v.commit(ctx, func() (Verdict, error) { return v.judge(ctx, e, attempts) })
}

// Batch records all jobs of a batch that have ended: for what ended while nobody
// was there to judge it.
func (v *Evaluator) Batch(ctx context.Context, id job.BatchID) error {
	entries, err := v.ended(ctx, id)
	if err != nil {
		return err
	}
	for i := range entries {
		e := &entries[i]
		if e.Spec.Flow.Evaluation == nil {
			continue
		}
		attempts, err := v.config.Store.Attempts(ctx, e.ID)
		if err != nil {
			return fmt.Errorf("judge job %s: %w", e.ID, err)
		}
		if _, err := v.Record(ctx, e, attempts); err != nil {
			return err
		}
	}
	return nil
}

// Given is what somebody says of a job that has ended.
type Given struct {
	By string `json:"by"` // who
	Report
}

// Validate reports what cannot be meant.
func (g *Given) Validate() error {
	if strings.TrimSpace(g.By) == "" || len(g.By) > 64 || strings.ContainsFunc(g.By, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return &job.FieldError{Field: "by", Message: fmt.Sprintf("%q is no name, want 1 to 64 printable characters", g.By)}
	}
	return g.Report.check()
}

// Report counts what somebody says, over what is known of the job otherwise. The
// same said again changes nothing; something else by the same is refused with
// queue.ErrExists. ErrNothing: there is no work of that job to judge.
func (v *Evaluator) Report(ctx context.Context, e *queue.Entry, attempts []job.Attempt, g Given) (Verdict, error) {
	if err := g.Validate(); err != nil {
		return Verdict{}, err
	}
	return v.commit(ctx, func() (Verdict, error) { return v.report(ctx, e, attempts, g) })
}

// ErrNothing: nobody has done anything for the job that could be judged.
var ErrNothing = errors.New("nothing to evaluate")

func (v *Evaluator) report(ctx context.Context, e *queue.Entry, attempts []job.Attempt, g Given) (Verdict, error) {
	b := newBook(v.config.Store, v.settings, v.now())
	one, err := v.seen(ctx, b, e, attempts, "by "+g.By)
	if err != nil {
		return Verdict{}, err
	}
	one.put(g.Vector, one.Source)
	one.Comment = g.Comment
	before, any, err := b.has(ctx, &one)
	switch {
	case err != nil:
		return Verdict{}, err
	case any && before.Comment == one.Comment && same(before.Vector, one.Vector):
		return Verdict{Evaluations: []Evaluation{before}}, nil
	case any:
		return Verdict{}, fmt.Errorf("%s has evaluated attempt %d of job %s already, with %.4f: %w", g.By, one.Attempt, e.Spec.Name, before.Composite, errAlready)
	}
	if err := b.count(ctx, one); err != nil {
		return Verdict{}, err
	}
	return b.close()
}

// errAlready tells a second judgement from a race for a number.
var errAlready = fmt.Errorf("what was said is not changed; %w", queue.ErrExists)

// Preview returns what is known of a job that has ended, without counting it.
func (v *Evaluator) Preview(ctx context.Context, e *queue.Entry, attempts []job.Attempt) (Evaluation, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one, err := v.seen(ctx, newBook(v.config.Store, v.settings, v.now()), e, attempts, BySelf)
	one.Composite, _ = one.Weights.Composite(one.Vector)
	return one, err
}

// seen returns what was judged of the latest part already or, if nothing was,
// can be measured of it, to be counted as from another source.
func (v *Evaluator) seen(ctx context.Context, b *book, e *queue.Entry, attempts []job.Attempt, source string) (Evaluation, error) {
	parts := Parts(e, attempts)
	if len(parts) == 0 {
		return Evaluation{}, fmt.Errorf("job %s: %w: %s", e.Spec.Name, ErrNothing, because(e))
	}
	one := begin(e, &parts[len(parts)-1], &b.settings, BySelf, b.now)
	before, any, err := b.has(ctx, &one)
	if any {
		one.put(before.Vector, measured)
		one.Sources, one.Problems = before.Sources, before.Problems
	}
	one.Source = source
	return one, err
}

// because says why there is nothing to evaluate of a job.
func because(e *queue.Entry) string {
	switch {
	case e.State == job.Dispatched:
		return "it is running, and has not ended"
	case e.Held == job.HeldForApproval:
		return "it waits for a person's approval, and has not ended"
	case !e.State.Terminal():
		return "it has not ended"
	case e.CoalescedWith != "":
		return fmt.Sprintf("it is %s with the result of job %s, which is to be evaluated instead", e.State, e.CoalescedWith)
	case e.ExitKind == job.ExitCancelled:
		return "it was cancelled"
	case e.ExitKind == job.ExitFailed:
		return "it has failed, and no attempt says anything of who made it"
	case e.State == job.Completed:
		return "it has no attempts of its own; those who worked for it are evaluated by their own jobs"
	}
	return fmt.Sprintf("it is %s", e.State)
}

func same(a, b Vector) bool {
	return !slices.ContainsFunc(Dimensions(), func(d Dimension) bool {
		x, y := a.Get(d), b.Get(d)
		return (x == nil) != (y == nil) || x != nil && *x != *y
	})
}

// races is how often a verdict is worked out again because others count for the
// same subject at the same time. In this process nobody does.
const races = 20

func (v *Evaluator) commit(ctx context.Context, find func() (Verdict, error)) (Verdict, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for n := 0; ; n++ {
		verdict, err := find()
		if err != nil || len(verdict.Ops) == 0 {
			return verdict, err
		}
		err = v.config.Store.Apply(ctx, verdict.Ops...)
		switch {
		case err == nil:
			if v.config.Changed != nil {
				v.config.Changed(verdict)
			}
			return verdict, nil
		case !errors.Is(err, queue.ErrExists) || n == races:
			return Verdict{}, fmt.Errorf("store an evaluation of job %s: %w", verdict.Evaluations[0].Name, err)
		}
	}
}

// now is the time as it is stored.
func (v *Evaluator) now() time.Time { return v.config.Now().UTC().Round(0) }
