package workflow_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/workflow"
)

// erlang is supervisor.erl once more, written as it is there: processes that
// have a mailbox, act on one exit signal after the other, and wait within
// terminate_children for each child. Two things differ from OTP, as documented: a
// supervisor whose children have all ended, none to be restarted, ends with them;
// and one that its parent is about to terminate restarts nobody any more, and does
// not first finish what it is at.
type erlang struct {
	tops    []*sup
	born    map[job.Name]int // how often each job was started
	jobs    map[job.Name]*kid
	started []string
}

type sup struct {
	erl      *erlang
	spec     *job.Team
	all      map[job.Name]*job.Team
	self     *kid // as the parent has it; nil at the top
	children []*kid
	restarts []int64
	mailbox  []signal

	waiting   *kid   // within terminate_children, for this one
	terminate []*kid // still to be terminated
	then      func(at time.Time)
	frozen    bool          // its parent is about to terminate it
	result    workflow.Exit // ExitAlive while it lives
}

type kid struct {
	as    job.Member
	owner *sup
	sub   *sup
	pid   bool // not `undefined`, as far as the supervisor knows
	dead  bool // the process is
}

type signal struct {
	from   *kid
	reason workflow.Exit
	at     time.Time
}

func newErlang(teams []job.Team) *erlang {
	e := &erlang{born: map[job.Name]int{}, jobs: map[job.Name]*kid{}}
	all, nested := map[job.Name]*job.Team{}, map[job.Name]bool{}
	for i := range teams {
		all[teams[i].ID] = &teams[i]
		for _, m := range teams[i].Members {
			nested[m.Team] = true
		}
	}
	for i := range teams {
		if !nested[teams[i].ID] {
			e.tops = append(e.tops, e.init(&teams[i], all, nil))
		}
	}
	e.started = nil // the first start is the submission's
	return e
}

// init is init/1: start all children of the specification.
func (e *erlang) init(spec *job.Team, all map[job.Name]*job.Team, self *kid) *sup {
	s := &sup{erl: e, spec: spec, all: all, self: self}
	for _, m := range spec.Members {
		k := &kid{as: m, owner: s}
		s.children = append(s.children, k)
		s.start(k)
	}
	return s
}

func (s *sup) start(k *kid) {
	k.pid, k.dead = true, false
	if k.as.Team != "" {
		k.sub = s.erl.init(s.all[k.as.Team], s.all, k)
		return
	}
	s.erl.jobs[k.as.Job] = k
	s.erl.started = append(s.erl.started, fmt.Sprintf("%s/%d", k.as.Job, s.erl.born[k.as.Job]))
	s.erl.born[k.as.Job]++
}

// exit is the end of a job's process.
func (e *erlang) exit(name job.Name, reason workflow.Exit, at time.Time) {
	k := e.jobs[name]
	delete(e.jobs, name)
	k.owner.down(k, reason, at)
}

func (s *sup) down(k *kid, reason workflow.Exit, at time.Time) {
	k.dead = true
	if s.waiting == k {
		s.waiting = nil
		s.terminated(k)
		s.goOn(at)
		return
	}
	if s.frozen {
		return
	}
	s.mailbox = append(s.mailbox, signal{k, reason, at})
	s.receive()
}

func (s *sup) receive() {
	for s.result == workflow.ExitAlive && s.waiting == nil && len(s.mailbox) > 0 {
		m := s.mailbox[0]
		s.mailbox = s.mailbox[1:]
		s.doRestart(m)
	}
}

// doRestart is do_restart/3.
func (s *sup) doRestart(m signal) {
	switch t := m.from.as.Restart; {
	case m.reason == workflow.ExitWithdrawn: // terminate_child/2
		s.delChild(m.from, m.at)
	case t == job.Permanent:
		s.restart(m.from, m.at)
	case m.reason == workflow.ExitNormal, m.reason == workflow.ExitShutdown:
		s.delChild(m.from, m.at)
	case t == job.Transient:
		s.restart(m.from, m.at)
	default:
		s.delChild(m.from, m.at)
	}
}

