package terminal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
)

// order is how jobs are sorted.
type order int

const (
	byState order = iota // what waits for a person, what runs, what waits
	byAge                // the newest first
	byCost
	byTenant
	orders
)

func (o order) String() string { return [...]string{"state", "age", "cost", "tenant"}[o] }

// rank puts what somebody wants to see first.
func rank(e *api.Job) int {
	switch statusOf(e).State {
	case job.WaitingApproval:
		return 0
	case job.Running:
		return 1
	case job.Pending:
		return 2
	}
	return 3 // it has ended since the last look
}

// jobTable is which jobs are on the screen, and in which order.
type jobTable struct {
	order  order
	filter string
	chosen job.ID
	first  int                      // index of the first job on the screen
	asked  map[job.ID]*api.Question // the oldest of each job that a run waits for, else that can be answered
	last   map[job.ID]string        // what the runs of jobs have done last, in one line
}

// take notes what is asked in a picture, and forgets what is not in it.
func (t *jobTable) take(p *TopPicture) {
	t.asked = map[job.ID]*api.Question{}
	for i := range p.Questions {
		q := &p.Questions[i]
		if old := t.asked[q.Job]; old == nil || !old.Waits && q.Waits {
			t.asked[q.Job] = q
		}
	}
	last := t.last
	t.last = map[job.ID]string{}
	for i := range p.Jobs {
		if line, known := last[p.Jobs[i].ID]; known {
			t.last[p.Jobs[i].ID] = line
		}
	}
}

// hear notes what a run of a job has done.
func (t *jobTable) hear(u *api.Update) {
	if line := lastLine(u.Event); line != "" && t.last != nil {
		t.last[u.Job] = line
	}
}

// maxLastLine is how much of what a run has done last is kept, in cells.
const maxLastLine = 300

// lastLine says in one line what a run has done; "" if it says little of what it does.
func lastLine(e *job.Event) string {
	n, ok := eventNotice(notice{}, e)
	if !ok && e != nil && (e.Kind == job.EventCommand || e.Kind == job.EventTool) {
		n.text = eventText(e)
	}
	return Cut(n.text, maxLastLine)
}

// shown returns the jobs that the filter lets through, sorted.
func (t *jobTable) shown(jobs []api.Job) []*api.Job {
	var list []*api.Job
	words := strings.Fields(strings.ToLower(t.filter))
	for i := range jobs {
		if e := &jobs[i]; t.matches(e, words) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *api.Job) int {
		switch t.order {
		case byAge:
			return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.ID, b.ID))
		case byCost:
			return cmp.Or(cmp.Compare(b.Spent.CostUSD, a.Spent.CostUSD), cmp.Compare(a.ID, b.ID))
		case byTenant:
			return cmp.Or(cmp.Compare(a.Spec.Tenant, b.Spec.Tenant), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID))
		}
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.RunnableAt.Compare(b.RunnableAt), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// matches reports whether each word stands somewhere in what the row shows.
func (t *jobTable) matches(e *api.Job, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{string(e.ID), string(e.Spec.Name), string(e.Spec.Tenant), string(workerOf(e)), stateWord(e), t.note(e)}, " "))
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func workerOf(e *api.Job) job.WorkerKind {
	if e.Status != nil && e.Status.Worker != "" {
		return e.Status.Worker
	}
	choices := e.Spec.Choices()
	return choices[max(min(e.Choice, len(choices)-1), 0)].Worker
}

// statusOf says how a job stands, as the scheduler told.
func statusOf(e *api.Job) job.Status {
	if e.Status != nil {
		return *e.Status
	}
	return job.Status{}
}

func stateWord(e *api.Job) string { return string(statusOf(e).State) }

func stateStyle(e *api.Job) style {
	switch statusOf(e).State {
	case job.Running:
		return cyan
	case job.WaitingApproval:
		return yellow
	case job.RunCompleted:
		return green
	case job.RunFailed:
		return red
	}
	return faint
}

// note says what is asked about a job, what it does, or why it is where it is.
func (t *jobTable) note(e *api.Job) string {
	st := statusOf(e)
	switch q := t.asked[e.ID]; {
	case !e.State.Terminal() && e.CancelRequested:
		return "is being cancelled"
	case q != nil && q.Waits:
		return "asks: " + Asked(q)
	case st.State == job.WaitingApproval && e.Approval != nil && e.Approval.Why != "":
		return Clean(FirstLine(e.Approval.Why))
	case e.State == job.Dispatched && st.State == job.Running:
		return orSay(t.last[e.ID], Clean(FirstLine(e.Spec.Instructions)))
	}
	return Clean(st.Line())
}

// move chooses the job that is n further on the screen.
func (t *jobTable) move(list []api.Job, n int) {
	jobs := t.shown(list)
	if len(jobs) == 0 {
		t.chosen = ""
		return
	}
	i := max(min(t.position(jobs)+n, len(jobs)-1), 0)
	t.chosen = jobs[i].ID
}

