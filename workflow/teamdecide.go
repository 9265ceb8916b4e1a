package workflow

import (
	"fmt"
	"iter"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Decide says what is to be done next about the teams when members have ended, with the
// semantics of Erlang/OTP's supervisor. It may be asked at any time: carried out up to
// any point and asked again, the answer is the rest of what it was.
//
// The reference is OTP 27: the documentation of stdlib's supervisor, its source
// (supervisor.erl), and "Supervisor Behaviour" in OTP Design Principles. Where we
// differ, docs/teams.md says so.
//
// Each team handles one incident after the other, the earliest end first, as a
// supervisor process handles its messages: it stops who is affected, in the
// reverse order of their start and the next only when the one before has ended;
// then it starts, in order, who is to be restarted. Other teams go on meanwhile,
// but for those within what is stopped.
func (t *Teams) Decide(f TeamFacts) []TeamAction {
	w := newTeamWorld(t, f)
	actions := w.settle()
	for _, top := range t.tops {
		actions = append(actions, w.stops(top)...)
		switch exit, _ := w.end(top); exit {
		case ExitShutdown:
			actions = append(actions, FailTeam{top.name, w.why(top)})
		case ExitNormal:
			actions = append(actions, TeamDone{top.name})
		}
	}
	return actions
}

// MemberStanding is where a member job is, once what Decide says has been done.
type MemberStanding struct {
	Generation int // of its latest run
	// Final is set if that has ended and its team, as things are, does not do it
	// again. A later failure of a sibling may.
	Final bool
}

// Standings returns how the member jobs stand: what a job that needs one of them
// has to wait for.
func (t *Teams) Standings(f TeamFacts) map[job.Name]MemberStanding {
	w := newTeamWorld(t, f)
	w.settle()
	all := map[job.Name]MemberStanding{}
	for _, top := range t.tops {
		for j := range top.jobs() {
			r := w.latest(j)
			s := MemberStanding{r.Generation, r.Exit != ExitAlive}
			for p := j.parent; p != nil; p = p.parent {
				s.Final = s.Final && !w.busy(p)
			}
			all[j.name] = s
		}
	}
	return all
}

// settle decides all that needs no waiting, and makes it so in w.
func (w *teamWorld) settle() []TeamAction {
	var actions []TeamAction
	for {
		var e endedMember
		for _, top := range w.tree.tops {
			w.find(top, &e)
		}
		if e.member != nil {
			i := w.incident(e)
			w.apply(i)
			actions = append(actions, NoteIncident{i})
			continue
		}
		started := w.starts()
		if len(started) == 0 {
			return actions
		}
		actions = append(actions, started...)
	}
}

// endedMember is a member whose end calls for a restart.
type endedMember struct {
	member *teamNode
	at     time.Time
}

// find looks, at and below t, for the earliest end that no incident was made of.
func (w *teamWorld) find(t *teamNode, first *endedMember) {
	st, busy := w.teams[t], w.busy(t)
	if !busy {
		for _, m := range t.members {
			exit, at := w.end(m)
			if !st.gone[m] && restarts(m.as.Restart, exit) && (first.member == nil || at.Before(first.at)) {
				*first = endedMember{m, at}
			}
		}
	}
	for m := range w.free(t) {
		w.find(m, first)
	}
}

// free yields the teams within t that handle their own incidents now.
func (w *teamWorld) free(t *teamNode) iter.Seq[*teamNode] {
	st, busy := w.teams[t], w.busy(t)
	return func(yield func(*teamNode) bool) {
		for _, m := range t.members {
			if m.team == nil || st.gone[m] || busy && st.plan.members[m] {
				continue
			}
			if !yield(m) {
				return
			}
		}
	}
}

// incident makes the decision about an end.
func (w *teamWorld) incident(e endedMember) Incident {
	t := e.member.parent
	st := w.teams[t]
	i := Incident{N: w.noted + 1, Team: t.name, Member: e.member.name, At: e.at}
	if i.At.Before(st.last.At) {
		i.At = st.last.At
	}
	if len(addRestart(st.restarts, i.At, t.team.MaxSeconds)) > t.team.MaxRestarts {
		i.GivesUp = true
		return i
	}
	i.Starts = map[job.Name]int{}
	for _, m := range w.affected(t, e.member, false) {
		if m.as.Restart == job.Temporary {
			continue
		}
		for j := range m.jobs() {
			i.Starts[j.name] = w.latest(j).Generation + 1
		}
	}
	return i
}

// starts restarts, in order, all that have nothing to wait for any more.
func (w *teamWorld) starts() []TeamAction {
	var actions []TeamAction
	var visit func(t *teamNode)
	visit = func(t *teamNode) {
		p := &w.teams[t].plan
		if w.nextStop(p) == nil {
			for _, s := range p.start {
				if w.latest(s.job).Generation >= s.generation {
					continue
				}
				w.runs[s.job.name] = append(w.runs[s.job.name], MemberRun{Generation: s.generation})
				actions = append(actions, RestartMember{t.name, s.job.name, s.generation})
			}
		}
		for m := range w.free(t) {
			visit(m)
		}
	}
	for _, top := range w.tree.tops {
		visit(top)
	}
	return actions
}

// stops returns what is to be ended now, one run for each team that waits.
func (w *teamWorld) stops(t *teamNode) []TeamAction {
	var actions []TeamAction
	if s := w.nextStop(&w.teams[t].plan); s != nil {
		s.Team = t.name
		actions = append(actions, *s)
	}
	for m := range w.free(t) {
		actions = append(actions, w.stops(m)...)
	}
	return actions
}

// why says in a sentence what a team gave up for.
func (w *teamWorld) why(t *teamNode) string {
	st := w.teams[t]
	return fmt.Sprintf("the team %s gave up: %s ended again at %s, and more than %d restarts within %d s are not allowed",
		t.name, st.last.Member, st.last.At.UTC().Format(time.RFC3339), t.team.MaxRestarts, t.team.MaxSeconds)
}
