package scheduler

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// member is a core that is up, as the scheduler sees it. Its fields are guarded
// by Scheduler.mu, but for audience.
type member struct {
	*supervisor.Core
	draining bool
	flights  int
	metrics  ipc.Metrics   // as it told last
	circuits []ipc.Circuit // likewise

	// What other cores, and those before it, were asked for, took back and spent
	// since this one was told last.
	asked    []asked
	returned []ipc.Held
	spent    map[job.Tenant]float64

	latestWins []string // workspaces, since it was told last
	reporting  bool     // a report is on its way

	audience audience // of isolations
}

// newMember returns a core that starts, to be told from now on of the others. Called
// with s.mu held.
func (s *Scheduler) newMember(c *supervisor.Core) *member {
	return &member{Core: c, asked: slices.DeleteFunc(slices.Clone(s.asked), func(a asked) bool {
		return time.Since(a.at) > rateMemory
	})}
}

// members returns the cores that are up, and those that start: what happens after
// their settings were asked for is news to them too. Called with s.mu held.
func (s *Scheduler) members() iter.Seq2[*supervisor.Core, *member] {
	return func(yield func(*supervisor.Core, *member) bool) {
		for c, m := range s.cores {
			if !yield(c, m) {
				return
			}
		}
		for c, m := range s.starting {
			if !yield(c, m) {
				return
			}
		}
	}
}

// forgetStarting lets go of a core that was to take a place. Called with s.mu held.
func (s *Scheduler) forgetStarting(index int) {
	maps.DeleteFunc(s.starting, func(c *supervisor.Core, _ *member) bool { return c.Index() == index })
}

// CoreUp makes the core's slots available.
func (s *Scheduler) CoreUp(c *supervisor.Core) {
	s.mu.Lock()
	m := s.starting[c]
	if m == nil {
		m = s.newMember(c)
	}
	delete(s.starting, c)
	m.circuits = s.circuitsLocked()
	s.Isolations.join(c, &m.audience)
	s.cores[c] = m
	s.postCores()
	s.mu.Unlock()
	s.cfg.Log.Info().Int("core", c.Index()).Int("core_pid", c.PID()).Str("version", c.Info.Version).Msg("agentcore is up")
	if validity := s.permitValidity(); validity > 0 && !c.Info.PermitsLapse {
		s.cfg.Log.Warn().Int("core", c.Index()).Str("version", c.Info.Version).Stringer("permit_validity", validity).
			Msg("agentcore is of an earlier release, whose permits do not lapse: should this scheduler stand still, its runs go on")
	}
	s.Feed.observe(Moment{Kind: MomentCoreUp, Core: c.Index()})
	s.Feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), CorePID: c.PID(), Text: fmt.Sprintf("%s is up (pid %d)", s.coreName(c.Index()), c.PID())})
	s.Isolations.tellCores() // its settings may be older than the book
	s.poke()
}

// permitValidity is how long runs go on without a heartbeat; 0: for ever.
func (s *Scheduler) permitValidity() job.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg.Settings.PermitValidity
}

// coreName is what a user calls a core.
func (s *Scheduler) coreName(index int) string {
	if s.cfg.Cores > 1 {
		return fmt.Sprintf("agentcore %d", index)
	}
	return "agentcore"
}

// CoreDown ends the core's flights: everything of it is dead, so their jobs may
// be given out again.
func (s *Scheduler) CoreDown(c *supervisor.Core, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.cores[c]
	delete(s.cores, c)
	s.Isolations.leave(c)
	s.postCores()
	if m != nil {
		s.remember(m.circuits)
	}
	n := 0
	for _, f := range s.live {
		if f.core == c {
			f.settle(ending{died: cause})
			n++
		}
	}
	text := fmt.Sprintf("%s (pid %d) died with %d jobs in flight; nothing of it is left, a new one is started", s.coreName(c.Index()), c.PID(), n)
	switch {
	case s.stopping:
		text = fmt.Sprintf("%s (pid %d) has ended with the scheduler", s.coreName(c.Index()), c.PID())
	case errors.Is(cause, supervisor.ErrReplaced):
		text = fmt.Sprintf("%s (pid %d) has ended and is replaced", s.coreName(c.Index()), c.PID())
	}
	s.Feed.observe(Moment{Kind: MomentCoreDown, Core: c.Index(), Text: text})
	if !s.stopping {
		s.Feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: text})
	}
	s.poke()
}

// CoreFailed tells of a core that did not come up.
func (s *Scheduler) CoreFailed(index int, cause error) {
	s.mu.Lock()
	s.forgetStarting(index)
	s.mu.Unlock()
	text, _, _ := strings.Cut(cause.Error(), "\n")
	s.Feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: s.coreName(index) + " did not come up, another is tried: " + text})
}

