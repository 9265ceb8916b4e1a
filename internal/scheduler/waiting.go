package scheduler

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/workspace"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// StatusOf returns how a job stands as far as the store tells. What a queued job
// waits for is what was said when it was looked at last; Explain.Statuses knows
// better.
func StatusOf(e *queue.Entry, at time.Time) job.Status {
	st := job.Status{State: e.RunState()}
	switch {
	case e.State == job.Dispatched && st.State == job.WaitingApproval:
		w, _ := job.ParseWaiting(e.Waiting)
		st.Note = "asks: " + w.Text
	case e.State == job.Queued:
		w := waitingOf(e, at)
		st.Waiting = &w
	case e.DeadLetter != "":
		st.Note = firstLine(e.DeadLetter)
	case e.Skipped != "":
		st.Note = "skipped: " + firstLine(e.Skipped)
	case e.State == job.Expired:
		st.Note = ExpiredText(e)
	case !e.State.Terminal() && e.CancelRequested:
		st.Note = "is being cancelled"
	case e.State.Terminal() && e.SupersededBy != "":
		st.Note = firstLine(e.Waiting)
	}
	return st
}

// LatestWorker returns the kind of worker of a job's latest attempt, if the job runs or
// has ended and has several to choose from; else "".
func LatestWorker(ctx context.Context, store queue.Reader, e *queue.Entry) job.WorkerKind {
	if len(e.Spec.Fallback) == 0 || e.Attempts == 0 || e.State == job.Queued {
		return ""
	}
	attempts, err := store.Attempts(ctx, e.ID)
	if err != nil || len(attempts) == 0 {
		return "" // the job's own choice is as good a guess as there is
	}
	return attempts[len(attempts)-1].Choice.Worker
}

// ExpiredText says why a job has expired.
func ExpiredText(e *queue.Entry) string {
	if e.Deadline == nil {
		return "expired: not started before its deadline"
	}
	return "expired: not started before its deadline, " + timeText(*e.Deadline)
}

