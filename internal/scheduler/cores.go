package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// fleet are the cores as the scheduler sees them. It hears of them from their supervisor
// (supervisor.Handler) and posts what it hears to the machine, which gives each life of a
// core a number; it knows which core has which. What a core asks for itself it passes on.
type fleet struct {
	count      int // cores at once
	instance   job.InstanceID
	log        zerolog.Logger
	feed       *Feed
	isolations *Isolations
	talks      *Conversations
	loop       *loop
	sup        Cores
	// answer answers what a core asks about the steps and streams of its runs.
	answer func(ctx context.Context, c *supervisor.Core, method string, params json.RawMessage) (any, error)
	// unstreamed reports whether a run is the worker of a stage that streams, to which this scheduler has no stream.
	unstreamed func(ctx context.Context, e *queue.Entry) (bool, error)
	// renews reports whether heartbeats renew the permits of runs.
	renews     func() bool
	nodesOnly  bool                            // no job runs on this host
	keepFiles  func(job.ID, int, *job.Outcome) // Config.KeepFiles
	look       func() []string                 // Config.Mirrors; nil: this host has none
	background func(func())                    // is waited for at the end
	store      queue.Store
	lease      time.Duration // of a claim

	ledger *ledger     // what cores have in common
	ending atomic.Bool // the scheduler is about to end

	looking sync.Mutex // is held while look is asked, so that the last answer stands

	mu       sync.Mutex // guards what follows
	settings ipc.Configure
	rates    Rates
	members  map[*supervisor.Core]*member
	starting map[*supervisor.Core]*member         // that have asked for their settings and are not up
	lives    schedule.CoreID                      // cores so far
	circuits []ipc.Circuit                        // of the last core, while none is up
	mirrors  []string                             // that this host has
	slots    int                                  // that nodes have
	orphans  orphans                              // runs that an earlier scheduler has left on nodes
	mourned  map[schedule.CoreID]*supervisor.Core // of nodes, that are down and whose runs' ends are not all stored
}

// member is a core that is up or starting. Its fields are guarded by fleet.mu, but for
// audience.
type member struct {
	*supervisor.Core
	id         schedule.CoreID
	draining   bool
	metrics    ipc.Metrics   // as it told last
	circuits   []ipc.Circuit // likewise
	latestWins []string      // workspaces, since it was told last
	reporting  bool          // a report is on its way

	audience audience // of isolations
}

// newMember returns a core that starts. Called with f.mu held.
func (f *fleet) newMember(c *supervisor.Core) *member {
	f.lives++
	return &member{Core: c, id: f.lives, audience: audience{node: c.Node()}}
}

// post tells the machine of the cores. One that starts is told from now on of what the
// others do: what happens after its settings were asked for is news to it, too. Called with
// f.mu held.
func (f *fleet) post() {
	list := f.list()
	slots := slotsOf(list)
	if slots != f.slots {
		f.slots = slots
		f.loop.post(boundsOf(f.bounded()))
	}
	f.loop.post(list)
}

// lookAtMirrors takes which mirrors of repositories this host has.
func (f *fleet) lookAtMirrors() {
	if f.look == nil || f.ending.Load() {
		return
	}
	f.looking.Lock()
	defer f.looking.Unlock()
	list := f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Equal(list, f.mirrors) {
		return
	}
	if f.mirrors = list; len(f.members)+len(f.starting) > 0 {
		f.post()
	}
}

// slotsOf returns how many jobs at once the nodes have slots for.
func slotsOf(list schedule.Cores) (n int) {
	seen := map[string]bool{}
	for i := range list {
		if h := list[i].Host; h != nil && h.Name != "" && !seen[h.Name] {
			seen[h.Name] = true
			n += h.Slots
		}
	}
	return n
}

// bounded returns the settings with what the nodes add to the slots of this host. Called with f.mu held.
func (f *fleet) bounded() *ipc.Configure {
	settings := f.settings
	settings.MaxConcurrent += f.slots
	return &settings
}

// list returns the cores for the machine. Called with f.mu held.
func (f *fleet) list() (list schedule.Cores) {
	away, isolated := false, f.isolations.onNodes()
	for _, m := range f.starting {
		list = append(list, schedule.Core{ID: m.id, Index: m.Index(), Host: hostOf(m.Core, isolated), Lasting: m.Node() != ""})
		away = away || m.Node() != ""
	}
	for _, m := range f.members {
		list = append(list, schedule.Core{
			ID: m.id, Index: m.Index(), Host: hostOf(m.Core, isolated), Takes: !m.draining && !m.Past() && !m.audience.behind.Load(),
			Draining: m.draining, Lasting: m.Node() != "", Concurrency: m.metrics.Concurrency,
		})
		away = away || m.Node() != ""
	}
	if away || f.nodesOnly { // else this host is bounded by what all of them are
		own := &schedule.Host{OS: runtime.GOOS, Arch: runtime.GOARCH, Slots: f.settings.MaxConcurrent, Mirrors: f.mirrors, Cordoned: f.nodesOnly}
		for i := range list {
			if list[i].Host == nil {
				list[i].Host = own
			}
		}
	}
	return list
}