func (s *sup) delChild(k *kid, at time.Time) {
	s.terminated(k)
	if !slices.ContainsFunc(s.children, func(k *kid) bool { return k.pid }) {
		s.die(workflow.ExitNormal, at) // ours
	}
}

// terminated sets a child's pid undefined, and removes a temporary one.
func (s *sup) terminated(k *kid) {
	k.pid = false
	if k.as.Restart == job.Temporary {
		s.children = slices.DeleteFunc(s.children, func(c *kid) bool { return c == k })
	}
}

// restart is restart/2, with add_restart/1.
func (s *sup) restart(k *kid, at time.Time) {
	kept := []int64{at.Unix()}
	for _, r := range s.restarts {
		if r < at.Unix()-int64(s.spec.MaxSeconds) {
			break
		}
		kept = append(kept, r)
	}
	s.restarts = kept
	if len(kept) > s.spec.MaxRestarts {
		s.terminateChildren(s.children, at, func(at time.Time) { s.die(workflow.ExitShutdown, at) })
		return
	}
	place := slices.Index(s.children, k)
	k.pid = false
	switch s.spec.Strategy {
	case job.OneForOne:
		s.start(k)
	case job.RestForOne:
		s.restartMultiple(s.children[place:], at)
	case job.OneForAll:
		s.restartMultiple(s.children, at)
	}
}

func (s *sup) restartMultiple(children []*kid, at time.Time) {
	children = slices.Clone(children)
	s.terminateChildren(children, at, func(time.Time) {
		for _, k := range children {
			if k.as.Restart != job.Temporary {
				s.start(k)
			}
		}
	})
}

func (s *sup) terminateChildren(children []*kid, at time.Time, then func(time.Time)) {
	s.terminate, s.then = slices.Clone(children), then
	slices.Reverse(s.terminate)
	for _, k := range s.terminate {
		k.freeze() // ours
	}
	s.goOn(at)
}

func (k *kid) freeze() {
	if k.sub == nil {
		return
	}
	k.sub.frozen, k.sub.mailbox, k.sub.waiting = true, nil, nil
	for _, c := range k.sub.children {
		c.freeze()
	}
}

// goOn is terminate_children/2 from where it waits.
func (s *sup) goOn(at time.Time) {
	for len(s.terminate) > 0 {
		k := s.terminate[0]
		s.terminate = s.terminate[1:]
		if !k.pid || k.dead {
			s.mailbox = slices.DeleteFunc(s.mailbox, func(m signal) bool { return m.from == k }) // unlink_flush
			s.terminated(k)
			continue
		}
		s.waiting = k
		if k.sub != nil {
			k.sub.shutdown(at)
		}
		return
	}
	then := s.then
	s.then = nil
	then(at)
	s.receive()
}

// shutdown is the exit signal of the parent.
func (s *sup) shutdown(at time.Time) {
	s.terminateChildren(s.children, at, func(at time.Time) { s.die(workflow.ExitShutdown, at) })
}

func (s *sup) die(reason workflow.Exit, at time.Time) {
	s.result, s.mailbox = reason, nil
	if s.self != nil {
		s.self.owner.down(s.self, reason, at)
	}
}

// awaited returns the jobs that are being terminated, sorted.
func (e *erlang) awaited() []string {
	var all []string
	var visit func(s *sup)
	visit = func(s *sup) {
		if s.waiting != nil && s.waiting.sub == nil {
			all = append(all, fmt.Sprintf("%s/%d", s.waiting.as.Job, e.born[s.waiting.as.Job]-1))
		}
		for _, k := range s.children {
			if k.sub != nil && k.pid && k.sub.result == workflow.ExitAlive {
				visit(k.sub)
			}
		}
	}
	for _, s := range e.tops {
		visit(s)
	}
	slices.Sort(all)
	return all
}

// results returns how the top supervisors that have ended did.
func (e *erlang) results() []string {
	var all []string
	for _, s := range e.tops {
		if s.result != workflow.ExitAlive {
			all = append(all, fmt.Sprintf("%s %s", s.spec.ID, s.result))
		}
	}
	return all
}
