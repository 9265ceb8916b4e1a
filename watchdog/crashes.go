package watchdog

import (
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// crashes are the recent crashes of each kind of worker. What a run is told to do
// may end its worker, so crashes of one job or one tenant alone say nothing about
// the kind: of a job, and of a tenant, at most half of the limit counts, rounded up.
type crashes map[job.WorkerKind][]crash

type crash struct {
	at     time.Time
	tenant job.Tenant
	job    job.ID
}

// verdict says of which kind, and of which tenant, the crashes reached the limit.
type verdict int

const (
	tooFew   verdict = iota
	ofTenant         // of several jobs of the tenant that crashed now
	ofKind           // of several tenants
)

// add records a crash, and reports whether it completes a burst; the next one
// begins empty.
func (c crashes) add(now time.Time, s WorkerCrash, limit Burst) verdict {
	if limit.Count <= 0 {
		return tooFew
	}
	old := func(x crash) bool { return now.Sub(x.at) >= limit.Within.Std() }
	list := slices.DeleteFunc(c[s.Kind], old)
	half := (limit.Count + 1) / 2
	ofJob, first := 0, -1
	for i, x := range list {
		if x.job == s.Job {
			if ofJob++; first < 0 {
				first = i
			}
		}
	}
	if ofJob >= half {
		list = slices.Delete(list, first, first+1) // this one takes its place
	}
	list = append(list, crash{now, s.Tenant, s.Job})
	c[s.Kind] = list

	byTenant, all := map[job.Tenant]int{}, 0
	for _, x := range list {
		if byTenant[x.tenant]++; byTenant[x.tenant] <= half {
			all++
		}
	}
	switch {
	case all >= limit.Count:
		delete(c, s.Kind)
		return ofKind
	case byTenant[s.Tenant] >= limit.Count:
		c[s.Kind] = slices.DeleteFunc(list, func(x crash) bool { return x.tenant == s.Tenant })
		return ofTenant
	}
	if len(c) > maxSubjects {
		c.forget(s.Kind)
	}
	return tooFew
}

// forget drops the kind whose last crash is the oldest, other than but.
func (c crashes) forget(but job.WorkerKind) {
	var quietest job.WorkerKind
	var last time.Time
	for kind, list := range c {
		if kind == but {
			continue
		}
		if len(list) == 0 {
			delete(c, kind)
			return
		}
		if t := list[len(list)-1].at; last.IsZero() || t.Before(last) {
			quietest, last = kind, t
		}
	}
	delete(c, quietest)
}
