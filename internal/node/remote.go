package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsched/agentsched/internal/supervisor"
	"github.com/agentsched/agentsched/job"
)

// remote is a node as its scheduler sees it, over all of its sessions.
type remote struct {
	nodes *Nodes
	name  string
	host  atomic.Pointer[supervisor.Host] // as the machine sees it; nil before the first inventory

	// news is held while what has become of the node and its cores is told to the handler, one thing
	// after the other.
	news sync.Mutex

	mu        sync.Mutex // guards what follows
	visit     *visit     // the session that was welcomed last; nil: none
	process   string
	since     time.Time
	inventory Inventory
	version   string
	cores     map[int]*away // by place; 0: those of earlier processes
	indexes   map[int]int   // of cores, by place; guarded by Nodes.mu
	heard     time.Time     // of sessions before
	lost      bool
	losses    int
	removed   bool   // an operator has said that nothing of it lives: it comes again as another one
	taken     uint64 // the last record of the process that was read
	unsettled map[run]RunSettled
	told      bool                 // taken is settled
	closed    bool                 // it takes no new jobs
	isolated  map[int]isolatedCore // cores in a crash loop, by place
	crashing  bool                 // all of them are, and the handler was told
	resume    bool                 // somebody has lifted that, and isolated is of before
	resumed   bool                 // the node was told of it in this session
	again     chan struct{}        // closed when the node comes again; nil: it has not come yet
}

// comes notes that the node has come, and returns a channel that is closed when it comes again.
func (r *remote) comes() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.again != nil {
		close(r.again)
	}
	r.again = make(chan struct{})
	return r.again
}

// away is a core that is up on a node, or was.
type away struct {
	*supervisor.Core
	life int
}

// session returns the session that there is; nil: none.
func (r *remote) session() *visit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.visit
}

// lastHeard returns when the node was heard last.
func (r *remote) lastHeard() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.visit != nil {
		if at := r.visit.link.LastHeard().At; at.After(r.heard) {
			r.heard = at
		}
	}
	return r.heard
}

// watch gives the node up when nothing of its runs lives any more.
func (r *remote) watch() {
	if !r.came() {
		return
	}
	silent := time.Since(r.lastHeard())
	if silent < r.nodes.cfg.LostAfter() {
		return
	}
	r.news.Lock()
	defer r.news.Unlock()
	if silent = time.Since(r.lastHeard()); silent < r.nodes.cfg.LostAfter() {
		return // it has come again meanwhile
	}
	if r.giveUp(fmt.Sprintf("was not heard for %s", silent.Round(time.Millisecond))) {
		r.mu.Lock()
		r.losses++
		r.mu.Unlock()
		r.nodes.cfg.Log.Error().Str("node", r.name).Dur("silent_ms", silent).Msg("the node is lost; its jobs go on elsewhere")
		r.nodes.changed()
	}
}

// giveUp ends the node's session and what it had: nothing of its runs lives, or somebody vouches for that. It
// reports whether that is news. r.news is held.
func (r *remote) giveUp(why string) bool {
	r.mu.Lock()
	cores, visit, lost := r.cores, r.visit, r.lost
	r.cores, r.lost, r.visit = map[int]*away{}, true, nil
	r.mu.Unlock()
	if visit != nil {
		visit.link.Close("the node " + why)
	}
	for _, c := range cores {
		r.nodes.cfg.Handler.CoreDown(c.Core, fmt.Errorf("%w: node %s %s", supervisor.ErrLost, r.name, why))
	}
	return !lost
}

// remove gives the node up in the name of an operator, with what earlier schedulers have left there.
func (r *remote) remove(ctx context.Context) error {
	r.news.Lock()
	defer r.news.Unlock()
	if !r.came() { // else what was left there is taken over, or given back
		if _, err := r.nodes.cfg.Handler.CoresTakeOver(ctx, r.name, nil); err != nil {
			return err
		}
	}
	r.giveUp("was removed by an operator")
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removed = true
	return nil
}

// came reports whether the node was welcomed once.
func (r *remote) came() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process != ""
}

// known reports whether the node has come, or is closed for when it comes.
func (r *remote) known() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process != "" || r.closed
}