// CoreDraining gives the core no further job. It is told when its last one has
// ended.
func (s *Scheduler) CoreDraining(c *supervisor.Core, why string, wait bool) {
	s.mu.Lock()
	m := s.cores[c]
	idle := m == nil || m.flights == 0
	if m != nil {
		m.draining = true
		s.postCores()
	}
	s.mu.Unlock()
	text := "%s (pid %d) is replaced, its jobs go on with the next: %s"
	if wait {
		text = "%s (pid %d) takes no new jobs and is replaced when its last one has ended: %s"
	}
	s.Feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: fmt.Sprintf(text, s.coreName(c.Index()), c.PID(), why)})
	if idle {
		c.Drained()
	}
}

// CoreIsolated tells that a core is in a crash loop and left alone for a while;
// with a zero until, that it is tried again.
func (s *Scheduler) CoreIsolated(index int, until time.Time, cause error) {
	scope := isolation.Scope(fmt.Sprintf("%s%d", coreScope, index))
	if until.IsZero() {
		s.Feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: fmt.Sprintf("%s is tried again after its isolation", s.coreName(index))})
		return
	}
	// The supervisor isolates it: this only tells.
	s.Isolations.escalate(nil, isolation.Escalation{
		Scope: scope, Cause: isolation.CauseCoreCrashes, Action: isolation.Notify, Time: now(), Until: until.UTC(),
		Message: fmt.Sprintf("%s is in a crash loop and isolated until %s, the others go on; `scheduler crashes` shows why, `scheduler resume %s` tries it at once: %v",
			s.coreName(index), until.Local().Format("15:04:05"), scope, cause),
	})
}

// CoreRuns returns the tags of the runs that the core may have.
func (s *Scheduler) CoreRuns(c *supervisor.Core) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tags []string
	for _, f := range s.live {
		if f.core == c {
			tags = append(tags, job.RunTag(s.cfg.Instance, f.entry.ID, f.attempt))
		}
	}
	return tags
}

// Settings returns what the core, nil for none in particular, is to enforce now.
func (s *Scheduler) Settings(c *supervisor.Core) ipc.Configure {
	s.mu.Lock()
	defer s.mu.Unlock()
	settings := s.cfg.Settings
	settings.Limits.CostWindows = s.spent.fill(now(), settings.Limits.CostWindows)
	switch m := s.cores[c]; {
	case c == nil:
		settings.Isolations = s.Isolations.listFor(nil)
	case m != nil:
		settings.Isolations = s.Isolations.listFor(&m.audience)
	default:
		if s.starting[c] == nil {
			s.forgetStarting(c.Index())
			s.starting[c] = s.newMember(c)
		}
		settings.Isolations = s.Isolations.start(&s.starting[c].audience)
	}
	settings.Circuits = s.circuitsLocked()
	return settings
}

// circuitsLocked returns how the breakers stood when the cores told of them
// last, of those that several cores have the one that is open for longest: a
// core that starts need not find out what another knows. Called with s.mu held.
func (s *Scheduler) circuitsLocked() []ipc.Circuit {
	type key struct {
		worker job.WorkerKind
		model  string
	}
	worst := map[key]ipc.Circuit{}
	take := func(list []ipc.Circuit) {
		for _, c := range list {
			k := key{c.Worker, c.Model}
			if have, ok := worst[k]; !ok || c.OpenUntil.After(have.OpenUntil) {
				worst[k] = c
			}
		}
	}
	for _, m := range s.cores {
		take(m.circuits)
	}
	if len(s.cores) == 0 {
		take(s.circuits)
	}
	return slices.Collect(maps.Values(worst))
}

// remember keeps the breakers of a core that is gone, for the one after it.
// Called with s.mu held.
func (s *Scheduler) remember(circuits []ipc.Circuit) {
	if len(s.cores) == 0 {
		s.circuits = circuits
	}
}

// pick returns the core that has least to do, or nil if none takes work.
// Called with s.mu held.
func (s *Scheduler) pick() *member {
	var best *member
	for _, m := range s.cores {
		if m.draining || m.audience.behind.Load() {
			continue
		}
		if best == nil || m.flights < best.flights || m.flights == best.flights && m.Index() < best.Index() {
			best = m
		}
	}
	return best
}

// first returns the core with the lowest index, which counts what concerns all
// of them, or nil. Called with s.mu held.
func (s *Scheduler) first() *member {
	var first *member
	for _, m := range s.cores {
		if first == nil || m.Index() < first.Index() {
			first = m
		}
	}
	return first
}

