package permit

import "github.com/agentsched/agentsched/job"

// slots counts the permits and runs that there are at once. Guarded by
// Gate.mu. A count that falls to zero is forgotten, so that the maps are never
// larger than MaxConcurrent.
type slots struct {
	total      int
	kinds      map[job.WorkerKind]int
	tenants    map[job.Tenant]int
	workspaces map[string]int
}

func newSlots() slots {
	return slots{kinds: map[job.WorkerKind]int{}, tenants: map[job.Tenant]int{}, workspaces: map[string]int{}}
}

// check returns why r has no slot, or nil.
func (s *slots) check(l *Limits, r *Request) *Rejection {
	if s.total >= l.MaxConcurrent {
		return limited(slotRetry, "%d of %d slots are taken", s.total, l.MaxConcurrent)
	}
	if n, limit := s.kinds[r.Choice.Worker], l.PerKind[r.Choice.Worker]; limit > 0 && n >= limit {
		return limited(slotRetry, "%d of %d slots of worker %s are taken", n, limit, r.Choice.Worker)
	}
	if n, limit := s.tenants[r.Tenant], bound(l.PerTenant, r.Tenant, l.EachTenant); limit > 0 && n >= limit {
		return limited(slotRetry, "%d of %d slots of tenant %s are taken", n, limit, r.Tenant)
	}
	if r.Workspace == "" {
		return nil
	}
	if n, limit := s.workspaces[r.Workspace], bound(l.PerWorkspace, r.Workspace, l.EachWorkspace); limit > 0 && n >= limit {
		return limited(slotRetry, "%d of %d slots of workspace %s are taken", n, limit, r.Workspace)
	}
	return nil
}

// bound returns the limit of one, or that of each if it has none of its own.
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
