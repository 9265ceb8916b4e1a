//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/client"
	"github.com/agentsched/agentsched/internal/testrun"
)

// play runs the plan to its end: every job has ended, and every machine was told to end.
func (f *fleet) play(ctx context.Context) error {
	ctx, end := testrun.Context(f.tb, ctx, patience, errStuck)
	defer end()
	if err := f.open(ctx); err != nil {
		return err
	}
	if err := f.submitAll(ctx, f.plan.Jobs[:f.fleetPlan.Split]); err != nil {
		return err
	}
	rest := make(chan error, 1)
	f.calls.Go(func() { rest <- f.submitAll(ctx, f.plan.Jobs[f.fleetPlan.Split:]) })
	if err := f.follow(ctx, rest); err != nil {
		return err
	}
	return f.finish(ctx)
}

// awaitLeader waits until a scheduler leads.
func (f *fleet) awaitLeader(ctx context.Context) error {
	for f.leader(ctx) == nil {
		if err := f.pause(ctx); err != nil {
			return fmt.Errorf("nobody leads: %w", err)
		}
	}
	return nil
}

// awaitInstances waits until each node has a name for its runs.
func (f *fleet) awaitInstances(ctx context.Context) error {
	for _, m := range f.nodes {
		for m.instance() == "" {
			if err := f.pause(ctx); err != nil {
				return fmt.Errorf("node %s does not start: %w\n%s", m.name, err, m.run)
			}
		}
		f.census.know(m.instance(), m.host)
	}
	return nil
}

// awaitNodes waits until each node has reached who leads: one that cannot would take part in nothing.
func (f *fleet) awaitNodes(ctx context.Context) error {
	for {
		away := len(f.nodes)
		if leader := f.leader(ctx); leader != nil {
			c := leader.client()
			nodes, _ := c.Nodes(ctx) // it may have ceased to lead
			c.Close()
			for _, n := range nodes {
				if n.State == "connected" {
					away--
				}
			}
		}
		if away == 0 {
			return nil
		}
		if err := f.pause(ctx); err != nil {
			return fmt.Errorf("%d nodes of %d are not connected: %w", away, len(f.nodes), err)
		}
	}
}

