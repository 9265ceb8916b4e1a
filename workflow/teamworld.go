package workflow

import (
	"math"
	"slices"
	"time"

	"github.com/agentsched/agentsched/job"
)

// teamWorld is how things stand by the facts, and by the actions that were decided
// upon since.
type teamWorld struct {
	tree  *Teams
	runs  map[job.Name][]MemberRun // by generation
	teams map[*teamNode]*teamStanding
	noted int
}

// teamStanding is what a team remembers, from its latest start on.
type teamStanding struct {
	restarts []time.Time // within the last MaxSeconds of the newest, newest first
	last     Incident
	plan     teamPlan           // of the last incident
	gone     map[*teamNode]bool // members that were stopped for good, and are forgotten: temporary ones, or all
}

// teamPlan is what follows from an incident: all of stop, one after the other, and
// when they have ended all of start.
type teamPlan struct {
	members     map[*teamNode]bool // of the team: those that it is about
	stop, start []teamStep
}

// teamStep stops the runs of a job that are older than a generation, or starts that.
type teamStep struct {
	job        *teamNode
	generation int
}

// noGeneration is the generation that no run has.
const noGeneration = math.MaxInt

func newTeamWorld(t *Teams, f TeamFacts) *teamWorld {
	w := &teamWorld{tree: t, runs: map[job.Name][]MemberRun{}, teams: map[*teamNode]*teamStanding{}}
	for name, runs := range f.Runs {
		w.runs[name] = slices.SortedFunc(slices.Values(runs), func(a, b MemberRun) int { return a.Generation - b.Generation })
	}
	for _, n := range t.teams {
		w.teams[n] = &teamStanding{}
	}
	for _, i := range f.Log {
		w.apply(i)
	}
	return w
}

// apply makes an incident known.
func (w *teamWorld) apply(i Incident) {
	w.noted = max(w.noted, i.N)
	t := w.tree.teams[i.Team]
	if t == nil {
		return // of another workflow: nothing of this one follows from it
	}
	at := slices.IndexFunc(t.members, func(m *teamNode) bool { return m.name == i.Member })
	if at < 0 {
		return
	}
	st := w.teams[t]
	st.restarts = addRestart(st.restarts, i.At, t.team.MaxSeconds)
	st.last, st.plan = i, teamPlan{members: map[*teamNode]bool{}}
	for _, m := range w.affected(t, t.members[at], i.GivesUp) {
		st.plan.members[m] = true
		back := !i.GivesUp && m.as.Restart != job.Temporary
		for j := range m.jobs() {
			s := teamStep{j, noGeneration}
			if back {
				s.generation = i.Starts[j.name]
				st.plan.start = append(st.plan.start, s)
			}
			st.plan.stop = append(st.plan.stop, s)
		}
		if !back {
			st.forget(m)
			continue
		}
		for n := range m.below() {
			w.teams[n] = &teamStanding{} // a team that is started again remembers nothing
		}
	}
	slices.Reverse(st.plan.stop)
}

func (st *teamStanding) forget(m *teamNode) {
	if st.gone == nil {
		st.gone = map[*teamNode]bool{}
	}
	st.gone[m] = true
}

// affected returns the members of t, in the order of their start, that are
// stopped when the given one ended and is to be restarted, that itself included.
func (w *teamWorld) affected(t, offender *teamNode, givesUp bool) []*teamNode {
	var all []*teamNode
	for _, m := range t.members {
		within := givesUp || m == offender || t.team.Strategy == job.OneForAll || t.team.Strategy == job.RestForOne && m.place > offender.place
		if within && !w.teams[t].gone[m] {
			all = append(all, m)
		}
	}
	return all
}

// addRestart returns the restarts, newest first, that count at now: those within
// the last seconds and the new one. As OTP does, it counts in whole seconds of the
// clock, and one exactly that old counts still.
func addRestart(restarts []time.Time, now time.Time, seconds int) []time.Time {
	old := slices.IndexFunc(restarts, func(r time.Time) bool { return r.Unix() < now.Unix()-int64(seconds) })
	if old >= 0 {
		restarts = restarts[:old]
	}
	return append([]time.Time{now}, restarts...)
}

// busy reports whether t has not carried out the plan of its last incident.
func (w *teamWorld) busy(t *teamNode) bool {
	p := &w.teams[t].plan
	if w.nextStop(p) != nil {
		return true
	}
	return slices.ContainsFunc(p.start, func(s teamStep) bool { return w.latest(s.job).Generation < s.generation })
}

// nextStop returns the run that a plan has to stop next; nil if all have ended.
func (w *teamWorld) nextStop(p *teamPlan) *StopMember {
	for _, s := range p.stop {
		for _, r := range slices.Backward(w.runs[s.job.name]) {
			if r.Generation < s.generation && r.Exit == ExitAlive {
				return &StopMember{Job: s.job.name, Generation: r.Generation, Within: s.job.as.Shutdown}
			}
		}
	}
	return nil
}

// latest returns the last run of a job; generation -1 if there is none.
func (w *teamWorld) latest(j *teamNode) MemberRun {
	runs := w.runs[j.name]
	if len(runs) == 0 {
		return MemberRun{Generation: -1}
	}
	return runs[len(runs)-1]
}

// end tells how and when a member, or a team at the top, ended; Alive if it has
// not, or if it is to go on.
func (w *teamWorld) end(n *teamNode) (Exit, time.Time) {
	if n.team == nil {
		r := w.latest(n)
		return r.Exit, r.EndedAt
	}
	if w.busy(n) {
		return ExitAlive, time.Time{}
	}
	st := w.teams[n]
	exit, at := ExitNormal, st.last.At
	for j := range n.jobs() {
		if r := w.latest(j); r.EndedAt.After(at) {
			at = r.EndedAt
		}
	}
	if st.last.GivesUp {
		return ExitShutdown, at
	}
	for _, m := range n.members {
		if st.gone[m] {
			continue
		}
		if e, _ := w.end(m); e == ExitAlive || restarts(m.as.Restart, e) {
			return ExitAlive, time.Time{}
		}
	}
	return exit, at
}

// restarts reports whether a member of the type that ended so is to be restarted.
func restarts(t job.RestartType, e Exit) bool {
	switch t {
	case job.Permanent:
		return e == ExitNormal || e == ExitShutdown || e == ExitAbnormal
	case job.Transient:
		return e == ExitAbnormal
	}
	return false
}