// join makes a core of what a node says of one, and tells of it. r.news is held.
func (r *remote) join(ctx context.Context, s *visit, up *CoreUp) (*away, error) {
	peer := s.peers[up.Place]
	if peer == nil {
		return nil, fmt.Errorf("node %s tells of core %d; it has %d", r.name, up.Place, len(s.peers))
	}
	c := &away{life: up.Life, Core: supervisor.Join(supervisor.Away{
		Node: r.name, Index: r.nodes.index(r, up.Place), Place: up.Place, PID: up.PID, Info: up.Info, Peer: peer, Host: r.host.Load, Recorded: r.recorded,
	})}
	if err := r.nodes.configure(ctx, c.Core); err != nil {
		r.nodes.cfg.Handler.CoreFailed(c.Index(), err)
		return nil, fmt.Errorf("configure core %d of node %s: %w", up.Place, r.name, err)
	}
	r.nodes.cfg.Handler.CoreUp(c.Core)
	return c, nil
}

// past returns the core that stands for those which are dead, with ends to tell. r.news is held.
func (r *remote) past(s *visit) *away {
	c := &away{Core: supervisor.Join(supervisor.Away{Node: r.name, Index: r.nodes.index(r, 0), Peer: s.ctl, Host: r.host.Load, Past: true, Recorded: r.recorded})}
	r.nodes.cfg.Handler.CoreUp(c.Core)
	return c
}

// core returns the core in a place, or else the one that stands for those that are dead.
func (r *remote) core(at int) *away {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.cores[at]; c != nil {
		return c
	}
	return r.cores[0]
}