// pause is between two looks at what gives no signal.
func (f *fleet) pause(ctx context.Context) error {
	look := time.NewTimer(50 * time.Millisecond)
	defer look.Stop()
	select {
	case <-look.C:
		return f.ended()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leader asks the schedulers, one after the other, who leads. It is nil if none of them says so, and works.
func (f *fleet) leader(ctx context.Context) *machine {
	working := f.working()
	for _, m := range working {
		c := m.client()
		ctx, end := context.WithTimeout(ctx, time.Second)
		fleet, err := c.Fleet(ctx)
		end()
		c.Close()
		if err != nil || fleet.Leader == nil {
			continue
		}
		if i := slices.IndexFunc(working, func(m *machine) bool { return m.instance() == fleet.Leader.Instance }); i >= 0 {
			return working[i]
		}
	}
	return nil
}

// submitAll submits jobs, by one scheduler after another until one has acknowledged them.
func (f *fleet) submitAll(ctx context.Context, jobs []jobPlan) error {
	for _, tenant := range []string{"red", "blue", "green"} {
		text, err := f.submission(tenant, jobs)
		if err != nil {
			return err
		}
		if text == "" {
			continue
		}
		each := func(do func(string)) {
			for _, j := range jobs {
				if j.Tenant == tenant {
					do(j.Name)
				}
			}
		}
		each(f.log.ask)
		key := fmt.Sprintf("%s-%s", tenant, jobs[0].Name)
		for n := 0; ; n++ {
			c := f.schedulers[n%len(f.schedulers)].client()
			asking, end := context.WithTimeout(ctx, 5*time.Second)
			_, err := c.SubmitFile(asking, api.JobFile{Dir: f.dir, Text: text}, client.WithKey(key))
			end()
			c.Close()
			if err == nil {
				break
			}
			var problem *api.Problem
			if errors.As(err, &problem) && problem.Status < 500 && problem.Status != 409 && problem.Status != 429 {
				return fmt.Errorf("submit jobs of %s: %w", tenant, err)
			}
			if e := f.wait(ctx); e != nil {
				return fmt.Errorf("submit jobs of %s: %w, after %w", tenant, e, err)
			}
		}
		each(f.log.acknowledge)
	}
	return nil
}

func (f *fleet) wait(ctx context.Context) error {
	again := time.NewTimer(100 * time.Millisecond)
	defer again.Stop()
	select {
	case <-again.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ended returns an error if a machine's process has ended by itself.
func (f *fleet) ended() error {
	for _, m := range slices.Concat(f.schedulers, f.nodes) {
		if m.down || m.run == nil || !m.run.over() {
			continue
		}
		return fmt.Errorf("%s ended by itself (%s)\n%s", m.name, m.run.cmd.ProcessState, m.run)
	}
	return nil
}

// follow strikes, until every job has ended.
func (f *fleet) follow(ctx context.Context, rest <-chan error) error {
	pending := slices.Clone(f.plan.Faults)
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		n, more := f.marks.now()
		if err := errors.Join(f.undoUntil(time.Now(), false), f.ended()); err != nil {
			return err
		}
		if len(pending) > 0 && pending[0].After <= n {
			x := pending[0]
			switch err := f.strike(ctx, x); {
			case errors.Is(err, errMissed):
				pending[0].After = n + 20
				slices.SortStableFunc(pending, func(a, b fault) int { return a.After - b.After })
				f.tell("at mark %d: %s had nothing to strike", n, x.Do)
			case err != nil:
				return fmt.Errorf("%s: %w", x.Do, err)
			default:
				f.struck[x.Do]++
				f.tell("at mark %d: %s, pick %d, for %d ms", n, x.Do, x.Pick, x.MS)
				pending = pending[1:]
			}
			continue
		}
		select {
		case err := <-rest:
			if err != nil {
				return err
			}
			rest = nil
		case <-more:
			if len(pending) > 0 {
				continue
			}
			<-look.C
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%w:\n%s", context.Cause(ctx), f.unfinished())
		}
		if rest == nil && f.allOver(ctx) {
			return f.undoUntil(time.Now(), true)
		}
	}
}

// allOver asks which jobs have ended, and reports whether all have.
func (f *fleet) allOver(ctx context.Context) bool {
	for _, m := range f.working() {
		c := m.client()
		ctx, end := context.WithTimeout(ctx, time.Second)
		page, err := c.List(ctx, client.ListQuery{Limit: 1000})
		end()
		c.Close()
		if err != nil {
			continue
		}
		f.census.alive() // their runs have ended before, whenever that is noticed
		for _, j := range page.Jobs {
			if j.State.Terminal() {
				f.log.end(string(j.Spec.Name))
			}
		}
		break
	}
	return !slices.ContainsFunc(f.plan.Jobs, func(j jobPlan) bool { return !f.log.ended(j.Name) })
}

// unfinished tells of the jobs that have not ended.
func (f *fleet) unfinished() string {
	ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
	defer end()
	var b strings.Builder
	for _, m := range f.working() {
		c := m.client()
		defer c.Close()
		page, err := c.List(ctx, client.ListQuery{Limit: 1000})
		if err != nil {
			fmt.Fprintf(&b, "%s: %v\n", m.name, err)
			continue
		}
		for _, j := range page.Jobs {
			if !j.State.Terminal() {
				fmt.Fprintf(&b, "%s: %s %s, %d attempts, waiting: %+v\n", j.Spec.Name, j.ID, j.State, j.Attempts, j.Status.Waiting)
			}
		}
		break
	}
	for _, m := range f.census.alive() {
		fmt.Fprintf(&b, "alive: %s %s of %s, pid %d\n", m.Role, m.Run, m.Job, m.pid)
	}
	return b.String()
}

// finish waits until nothing of a run is left, and has every machine end as its user would.
func (f *fleet) finish(ctx context.Context) error {
	f.base.Mend()
	f.base.CutAfter(math.MaxInt) // in place of what was not cut
	n, _ := f.marks.now()
	f.tell("all jobs have ended, at mark %d", n)
	if !testrun.Within(f.tb, leftWithin, func() bool { return len(f.census.alive()) == 0 }) {
		return fmt.Errorf("every job has ended, and there are runs:\n%s", f.unfinished())
	}
	for _, group := range [][]*machine{f.nodes, f.schedulers} {
		for _, m := range group {
			m.down = true
			if err := m.run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
		for _, m := range group {
			select {
			case <-m.run.ended:
			case <-ctx.Done():
				return fmt.Errorf("%s does not end: %w\n%s", m.name, context.Cause(ctx), m.run)
			}
			// One that has just been started again may not listen to signals yet, and ends by this one.
			said := m.run.stderr.String()
			early := m.run.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGTERM && said == ""
			// So does one that is told to end before it listens: what one before it was killed with still lies there.
			if s, err := os.Lstat(m.socket()); err == nil && m.stale != nil && os.SameFile(s, m.stale) && s.ModTime().Equal(m.stale.ModTime()) {
				_ = os.Remove(m.socket())
			}
			if code := m.run.cmd.ProcessState.ExitCode(); code != 0 && !early {
				return fmt.Errorf("%s was told to end, and did with %s\n%s", m.name, m.run.cmd.ProcessState, m.run)
			}
		}
	}
	return nil
}
