package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
)

const (
	fairWhat = "the least part of 11 tenants, one of which has 90 % of the jobs"
	// fairJobs are queued at once; what is looked at is whose the first tenth of them is
	// that is served. Until then every tenant has jobs that wait.
	fairJobs, fairOthers = 5500, 10
	fairServed           = fairJobs / 10
)

// fairSpecs are the jobs of eleven tenants: nine of ten are of one, and each tenth is of
// the next one of the others.
func fairSpecs(count func() int64) []job.Spec {
	specs := make([]job.Spec, fairJobs)
	for i := range specs {
		specs[i] = spec(count())
		specs[i].Tenant = "big"
		if i%10 == 9 {
			specs[i].Tenant = job.Tenant(fmt.Sprintf("small-%d", i/10%fairOthers))
		}
	}
	return specs
}

// leastPart returns what the tenant that was served least had of the first jobs, divided
// by an equal part: 1 if all had the same.
func leastPart(served []job.Tenant) float64 {
	times := map[job.Tenant]int{"big": 0}
	for i := range fairOthers {
		times[job.Tenant(fmt.Sprintf("small-%d", i))] = 0
	}
	for _, t := range served[:fairServed] {
		times[t]++
	}
	least := fairServed
	for _, n := range times {
		least = min(least, n)
	}
	return float64(least) * (fairOthers + 1) / fairServed
}

func showPart(s sample) string { return fmt.Sprintf("%.2f of an equal part", s.median()) }

// fairSide has River work the jobs in one queue.
func (p *peerRiver[Tx]) fairSide() side {
	return func(ctx context.Context) (float64, error) {
		var mu sync.Mutex
		var served []job.Tenant
		_, err := p.work(ctx, fairSpecs(func() int64 { return p.count.Add(1) }), riverSetting{few, time.Millisecond}, func(s job.Spec) {
			mu.Lock()
			defer mu.Unlock()
			served = append(served, s.Tenant)
		})
		if err != nil {
			return 0, err
		}
		return leastPart(served), nil
	}
}

// fairSide works the jobs in the order of policy credit, in which all tenants have the
// same weight.
func (b *bed) fairSide() side {
	return func(ctx context.Context) (float64, error) {
		var entries []queue.Entry
		for _, s := range fairSpecs(func() int64 { return b.count.Add(1) }) {
			entries = append(entries, entryOf(s))
		}
		if err := b.store.Enqueue(ctx, b.batch, entries); err != nil {
			return 0, err
		}
		config := policy.Default()
		config.Name = policy.NameCredit
		p, err := policy.New(config)
		if err != nil {
			return 0, err
		}
		served, err := b.dispatch(ctx, p, fairServed)
		if err != nil {
			return 0, err
		}
		_, err = b.work(ctx, fairJobs-len(served), few, false)
		return leastPart(served), err
	}
}

// fairUse is what each job is expected to use, and uses.
var fairUse = policy.Demand{Tokens: 1000, Slots: 1}

// dispatch works jobs as a scheduler with few slots does, until n are completed and
// nothing is in flight: a policy chooses among the heads of the lanes, and what it has
// chosen is claimed. It returns whose the jobs were, in the order of their completion.
func (b *bed) dispatch(ctx context.Context, p policy.Policy, n int) (served []job.Tenant, err error) {
	type end struct {
		tenant job.Tenant
		err    error
	}
	ends, flying := make(chan end, few), 0
	wait := func() error {
		e := <-ends
		flying--
		served = append(served, e.tenant)
		p.End(e.tenant, fairUse, fairUse, true, now())
		return e.err
	}
	defer func() {
		for flying > 0 {
			err = errors.Join(err, wait())
		}
	}()
	for len(served) < n {
		heads, err := b.store.Heads(ctx, queue.HeadsSpec{Each: few, Now: now()})
		if err != nil {
			return nil, err
		}
		lanes := map[job.Lane][]queue.Head{}
		for _, l := range heads.Lanes {
			lanes[l.Lane] = l.Heads
			setHead(p, l.Lane, l.Heads)
		}
		var ids []job.ID
		for at := now(); flying+len(ids) < few; {
			h, any := p.Next(at)
			if !any {
				return nil, fmt.Errorf("nothing is queued after %d jobs", len(served))
			}
			p.Start(h.Lane.Tenant, h.Ask, at)
			ids = append(ids, h.ID)
			lanes[h.Lane] = lanes[h.Lane][1:]
			setHead(p, h.Lane, lanes[h.Lane])
		}
		claims, err := b.store.Claim(ctx, queue.ClaimSpec{Holder: "bench", IDs: ids, Now: now(), Lease: time.Minute})
		if err != nil {
			return nil, err
		}
		for _, e := range claims.Entries {
			flying++
			go func() { ends <- end{e.Spec.Tenant, b.pass(ctx, e, false)} }()
		}
		if len(claims.Entries) < len(ids) {
			return nil, fmt.Errorf("claimed %d jobs of %d", len(claims.Entries), len(ids))
		}
		for more := true; more; more = len(ends) > 0 {
			if err := wait(); err != nil {
				return nil, err
			}
		}
	}
	return served, nil
}

// setHead tells a policy what stands first in a lane.
func setHead(p policy.Policy, l job.Lane, heads []queue.Head) {
	if len(heads) == 0 {
		p.Remove(l)
		return
	}
	p.Add(policy.Head{Lane: l, ID: heads[0].ID, RunnableAt: heads[0].RunnableAt, Ask: fairUse})
}