// hostOf describes the host of a core, given what is isolated on nodes; nil: this one.
func hostOf(c *supervisor.Core, isolated map[string][]isolation.Scope) *schedule.Host {
	if c.Node() == "" {
		return nil
	}
	h := c.Host()
	if h == nil {
		return &schedule.Host{Name: c.Node(), Cordoned: true}
	}
	out := isolated[h.Name]
	return &schedule.Host{
		Name: h.Name, OS: h.OS, Arch: h.Arch, Labels: h.Labels, Kinds: h.Kinds, Sandbox: h.Sandbox, Levels: h.Levels, Slots: h.Slots, Memory: h.Memory, Mirrors: h.Mirrors,
		Cordoned: h.Closed, Isolated: slices.Contains(out, isolation.Global), Out: out,
	}
}

// told posts the cores again: one of them may have heard of the latest isolations.
func (f *fleet) told() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.post()
}

// forgetStarting lets go of a core that was to take a place. Called with f.mu held.
func (f *fleet) forgetStarting(index int) {
	maps.DeleteFunc(f.starting, func(c *supervisor.Core, _ *member) bool { return c.Index() == index })
}

// core returns a core by the number of its life; nil if it is not up.
func (f *fleet) core(id schedule.CoreID) *member {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m.id == id {
			return m
		}
	}
	return nil
}

// idOf returns the number of a core's life; 0 if it is not up.
func (f *fleet) idOf(c *supervisor.Core) schedule.CoreID {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[c]; m != nil {
		return m.id
	}
	return 0
}

// errNoCore: the core is not up any more.
var errNoCore = errors.New("the agentcore is not up any more")

// call calls a core.
func (f *fleet) call(ctx context.Context, id schedule.CoreID, method string, params, result any) error {
	m := f.core(id)
	if m == nil {
		return errNoCore
	}
	return m.Call(ctx, method, params, result)
}

// isAway reports whether a core is on another host.
func (f *fleet) isAway(id schedule.CoreID) bool {
	m := f.core(id)
	return m != nil && m.Node() != ""
}

// drained lets a core be replaced that has no run any more.
func (f *fleet) drained(id schedule.CoreID) {
	if m := f.core(id); m != nil {
		m.Drained()
	}
}

// runOn returns the run of a job, if the core has that attempt of it.
func (f *fleet) runOn(c *supervisor.Core, id job.ID, attempt int) (*schedule.Run, error) {
	if r := f.loop.run(id); r != nil && r.Attempt == attempt && r.Core != 0 && r.Core == f.idOf(c) {
		return r, nil
	}
	return nil, fmt.Errorf("attempt %d of job %s is over", attempt, id)
}

// flying returns the entry of a run, with its fence, if the core has that run.
func (f *fleet) flying(c *supervisor.Core, id job.ID, attempt int) (queue.Entry, error) {
	r, err := f.runOn(c, id, attempt)
	if err != nil {
		return queue.Entry{}, err
	}
	e := r.Entry
	e.Attempts = r.Attempt
	return e, nil
}

// CoreUp makes the core's slots available.
func (f *fleet) CoreUp(c *supervisor.Core) {
	f.mu.Lock()
	m := f.starting[c]
	if m == nil {
		m = f.newMember(c)
	}
	delete(f.starting, c)
	m.circuits = f.circuitsLocked()
	f.isolations.join(c, &m.audience)
	f.members[c] = m
	f.post()
	validity := f.settings.PermitValidity
	f.mu.Unlock()
	if c.Past() {
		return // nobody is interested in what it was
	}
	f.log.Info().Int("core", c.Index()).Int("core_pid", c.PID()).Str("node", c.Node()).Str("version", c.Info.Version).Msg("agentcore is up")
	if validity > 0 && !c.Info.PermitsLapse {
		f.log.Warn().Int("core", c.Index()).Str("version", c.Info.Version).Stringer("permit_validity", validity).
			Msg("agentcore is of an earlier release, whose permits do not lapse: should this scheduler stand still, its runs go on")
	}
	f.feed.observe(Moment{Kind: MomentCoreUp, Core: c.Index()})
	pid := c.PID()
	if c.Node() != "" {
		pid = 0 // it means nothing here
	}
	f.feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), CorePID: pid, Text: fmt.Sprintf("%s is up (pid %d)", f.nameOf(c), c.PID())})
	f.isolations.tellCores() // its settings may be older than the book
}