// welcome takes a node that is there, maybe again, with what it has.
func (r *remote) welcome(ctx context.Context, s *visit, h *Hello) (w Welcome, err error) {
	n := r.nodes
	if w.Protocol, err = negotiate(h); err != nil {
		return w, err
	}
	if err := h.Inventory.check(); err != nil {
		return w, err
	}
	for i := range h.Isolated {
		if err := h.Isolated[i].check(s); err != nil {
			return w, err
		}
	}
	r.news.Lock()
	defer r.news.Unlock()
	r.mu.Lock()
	before, same, removed := r.cores, r.process == h.Process, r.removed
	r.mu.Unlock()
	if removed {
		return w, errors.New("an operator has removed this node; it may come again")
	}
	r.offers(&h.Inventory)
	now := map[int]*away{}
	gone := func(cores map[int]*away, why string) {
		for _, c := range cores {
			n.cfg.Handler.CoreDown(c.Core, fmt.Errorf("%w: node %s %s", supervisor.ErrLost, r.name, why))
		}
	}
	defer func() {
		if err != nil {
			gone(now, "was not taken")
		}
	}()
	for i := range h.Cores {
		c, err := r.join(ctx, s, &h.Cores[i])
		if err != nil {
			return w, err
		}
		now[h.Cores[i].Place] = c
	}
	var held []supervisor.HeldRun
	for _, x := range h.Runs {
		if now[x.Place] == nil && now[0] == nil {
			now[0] = r.past(s)
		}
		c := now[x.Place]
		if c == nil {
			c = now[0]
		}
		held = append(held, supervisor.HeldRun{Job: x.Job, Attempt: x.Attempt, Core: c.Core})
	}
	verdicts, err := n.cfg.Handler.CoresTakeOver(ctx, r.name, held)
	if err != nil {
		return w, err
	}
	for _, v := range verdicts {
		w.Verdicts = append(w.Verdicts, Verdict(v))
	}
	if same {
		gone(before, "has begun a new session without it")
	} else {
		gone(before, "was started again")
	}
	w.Settings = forNode(n.cfg.Handler.Settings(nil))
	r.mu.Lock()
	clear(r.isolated)
	r.resume, r.resumed = r.resume && same, false
	for _, x := range h.Isolated {
		r.isolated[x.Place] = isolatedCore{time.Now().Add(x.For.Std()), x.Cause}
	}
	r.mu.Unlock()
	r.tellIsolated(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !same {
		r.process, r.since, r.taken = h.Process, time.Now(), 0
		clear(r.unsettled)
	}
	r.visit, r.cores, r.version, r.heard, r.lost = s, now, h.Version, time.Now(), false
	w.Version, w.Instance, w.Name, w.Lease = n.cfg.Version, n.cfg.Instance, r.name, job.Duration(n.cfg.Lease)
	r.poke()
	return w, nil
}

// offers takes what the node offers.
func (r *remote) offers(v *Inventory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inventory = *v
	r.shape()
}

// close has the node take no new jobs, or take some again.
func (r *remote) close(closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = closed
	r.shape()
}

// shape makes the host as the machine sees it. r.mu is held.
func (r *remote) shape() {
	v := &r.inventory
	h := &supervisor.Host{Name: r.name, OS: v.OS, Arch: v.Arch, Labels: v.Labels, Kinds: []job.WorkerKind{}, Sandbox: v.Sandbox, Levels: v.Levels, Slots: v.Slots, Memory: v.Memory, Mirrors: v.Mirrors, Closed: r.closed}
	for _, w := range v.Workers {
		if w.Ready {
			h.Kinds = append(h.Kinds, w.Kind)
		}
	}
	r.host.Store(h)
}

// up takes a core that a node has started.
func (r *remote) up(ctx context.Context, s *visit, x *CoreUp) error {
	r.news.Lock()
	defer r.news.Unlock()
	r.mu.Lock()
	known := r.visit != s || r.cores[x.Place] != nil && r.cores[x.Place].life >= x.Life
	r.mu.Unlock()
	if known {
		return nil
	}
	r.dead(x.Place, supervisor.ErrLost)
	c, err := r.join(ctx, s, x)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cores[x.Place] = c
	return nil
}

// down takes that a core is dead, with all that it had.
func (r *remote) down(s *visit, x *CoreDown) {
	r.news.Lock()
	defer r.news.Unlock()
	r.mu.Lock()
	c := r.cores[x.Place]
	other := r.visit != s || c == nil || c.life != x.Life
	r.mu.Unlock()
	if other {
		return
	}
	cause := errors.New(x.Cause)
	if x.Replaced {
		cause = fmt.Errorf("%w: %s", supervisor.ErrReplaced, x.Cause)
	}
	r.dead(x.Place, cause)
}

// dead tells that the core in a place is down. r.news is held.
func (r *remote) dead(at int, cause error) {
	r.mu.Lock()
	c := r.cores[at]
	delete(r.cores, at)
	r.mu.Unlock()
	if c != nil {
		r.nodes.cfg.Handler.CoreDown(c.Core, cause)
	}
}

// check returns what is wrong with what a node says of a core in a crash loop.
func (x *CoreIsolated) check(s *visit) error {
	const most = 24 * time.Hour
	switch {
	case s.peers[x.Place] == nil:
		return fmt.Errorf("node %s tells of core %d; it has %d", s.node.name, x.Place, len(s.peers))
	case x.For < 0 || x.For.Std() > most:
		return fmt.Errorf("node %s isolates core %d for %s; it must be 0s to %s", s.node.name, x.Place, x.For, most)
	case len(x.Cause) > maxText:
		return fmt.Errorf("node %s says in %d bytes why core %d is isolated; at most %d", s.node.name, len(x.Cause), x.Place, maxText)
	}
	return nil
}

// isolates takes that a core is in a crash loop, or is tried again.
func (r *remote) isolates(s *visit, x *CoreIsolated) error {
	if err := x.check(s); err != nil {
		return err
	}
	r.news.Lock()
	defer r.news.Unlock()
	r.mu.Lock()
	if r.visit != s {
		r.mu.Unlock()
		return nil
	}
	r.resume = false // what it tells is of after
	if x.For == 0 {
		delete(r.isolated, x.Place)
	} else {
		r.isolated[x.Place] = isolatedCore{time.Now().Add(x.For.Std()), x.Cause}
	}
	r.mu.Unlock()
	r.tellIsolated(s)
	return nil
}

// tellIsolated tells the handler that all cores are in a crash loop, or not any more. r.news is held.
func (r *remote) tellIsolated(s *visit) {
	r.mu.Lock()
	all := len(r.isolated) == len(s.peers) && !r.resume
	var first isolatedCore // to be tried again
	for _, i := range r.isolated {
		if first.until.IsZero() || i.until.Before(first.until) {
			first = i
		}
	}
	// A scheduler before this one may have been told that they are.
	over := len(r.isolated) == 0 || r.crashing && !all
	r.crashing = all
	r.mu.Unlock()
	switch {
	case all:
		r.nodes.cfg.Handler.NodeIsolated(r.name, first.until, "its agentcores are in a crash loop: "+first.cause)
	case over:
		r.nodes.cfg.Handler.NodeIsolated(r.name, time.Time{}, "")
	}
	r.nodes.changed()
}

// forgive has the cores in a crash loop tried again, at once or when the node is heard, and reports whether there
// are any.
func (r *remote) forgive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.isolated) == 0 {
		return false
	}
	r.resume, r.resumed, r.crashing = true, false, false
	r.poke()
	return true
}

