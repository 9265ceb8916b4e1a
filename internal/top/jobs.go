package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/progress"
	"github.com/agentsched/agentsched/job"
)

// order is how jobs are sorted.
type order int

const (
	byState order = iota // what runs, what waits for a person, what waits
	byAge                // the newest first
	byCost
	byTenant
	orders
)

func (o order) String() string { return [...]string{"state", "age", "cost", "tenant"}[o] }

// rank puts what somebody wants to see first.
func rank(e *api.Job) int {
	switch statusOf(e).State {
	case job.Running:
		return 0
	case job.WaitingApproval:
		return 1
	case job.Pending:
		return 2
	}
	return 3 // it has ended since the last look
}

// shown returns the jobs that the filter lets through, sorted.
func (m *model) shown() []*api.Job {
	var list []*api.Job
	words := strings.Fields(strings.ToLower(m.filter))
	for i := range m.picture.Jobs {
		if e := &m.picture.Jobs[i]; matches(e, words) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b *api.Job) int {
		switch m.order {
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
func matches(e *api.Job, words []string) bool {
	if len(words) == 0 {
		return true
	}
	text := strings.ToLower(strings.Join([]string{string(e.ID), string(e.Spec.Name), string(e.Spec.Tenant), string(workerOf(e)), stateWord(e), note(e)}, " "))
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

// note says why a job is where it is.
func note(e *api.Job) string {
	switch {
	case !e.State.Terminal() && e.CancelRequested:
		return "is being cancelled"
	case statusOf(e).State == job.WaitingApproval && e.Approval != nil && e.Approval.Why != "":
		return progress.Clean(firstLine(e.Approval.Why))
	case e.State == job.Dispatched:
		return progress.Clean(firstLine(e.Spec.Instructions))
	}
	st := statusOf(e)
	return progress.Clean(st.Line())
}

// columns are the widths of a row's cells; 0 leaves one out.
type columns struct{ name, state, tenant, worker, attempts, span, cost, note int }

func columnsOf(w int, jobs []*api.Job) columns {
	name, tenant, worker, state := 4, 6, 6, 9
	for _, e := range jobs {
		name = max(name, progress.Width(progress.Clean(e.Spec.Name)))
		tenant = max(tenant, progress.Width(progress.Clean(e.Spec.Tenant)))
		worker = max(worker, progress.Width(progress.Clean(workerOf(e))))
		state = max(state, progress.Width(stateWord(e)))
	}
	c := columns{name: min(name, 16), state: state, span: 6}
	switch {
	case w >= 160:
		c = columns{name: min(name, 48), state: state, tenant: min(tenant, 24), worker: min(worker, 20), attempts: 3, span: 6, cost: 9}
	case w >= 110:
		c = columns{name: min(name, 26), state: state, tenant: min(tenant, 14), worker: min(worker, 12), attempts: 3, span: 6, cost: 9}
	case w >= 72:
		c = columns{name: min(name, 18), state: state, tenant: min(tenant, 9), worker: min(worker, 8), span: 6, cost: 8}
	case w < 40:
		c = columns{name: min(name, max(w-10, 4)), state: 9} // and cut, below 14
	}
	for _, x := range []int{c.name, c.state, c.tenant, c.worker, c.attempts, c.span, c.cost} {
		if x > 0 {
			c.note -= x + 1
		}
	}
	c.note = max(c.note+w, 0)
	return c
}

func (c columns) head() string {
	return c.row(cellsOf{"JOB", "STATE", "TENANT", "WORKER", "ATT", "TIME", "COST", "NOTE"}, func(_ int, text string) string { return text })
}

// cellsOf is a row's text, in the order of columns.
type cellsOf [8]string

// row puts cells into their columns; paint gives each its style.
func (c columns) row(cells cellsOf, paint func(column int, text string) string) string {
	var parts []string
	for i, w := range []int{c.name, c.state, c.tenant, c.worker, c.attempts, c.span, c.cost, c.note} {
		if w <= 0 {
			continue
		}
		text := progress.Fit(cells[i], w)
		if i >= 4 && i <= 6 {
			text = progress.FitRight(cells[i], w)
		}
		parts = append(parts, paint(i, text))
	}
	return strings.TrimRight(strings.Join(parts, " "), " ")
}

// jobLines draws the table in n lines, the first of them its head.
func (m *model) jobLines(n, w int) []string {
	if n < 2 {
		return nil
	}
	jobs := m.shown()
	at := m.position(jobs)
	room := n - 1
	m.first = max(min(m.first, at, len(jobs)-room), at-room+1, 0)
	c := columnsOf(w, jobs)
	head := c.head()
	if w >= 40 {
		what := fmt.Sprintf("%d of %d", len(jobs), max(m.picture.Total, len(m.picture.Jobs)))
		head = progress.Fit(head, max(w-progress.Width(what)-1, 0)) + " " + what
	}
	lines := []string{m.opts.paint(progress.Cut(head, w), bold)}
	if len(jobs) == 0 {
		why := "no job waits or runs"
		switch {
		case !m.seen:
			why = "asking the scheduler…"
		case m.filter != "":
			why = "no job matches " + m.filter
		}
		return append(lines, m.opts.paint(progress.Cut(why, w), faint))
	}
	for i := m.first; i < len(jobs) && i < m.first+room; i++ {
		lines = append(lines, progress.Cut(m.jobLine(c, jobs[i], i == at, w), w))
	}
	return lines
}

func (m *model) jobLine(c columns, e *api.Job, chosen bool, w int) string {
	attempts, span := "", m.now.Sub(e.CreatedAt)
	if e.Attempts > 0 {
		attempts = fmt.Sprint(e.Attempts)
	}
	if e.State == job.Dispatched && e.DispatchedAt != nil {
		span = m.now.Sub(*e.DispatchedAt)
	}
	cells := cellsOf{progress.Clean(e.Spec.Name), stateWord(e), progress.Clean(e.Spec.Tenant), progress.Clean(workerOf(e)), attempts, spanText(span), costOf(e), note(e)}
	if chosen {
		return m.opts.paint(progress.Fit(c.row(cells, func(_ int, text string) string { return text }), w), reverse)
	}
	return c.row(cells, func(column int, text string) string {
		switch column {
		case 1:
			return m.opts.paint(text, stateStyle(e))
		case 7:
			return m.opts.paint(text, faint)
		}
		return text
	})
}

func costOf(e *api.Job) string {
	if text := progress.Cost(e.Spent); text != "-" {
		return text
	}
	return ""
}

// clock is a time of day.
func (m *model) clock(t time.Time) string { return t.In(m.opts.Zone).Format(time.TimeOnly) }