// name is what a user calls a core.
func (f *fleet) name(index int) string {
	if f.count > 1 {
		return fmt.Sprintf("agentcore %d", index)
	}
	return "agentcore"
}

// nameOf is what a user calls a core, which may be on another host.
func (f *fleet) nameOf(c *supervisor.Core) string {
	if c.Node() != "" {
		return fmt.Sprintf("agentcore %d of node %s", c.Place(), c.Node())
	}
	return f.name(c.Index())
}

// CoreDown ends the core's flights: everything of it is dead, so their jobs may
// be given out again.
func (f *fleet) CoreDown(c *supervisor.Core, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[c]
	delete(f.members, c)
	f.isolations.leave(c)
	f.post()
	n := 0
	if m != nil {
		if len(f.members) == 0 {
			f.circuits = m.circuits // for the one after it
		}
		for _, r := range f.loop.runs() {
			if r.Core == m.id {
				n++
			}
		}
		if c.Node() != "" && n > 0 {
			f.mourned[m.id] = c
		}
		f.loop.post(schedule.CoreGone{ID: m.id, Cause: cause, Replaced: errors.Is(cause, supervisor.ErrReplaced) || errors.Is(cause, supervisor.ErrLost)})
	}
	if c.Past() {
		return
	}
	ending := f.ending.Load()
	text := fmt.Sprintf("%s (pid %d) died with %d jobs in flight; nothing of it is left, a new one is started", f.nameOf(c), c.PID(), n)
	switch {
	case ending:
		text = fmt.Sprintf("%s (pid %d) has ended with the scheduler", f.nameOf(c), c.PID())
	case errors.Is(cause, supervisor.ErrReplaced):
		text = fmt.Sprintf("%s (pid %d) has ended and is replaced", f.nameOf(c), c.PID())
	case errors.Is(cause, supervisor.ErrLost):
		text = fmt.Sprintf("%s (pid %d) is lost with %d jobs in flight, which go on elsewhere: %v", f.nameOf(c), c.PID(), n, cause)
	}
	f.feed.observe(Moment{Kind: MomentCoreDown, Core: c.Index(), Text: text})
	if !ending {
		f.feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: text})
	}
}

// CoreFailed tells of a core that did not come up.
func (f *fleet) CoreFailed(index int, cause error) {
	f.mu.Lock()
	f.forgetStarting(index)
	f.post()
	f.mu.Unlock()
	text, _, _ := strings.Cut(cause.Error(), "\n")
	f.feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: f.name(index) + " did not come up, another is tried: " + text})
}

// CoreDraining gives the core no further job. It is told when its last one has
// ended.
func (f *fleet) CoreDraining(c *supervisor.Core, why string, wait bool) {
	f.mu.Lock()
	m := f.members[c]
	if m != nil {
		m.draining = true
		f.post()
	}
	f.mu.Unlock()
	text := "%s (pid %d) is replaced, its jobs go on with the next: %s"
	if wait {
		text = "%s (pid %d) takes no new jobs and is replaced when its last one has ended: %s"
	}
	f.feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: fmt.Sprintf(text, f.nameOf(c), c.PID(), why)})
	if m == nil {
		c.Drained()
	}
}

// CoreIsolated tells that a core is in a crash loop and left alone for a while;
// with a zero until, that it is tried again.
func (f *fleet) CoreIsolated(index int, until time.Time, cause error) {
	scope := isolation.Scope(fmt.Sprintf("%s%d", coreScope, index))
	if until.IsZero() {
		f.feed.publish(api.Update{Kind: api.UpdateCore, Time: now(), Text: fmt.Sprintf("%s is tried again after its isolation", f.name(index))})
		return
	}
	// The supervisor isolates it: this only tells.
	f.isolations.escalate(nil, isolation.Escalation{
		Scope: scope, Cause: isolation.CauseCoreCrashes, Action: isolation.Notify, Time: now(), Until: until.UTC(),
		Message: fmt.Sprintf("%s is in a crash loop and isolated until %s, the others go on; `scheduler crashes` shows why, `scheduler resume %s` tries it at once: %v",
			f.name(index), until.Local().Format("15:04:05"), scope, cause),
	})
}

// CoreRuns returns the tags of the runs that the core may have.
func (f *fleet) CoreRuns(c *supervisor.Core) (tags []string) {
	id := f.idOf(c)
	for _, r := range f.loop.runs() {
		if id != 0 && r.Core == id {
			tags = append(tags, job.RunTag(f.instance, r.Entry.ID, r.Attempt))
		}
	}
	return tags
}