// board puts the flight on the core, nil if there is none any more: it then
// ends without a permit. Called with s.mu held.
func (s *Scheduler) board(f *flight, m *member) {
	s.live[f.entry.ID] = f
	if m != nil {
		f.core = m.Core
		m.flights++
	}
}

// leave takes the flight off its core, which may have been waiting for that. Its
// job may be in the air again by now: its end was recorded before. Called with
// s.mu held.
func (s *Scheduler) leave(f *flight) {
	if s.live[f.entry.ID] == f {
		delete(s.live, f.entry.ID)
	}
	if m := s.cores[f.core]; m != nil {
		if m.flights--; m.flights == 0 && m.draining {
			m.Drained()
		}
	}
}

// asked is a permit that was asked for, mostly at another core.
type asked struct {
	by *flight
	at time.Time // with its monotonic reading
	ipc.Held
}

// rateMemory is how long a permit counts in a rate: a core that starts anew is
// told of those that were asked for since, or its buckets would be full.
const rateMemory = time.Minute

// maxAsked bounds how many of them are remembered.
const maxAsked = 10_000

// elsewhere returns what the core has to know of the others and of those that
// were before it, nil if there is nothing. What it was told of once is not told
// again: who calls must tell it. Called with s.mu held.
func (s *Scheduler) elsewhere(c *supervisor.Core) *ipc.Elsewhere {
	m := s.cores[c]
	if m == nil {
		return nil
	}
	e := &ipc.Elsewhere{Returned: m.returned, Spent: m.spent}
	for _, a := range m.asked {
		e.Granted = append(e.Granted, a.Held)
	}
	m.asked, m.returned, m.spent = nil, nil, nil
	for _, f := range s.live {
		if f.core != c && f.held {
			e.Running = append(e.Running, s.holds(f))
		}
	}
	if len(e.Running)+len(e.Granted)+len(e.Returned)+len(e.Spent) == 0 {
		return nil
	}
	return e
}

// untold takes back that a core was told of the others: the call has failed. What
// it may have heard all the same counts twice then, which is better than not at all.
func (s *Scheduler) untold(c *supervisor.Core, e *ipc.Elsewhere) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.cores[c]
	if m == nil || e == nil {
		return
	}
	at := time.Now()
	for _, h := range e.Granted {
		m.asked = append(m.asked, asked{at: at, Held: h})
	}
	m.returned = append(m.returned, e.Returned...)
	for tenant, usd := range e.Spent {
		m.spend(tenant, usd)
	}
}

// spend notes what was spent elsewhere. Called with Scheduler.mu held.
func (m *member) spend(tenant job.Tenant, usd float64) {
	if m.spent == nil {
		m.spent = map[job.Tenant]float64{}
	}
	m.spent[tenant] += usd
}

// ask counts the permit that the flight is about to ask for, at every core:
// before the answer, so that of two requests at once neither misses the other
// and no limit is exceeded. Called with s.mu held.
func (s *Scheduler) ask(f *flight) {
	a := asked{f, time.Now(), s.holds(f)}
	f.held, f.told = true, nil
	for c, other := range s.members() {
		if c != f.core {
			other.asked = append(other.asked, a)
			f.told = append(f.told, other)
		}
	}
	s.asked = append(s.asked, a)
	// The oldest stand first, and are looked at one by one: it is done for every job.
	old := max(len(s.asked)-maxAsked, 0)
	for a.at.Sub(s.asked[old].at) > rateMemory {
		old++
	}
	s.asked = s.asked[old:]
}

// refused takes back what ask has counted.
func (s *Scheduler) refused(f *flight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.held = false
	by := func(a asked) bool { return a.by == f }
	s.asked = slices.DeleteFunc(s.asked, by)
	for _, other := range f.told {
		untold := len(other.asked)
		other.asked = slices.DeleteFunc(other.asked, by)
		if len(other.asked) == untold {
			other.returned = append(other.returned, s.holds(f))
		}
	}
}

// holds returns what the flight's permit counts as.
func (s *Scheduler) holds(f *flight) ipc.Held {
	path, _ := s.folders.Peek(f.entry.Spec.Workspace.Path)
	return ipc.Held{Tenant: f.entry.Spec.Tenant, Worker: f.choice.Worker, Model: f.choice.Model, Workspace: path}
}

// RestartCore replaces a core, or all of them with index 0, one after the
// other. With drain it first lets the jobs of each end; else they are stopped
// and go on with their sessions on the successor. It returns when the last
// successor is up.
func (s *Scheduler) RestartCore(ctx context.Context, index int, drain bool) error {
	err := s.sup.Restart(ctx, index, drain)
	if errors.Is(err, supervisor.ErrNotRunning) {
		return fmt.Errorf("%w: %w", ErrEnding, err)
	}
	return err
}