// draining takes that a core takes no new work.
func (r *remote) draining(s *visit, x *CoreDraining) {
	r.news.Lock()
	defer r.news.Unlock()
	r.mu.Lock()
	c := r.cores[x.Place]
	other := r.visit != s || c == nil || c.life != x.Life
	r.mu.Unlock()
	if !other {
		r.nodes.cfg.Handler.CoreDraining(c.Core, x.Why, x.Wait)
	}
}

// reconfigure tells the cores the settings of now.
func (r *remote) reconfigure(ctx context.Context) error {
	r.mu.Lock()
	var cores []*away
	if r.visit != nil && r.visit.link.Status().Connected {
		for place, c := range r.cores {
			if place > 0 {
				cores = append(cores, c)
			}
		}
	}
	r.mu.Unlock()
	var errs []error
	for _, c := range cores {
		if err := r.nodes.configure(ctx, c.Core); err != nil {
			errs = append(errs, fmt.Errorf("core %d of node %s: %w", c.Place(), r.name, err))
		}
	}
	return errors.Join(errs...)
}

// recorded notes what is stored of a run: the node is told soon.
func (r *remote) recorded(id job.ID, attempt int, events int64, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := run{id, attempt}
	x := r.unsettled[k]
	r.unsettled[k] = RunSettled{Job: id, Attempt: attempt, Events: max(x.Events, events), Over: x.Over || over}
	r.poke()
}

// poke has the session settle what there is. r.mu is held.
func (r *remote) poke() {
	if r.visit == nil {
		return // the next one begins with that
	}
	select {
	case r.visit.wake <- struct{}{}:
	default:
	}
}

// takeSettled returns what the node has still to be told, at most so many runs.
func (r *remote) takeSettled(most int) (x Settled, some bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told {
		x.Taken, r.told, some = r.taken, true, true
	}
	if r.resume && !r.resumed {
		x.Resume, r.resumed, some = true, true, true
	}
	for k, v := range r.unsettled {
		if len(x.Runs) == most {
			r.poke()
			break
		}
		x.Runs, some = append(x.Runs, v), true
		delete(r.unsettled, k)
	}
	return x, some
}

// read notes that a record was dealt with, as far as it is not about runs.
func (r *remote) read(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if number > r.taken {
		r.taken, r.told = number, false
		r.poke()
	}
}

// status returns how the node fares.
func (r *remote) status() Status {
	heard := r.lastHeard()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Status{Name: r.name, Version: r.version, Came: r.process != "", Lost: r.lost, Losses: r.losses, Closed: r.closed, Heard: heard, Since: r.since, Inventory: r.inventory}
	if r.visit != nil {
		s.Connected, s.RoundTrip = r.visit.link.Status().Connected, r.visit.link.LastHeard().RoundTrip
	}
	for at := 1; at <= maxCores; at++ {
		if i, ok := r.isolated[at]; ok && r.cores[at] == nil && time.Until(i.until) > 0 {
			s.Cores = append(s.Cores, supervisor.Status{Index: r.nodes.index(r, at), Node: r.name, Place: at, State: supervisor.Isolated, IsolatedUntil: i.until.UTC().Round(0), Cause: i.cause, RSSBytes: -1})
		}
		if c := r.cores[at]; c != nil {
			s.Cores = append(s.Cores, supervisor.Status{
				Index: c.Index(), Node: r.name, Place: at, PID: c.PID(), State: supervisor.Up, Version: c.Info.Version, Protocol: c.Info.Protocol, Since: c.Info.Started, Heartbeat: s.RoundTrip, RSSBytes: -1,
			})
		}
	}
	return s
}