// CoreCall answers what a core asks about its runs.
func (f *fleet) CoreCall(ctx context.Context, c *supervisor.Core, method string, params json.RawMessage) (any, error) {
	return f.answer(ctx, c, method, params)
}

// RenewPermits reports whether heartbeats renew the permits of runs.
func (f *fleet) RenewPermits() bool { return f.renews() }

// Settings returns what the core, nil for none in particular, is to enforce now.
func (f *fleet) Settings(c *supervisor.Core) ipc.Configure {
	f.mu.Lock()
	defer f.mu.Unlock()
	settings := f.settings // a node has slots of its own
	switch m := f.members[c]; {
	case c == nil:
		settings.Isolations = f.isolations.listFor(nil)
	case m != nil:
		settings.Isolations = f.isolations.listFor(&m.audience)
	default:
		if f.starting[c] == nil {
			f.forgetStarting(c.Index())
			f.starting[c] = f.newMember(c)
		}
		settings.Isolations = f.isolations.start(&f.starting[c].audience)
	}
	f.loop.ask(func(m *schedule.Machine) {
		at := time.Now()
		m.Take(at, f.list()) // what is spent from here on a core that starts is told as the others are
		settings.Limits.CostWindows = m.Spent(at, settings.Limits.CostWindows)
	})
	settings.Limits.Shared = f.ledger.configure(f.rates, settings.Limits.CostWindows)
	settings.Circuits = f.circuitsLocked()
	return settings
}

// boundsNow returns what the machine keeps to.
func (f *fleet) boundsNow() schedule.Bounds {
	f.mu.Lock()
	defer f.mu.Unlock()
	return boundsOf(f.bounded())
}

// use changes what the cores are to enforce.
func (f *fleet) use(c ipc.Configure, r Rates) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settings, f.rates = c, r
}

// circuitsLocked returns how the breakers stood when the cores told of them
// last, of those that several cores have the one that is open for longest: a
// core that starts need not find out what another knows. Called with f.mu held.
func (f *fleet) circuitsLocked() []ipc.Circuit {
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
	for _, m := range f.members {
		take(m.circuits)
	}
	if len(f.members) == 0 {
		take(f.circuits)
	}
	return slices.Collect(maps.Values(worst))
}

// noteLatestWins counts that a newer job took the place of one in a workspace. The core
// with the lowest index counts what concerns all of them.
func (f *fleet) noteLatestWins(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var first *member
	for _, m := range f.members {
		if first == nil || m.Index() < first.Index() {
			first = m
		}
	}
	if first != nil {
		first.latestWins = append(first.latestWins, path)
	}
}

// pid returns the process id of a core of this host that is up, or 0.
func (f *fleet) pid() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.members {
		if c.Node() == "" {
			return c.PID()
		}
	}
	return 0
}

// toReport returns the cores that have answered the last report, and notes that the next is
// on its way.
func (f *fleet) toReport() iter.Seq[*member] {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*member
	for _, m := range f.members {
		if !m.reporting {
			m.reporting = true
			list = append(list, m)
		}
	}
	return slices.Values(list)
}

// report tells a core how the queue stands, and what the other cores did.
func (f *fleet) report(ctx context.Context, m *member, q ipc.QueueMetrics) {
	for _, took := range m.TakeHeartbeats() {
		q.HeartbeatMS = append(q.HeartbeatMS, took.Milliseconds())
	}
	f.mu.Lock()
	q.LatestWins, m.latestWins = m.latestWins, nil
	f.mu.Unlock()
	q.Ledger = f.ledger.name
	f.loop.ask(func(machine *schedule.Machine) { q.Elsewhere = machine.Elsewhere(m.id) })
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := m.Call(ctx, ipc.MethodReportQueueMetrics, q, nil); err != nil {
		f.log.Debug().Err(err).Int("core", m.Index()).Msg("the core could not be told how the queue stands")
		f.loop.ask(func(machine *schedule.Machine) { machine.Untold(m.id, q.Elsewhere) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m.reporting = false
}

// status fills in how the cores fare.
func (f *fleet) status(st *Status) {
	cores := f.sup.Cores()
	f.mu.Lock()
	defer f.mu.Unlock()
	st.Circuits, st.PermitValidity = f.circuitsLocked(), f.settings.PermitValidity
	for _, c := range cores {
		core := CoreStatus{Status: c}
		for _, m := range f.members {
			if m.Index() == c.Index {
				f.loop.ask(func(machine *schedule.Machine) { core.Inflight = machine.OnCore(m.id) })
				core.Stage, core.Concurrency = m.metrics.Stage, m.metrics.Concurrency
				core.Evidence, core.Metrics = m.metrics.Evidence, m.metrics.Metrics
			}
		}
		st.Cores = append(st.Cores, core)
	}
}