func timeText(t time.Time) string { return t.Local().Format(time.DateTime) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// waitingOf returns what a queued entry waits for as far as it tells itself.
func waitingOf(e *queue.Entry, at time.Time) job.Waiting {
	said, known := job.ParseWaiting(firstLine(e.Waiting))
	if !known {
		said = job.Waiting{Text: firstLine(e.Waiting)}
	}
	as := func(r job.WaitingReason) job.Waiting { return job.Waiting{Reason: r, Text: said.Text} }
	switch e.Held {
	case job.HeldForApproval:
		return as(job.WaitApproval)
	case job.HeldForParts:
		return as(job.WaitParts)
	case job.HeldForTeam:
		return as(job.WaitTeam)
	case job.HeldForWords:
		return as(job.WaitWords)
	case job.HeldByPerson:
		return as(job.WaitPerson)
	case job.HeldForNeeds:
		if said.Reason == job.WaitPipeline {
			return said
		}
		return job.Waiting{Reason: job.WaitDependency, Text: names(e.Spec.Flow.Needs)}
	}
	later := e.RunnableAt.After(at)
	switch {
	case e.WaitsFor != "":
		return as(job.WaitKey)
	case e.Spec.Type == job.External && said.Reason == "":
		return as(job.WaitProgram)
	case later && (said.Reason == "" || said.Reason == job.WaitTurn):
		if e.Attempts > 0 {
			return as(job.WaitRetry)
		}
		return job.Waiting{Reason: job.WaitTime, Text: timeText(e.RunnableAt)}
	case !later && (said.Reason == job.WaitRetry || said.Reason == job.WaitPermit):
		said.Text, _, _ = strings.Cut(said.Text, "; next attempt after ")
		return as(job.WaitTurn)
	case said.Reason == "":
		return as(job.WaitTurn)
	}
	return said
}

// names lists a few names, e.g. "scan, report and 3 more".
func names(list []job.Name) string {
	const most = 3
	var parts []string
	for _, n := range list[:min(len(list), most)] {
		parts = append(parts, string(n))
	}
	text := strings.Join(parts, ", ")
	if more := len(list) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// Explain says how jobs stand, and what they wait for. It holds nothing but what
// listeners were told: it asks the store, the book of isolations and the machine.
type Explain struct {
	store      queue.Store
	feed       *Feed
	log        zerolog.Logger
	isolations *Isolations
	folders    *workspace.Resolver
	loop       *loop
	batch      job.BatchID // whose jobs listeners are told of; "": all
	idle       bool        // no scheduler runs, or
	standby    bool        // it is another one

	// told is what listeners were told that queued jobs wait for, by tell alone.
	told map[job.ID]job.WaitingReason
}

// Statuses returns a function that tells how jobs stand now, to one goroutine. What
// a queued job waits for is what would refuse it if it were claimed now, or has
// refused it when it was claimed last.
func (x *Explain) Statuses(ctx context.Context) func(*queue.Entry) job.Status {
	at := now()
	var look *outlook
	return func(e *queue.Entry) job.Status {
		if x.standby {
			return standbyStatus(ctx, x.store, e, at)
		}
		if x.idle {
			return idleStatus(ctx, x.store, e, at)
		}
		st := StatusOf(e, at)
		st.Worker = LatestWorker(ctx, x.store, e)
		if e.State == job.Dispatched && st.Note == "" {
			x.loop.ask(func(m *schedule.Machine) { st.Note = m.YieldNote(e.ID) })
		}
		if st.Waiting == nil || e.Held != "" || e.WaitsFor != "" || e.Spec.Type == job.External || st.Waiting.Reason == job.WaitCommand {
			return st
		}
		if i, blocked := x.isolations.Blocking(e); blocked {
			w := i.Waiting()
			st.Waiting = &w
			return st
		}
		if e.RunnableAt.After(at) {
			return st
		}
		if look == nil {
			look = x.look(ctx, at)
		}
		if w, refused := look.refuses(e); refused {
			st.Waiting = &w
			return st
		}
		folder, known := x.folders.Peek(e.Spec.Workspace.Path)
		if w, refused := x.loop.refuses(e, folder, known); refused {
			st.Waiting = &w
		} else if look.full {
			st.Waiting = &look.why
		}
		return st
	}
}

// outlook is what keeps runnable jobs from running at a moment.
type outlook struct {
	full   bool // nothing may begin, whatever it is
	why    job.Waiting
	shares map[job.Tenant]job.Waiting // by the policy's own bounds

	ctx    context.Context
	at     time.Time
	ledger queue.Ledger
	grants map[queue.Owner]queue.Grant // that bound something
	used   map[queue.Owner]string      // usedUp of those that were asked for

	left   map[job.Tenant]int64 // credits of those that have a balance
	prices queue.Prices
}

func (x *Explain) look(ctx context.Context, at time.Time) *outlook {
	o := &outlook{shares: map[job.Tenant]job.Waiting{}, ctx: ctx, at: at, ledger: x.store, grants: map[queue.Owner]queue.Grant{}, used: map[queue.Owner]string{}}
	grants, err := x.store.Grants(ctx)
	if err != nil {
		x.log.Warn().Err(err).Msg("read the grants to tell what jobs wait for")
	}
	for _, g := range grants {
		if g.Tokens > 0 || g.CostUSD > 0 || g.Wall > 0 {
			o.grants[g.Owner] = g
		}
	}
	balances, err := x.store.Balances(ctx)
	if err != nil {
		x.log.Warn().Err(err).Msg("read the credits to tell what jobs wait for")
	}
	o.left, o.prices = make(map[job.Tenant]int64, len(balances)), x.store.Prices()
	for _, b := range balances {
		o.left[b.Tenant] = b.Left()
	}
	for _, share := range x.loop.shares() {
		if share.Held != "" {
			o.shares[share.Tenant] = heldShare(&share)
		}
	}
	slots, why := x.loop.slots()
	o.full, o.why = slots == 0, why
	return o
}

// heldShare returns what the jobs of a tenant wait for that the policy holds back.
func heldShare(share *policy.Share) job.Waiting {
	if strings.Contains(share.Held, "budget") {
		return job.Waiting{Reason: job.WaitBudget, Text: share.Held}
	}
	return job.Waiting{Reason: job.WaitSlot, Text: share.Held}
}

// usedUp says by how much an owner's grant is used up; "" if it is not.
func usedUp(ctx context.Context, ledger queue.Ledger, g *queue.Grant, at time.Time) (string, error) {
	f := queue.AccountFilter{Tenant: g.Tenant, Agent: g.Agent}
	if g.Window > 0 {
		f.Since = at.Add(-g.Window.Std())
	}
	list, err := ledger.Accounts(ctx, f)
	if err != nil || len(list) == 0 {
		return "", err
	}
	switch u := &list[0]; {
	case g.Tokens > 0 && u.Usage.Tokens() >= g.Tokens:
		return fmt.Sprintf("%d of %d tokens are used", u.Usage.Tokens(), g.Tokens), nil
	case g.CostUSD > 0 && u.Usage.CostUSD >= g.CostUSD:
		return fmt.Sprintf("%.2f of %.2f US dollars are spent", u.Usage.CostUSD, g.CostUSD), nil
	case g.Wall > 0 && u.Wall >= g.Wall:
		return fmt.Sprintf("%s of %s of attempts are used", u.Wall.Std().Round(time.Second), g.Wall.Std()), nil
	}
	return "", nil
}

// overGrant returns what an owner's jobs wait for whose grant is used up: they are
// passed over.
func (o *outlook) overGrant(owner queue.Owner) (job.Waiting, bool) {
	g, bounded := o.grants[owner]
	if !bounded {
		return job.Waiting{}, false
	}
	text, known := o.used[owner]
	if !known {
		var err error
		if text, err = usedUp(o.ctx, o.ledger, &g, o.at); err != nil {
			text = "" // then nobody knows
		}
		o.used[owner] = text
	}
	return job.Waiting{Reason: job.WaitBudget, Text: fmt.Sprintf("the grant of %s: %s", ownerText(owner), text)}, text != ""
}

func ownerText(o queue.Owner) string {
	if o.Agent == "" {
		return string(o.Tenant)
	}
	return string(o.Tenant) + "/" + string(o.Agent)
}

func (o *outlook) refuses(e *queue.Entry) (job.Waiting, bool) {
	if w, over := o.overGrant(queue.Owner{Tenant: e.Spec.Tenant}); over {
		return w, true
	}
	if w, over := o.overGrant(queue.Owner{Tenant: e.Spec.Tenant, Agent: e.Spec.Agent}); over {
		return w, true
	}
	if left, bounded := o.left[e.Spec.Tenant]; bounded && left < o.prices.Of(e.Spec.Agent) {
		return noCredits(e.Spec.Tenant, left, o.prices.Of(e.Spec.Agent)), true
	}
	w, held := o.shares[e.Spec.Tenant]
	return w, held
}

// noCredits returns what a job waits for whose tenant has too few credits left for a run.
func noCredits(t job.Tenant, left, price int64) job.Waiting {
	return job.Waiting{Reason: job.WaitBudget, Text: fmt.Sprintf("the credits of %s: %d are left and a run takes %d; `scheduler grant %s --credits N` adds some", t, left, price, t)}
}

// Of at most maxTold queued jobs, the first of each scope, listeners hear every
// tellEvery what they wait for, if that has changed.
const (
	maxTold   = 100
	tellEvery = 5 // reports
)

// tell tells listeners what queued jobs wait for of which nobody has told, as
// of those that a claim has passed over.
func (x *Explain) tell(ctx context.Context) error {
	entries, _, err := x.store.List(ctx, queue.Filter{Batch: x.batch, States: []job.EntryState{job.Queued}, Limit: maxTold})
	if err != nil {
		return fmt.Errorf("look what jobs wait for: %w", err)
	}
	status, told := x.Statuses(ctx), make(map[job.ID]job.WaitingReason, len(entries))
	for i := range entries {
		e := &entries[i]
		st := status(e)
		if st.Waiting == nil {
			continue
		}
		reason := st.Waiting.Reason
		told[e.ID] = reason
		before, known := x.told[e.ID]
		if !known {
			before = StatusOf(e, now()).Waiting.Reason // which was told when it was stored
		}
		if before != reason {
			u := entryUpdate(e, st)
			u.Kind = api.UpdateWaiting
			x.feed.publish(u)
		}
	}
	x.told = told
	return nil
}
