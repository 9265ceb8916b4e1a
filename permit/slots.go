package permit

import (
	"cmp"
	"fmt"

	"github.com/agentsched/agentsched/job"
)

// slots counts the permits in Gate.live: total, and by kind, tenant and workspace. A count
// that falls to zero is removed, so that no map has more than total entries. Guarded by
// Gate.mu.
type slots struct {
	total      int
	kinds      map[job.WorkerKind]int
	tenants    map[job.Tenant]int
	workspaces map[string]int
}

func newSlots() slots {
	return slots{kinds: map[job.WorkerKind]int{}, tenants: map[job.Tenant]int{}, workspaces: map[string]int{}}
}

// check returns why r has no slot, or nil. throttle is the defence's bound in place of
// MaxConcurrent; 0: none. The first limit that is reached counts: all of them are free
// again when a run ends.
func (s *slots) check(l *Limits, throttle int, r *Request) *Rejection {
	n := s.taken(r)
	switch {
	case n.total >= l.MaxConcurrent:
		return limited(job.WaitSlot, slotRetry, "%d of %d slots are taken", n.total, l.MaxConcurrent)
	case throttle > 0 && n.total >= throttle:
		return &Rejection{Reason: job.GlobalShed, RetryAfter: slotRetry, Action: ActionDefer, Message: fmt.Sprintf(
			"the host is overloaded: %d of %d slots may be used for now, and %d are taken", throttle, l.MaxConcurrent, n.total)}
	}
	if limit := l.PerKind[r.Choice.Worker]; limit > 0 && n.kind >= limit {
		return limited(job.WaitSlot, slotRetry, "%d of %d slots of worker %s are taken", n.kind, limit, r.Choice.Worker)
	}
	if limit := bound(l.PerTenant, r.Tenant, l.EachTenant); limit > 0 && n.tenant >= limit {
		return limited(job.WaitSlot, slotRetry, "%d of %d slots of tenant %s are taken", n.tenant, limit, r.Tenant)
	}
	if limit := bound(l.PerWorkspace, r.Workspace, l.EachWorkspace); r.Workspace != "" && limit > 0 && n.workspace >= limit {
		return limited(job.WaitSlot, slotRetry, "%d of %d slots of workspace %s are taken", n.workspace, limit, r.Workspace)
	}
	return nil
}

// taken is how many slots are taken of those that a request needs.
type taken struct{ total, kind, tenant, workspace int }

// taken counts what this gate holds and what r says that others hold.
func (s *slots) taken(r *Request) taken {
	n := taken{s.total, s.kinds[r.Choice.Worker], s.tenants[r.Tenant], s.workspaces[r.Workspace]}
	for _, h := range r.Elsewhere {
		n.total++
		if h.Kind == r.Choice.Worker {
			n.kind++
		}
		if cmp.Or(h.Tenant, job.DefaultTenant) == r.Tenant {
			n.tenant++
		}
		if h.Workspace == r.Workspace {
			n.workspace++
		}
	}
	return n
}

// bound returns own[key], or each if key is not in own.
func bound[K comparable](own map[K]int, key K, each int) int {
	if limit, ok := own[key]; ok {
		return limit
	}
	return each
}

func (s *slots) take(r *Request) { s.add(r.Choice.Worker, r.Tenant, r.Workspace, 1) }

func (s *slots) giveBack(p *Permit) { s.add(p.Choice.Worker, p.Tenant, p.Workspace, -1) }

func (s *slots) add(kind job.WorkerKind, tenant job.Tenant, workspace string, n int) {
	s.total += n
	count(s.kinds, kind, n)
	count(s.tenants, tenant, n)
	if workspace != "" {
		count(s.workspaces, workspace, n)
	}
}

func count[K comparable](counts map[K]int, key K, n int) {
	if counts[key] += n; counts[key] == 0 {
		delete(counts, key)
	}
}