// position is the index of the chosen job among those shown, 0 if it is gone.
func (t *jobTable) position(jobs []*api.Job) int {
	return max(slices.IndexFunc(jobs, func(e *api.Job) bool { return e.ID == t.chosen }), 0)
}

func (t *jobTable) selected(list []api.Job) *api.Job {
	jobs := t.shown(list)
	if len(jobs) == 0 {
		return nil
	}
	return jobs[t.position(jobs)]
}

// jobColumns are the widths of a row's cells; 0 leaves one out.
type jobColumns struct{ name, state, tenant, worker, attempts, span, cost, note int }

func jobColumnsOf(w int, jobs []*api.Job) jobColumns {
	name := widest(4, jobs, func(e *api.Job) string { return Clean(e.Spec.Name) })
	tenant := widest(6, jobs, func(e *api.Job) string { return Clean(e.Spec.Tenant) })
	worker := widest(6, jobs, func(e *api.Job) string { return Clean(workerOf(e)) })
	state := widest(9, jobs, stateWord)
	c := jobColumns{name: min(name, 16), state: state, span: 6}
	switch {
	case w >= 160:
		c = jobColumns{name: min(name, 48), state: state, tenant: min(tenant, 24), worker: min(worker, 20), attempts: 3, span: 6, cost: 9}
	case w >= 110:
		c = jobColumns{name: min(name, 26), state: state, tenant: min(tenant, 14), worker: min(worker, 12), attempts: 3, span: 6, cost: 9}
	case w >= 72:
		c = jobColumns{name: min(name, 18), state: state, tenant: min(tenant, 9), worker: min(worker, 8), span: 6, cost: 8}
	case w < 40:
		c = jobColumns{name: min(name, max(w-10, 4)), state: 9} // and cut, below 14
	}
	for _, x := range []int{c.name, c.state, c.tenant, c.worker, c.attempts, c.span, c.cost} {
		if x > 0 {
			c.note -= x + 1
		}
	}
	c.note = max(c.note+w, 0)
	return c
}

// row puts texts, in the order of the columns, into their cells.
func (c jobColumns) row(texts [8]string, colour bool, state, note style) string {
	widths := [...]int{c.name, c.state, c.tenant, c.worker, c.attempts, c.span, c.cost, c.note}
	styles := map[int]style{1: state, 7: note}
	cells := make([]cell, len(widths))
	for i, w := range widths {
		cells[i] = cell{text: texts[i], width: w, right: i >= 4 && i <= 6, style: styles[i]}
	}
	return row(" ", colour, cells...)
}

// draw draws the table in n lines, the first of them its head.
func (t *jobTable) draw(v *scene, n, w int) []string {
	if n < 2 {
		return nil
	}
	jobs := t.shown(v.picture.Jobs)
	at := t.position(jobs)
	room := n - 1
	t.first = max(min(t.first, at, len(jobs)-room), at-room+1, 0)
	c := jobColumnsOf(w, jobs)
	head := c.row([8]string{"JOB", "STATE", "TENANT", "WORKER", "ATT", "TIME", "COST", "NOTE"}, false, plain, plain)
	if w >= 40 {
		what := fmt.Sprintf("%d of %d", len(jobs), max(v.picture.Total, len(v.picture.Jobs)))
		head = Fit(head, max(w-Width(what)-1, 0)) + " " + what
	}
	lines := []string{v.paint(Cut(head, w), bold)}
	if len(jobs) == 0 {
		why := "no job waits or runs"
		switch {
		case !v.seen:
			why = "asking the scheduler…"
		case t.filter != "":
			why = "no job matches " + t.filter
		}
		return append(lines, v.paint(Cut(why, w), faint))
	}
	for i := t.first; i < len(jobs) && i < t.first+room; i++ {
		line := t.line(v, c, jobs[i], i != at)
		if i == at {
			line = v.paint(Fit(line, w), reverse)
		}
		lines = append(lines, Cut(line, w))
	}
	return lines
}

func (t *jobTable) line(v *scene, c jobColumns, e *api.Job, styled bool) string {
	attempts, span := "", v.now.Sub(e.CreatedAt)
	if e.Attempts > 0 {
		attempts = fmt.Sprint(e.Attempts)
	}
	if e.State == job.Dispatched && e.DispatchedAt != nil {
		span = v.now.Sub(*e.DispatchedAt)
	}
	cost := Cost(e.Spent)
	if cost == "-" {
		cost = ""
	}
	texts := [8]string{Clean(e.Spec.Name), stateWord(e), Clean(e.Spec.Tenant), Clean(workerOf(e)), attempts, spanText(span), cost, t.note(e)}
	s := faint
	if q := t.asked[e.ID]; q != nil && q.Waits {
		s = yellow
	}
	return c.row(texts, v.opts.Colour && styled, stateStyle(e), s)
}
