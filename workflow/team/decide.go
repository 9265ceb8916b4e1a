package team

import (
	"fmt"
	"iter"
	"time"

	"github.com/agentsched/agentsched/job"
)

// Decide says what is to be done next about the teams.
//
// Each team handles one incident after the other, the earliest end first, as a
// supervisor process handles its messages: it stops who is affected, in the
// reverse order of their start and the next only when the one before has ended;
// then it starts, in order, who is to be restarted. Other teams go on meanwhile,
// but for those within what is stopped.
func (t *Tree) Decide(f Facts) []Action {
	w := newWorld(t, f)
	actions := w.settle()
	for _, top := range t.tops {
		actions = append(actions, w.stops(top)...)
		switch exit, _ := w.end(top); exit {
		case Shutdown:
			actions = append(actions, Fail{top.name, w.why(top)})
		case Normal:
			actions = append(actions, Done{top.name})
		}
	}
	return actions
}

// Standing is where a member job is, once what Decide says has been done.
type Standing struct {
	Generation int // of its latest run
	// Final is set if that has ended and its team, as things are, does not do it
	// again. A later failure of a sibling may.
	Final bool
}

// Standings returns how the member jobs stand: what a job that needs one of them
// has to wait for.
func (t *Tree) Standings(f Facts) map[job.Name]Standing {
	w := newWorld(t, f)
	w.settle()
	all := map[job.Name]Standing{}
	for _, top := range t.tops {
		for j := range top.jobs() {
			r := w.latest(j)
			s := Standing{r.Generation, r.Exit != Alive}
			for p := j.parent; p != nil; p = p.parent {
				s.Final = s.Final && !w.busy(p)
			}
			all[j.name] = s
		}
	}
	return all
}

// settle decides all that needs no waiting, and makes it so in w.
func (w *world) settle() []Action {
	var actions []Action
	for {
		var e ended
		for _, top := range w.tree.tops {
			w.find(top, &e)
		}
		if e.member != nil {
			i := w.incident(e)
			w.apply(i)
			actions = append(actions, Note{i})
			continue
		}
		started := w.starts()
		if len(started) == 0 {
			return actions
		}
		actions = append(actions, started...)
	}
}

// ended is a member whose end calls for a restart.
type ended struct {
	member *node
	at     time.Time
}

// find looks, at and below t, for the earliest end that no incident was made of.
func (w *world) find(t *node, first *ended) {
	st, busy := w.teams[t], w.busy(t)
	if !busy {
		for _, m := range t.members {
			exit, at := w.end(m)
			if !st.gone[m] && restarts(m.as.Restart, exit) && (first.member == nil || at.Before(first.at)) {
				*first = ended{m, at}
			}
		}
	}
	for m := range w.free(t) {
		w.find(m, first)
	}
}

// free yields the teams within t that handle their own incidents now.
func (w *world) free(t *node) iter.Seq[*node] {
	st, busy := w.teams[t], w.busy(t)
	return func(yield func(*node) bool) {
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
func (w *world) incident(e ended) Incident {
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
func (w *world) starts() []Action {
	var actions []Action
	var visit func(t *node)
	visit = func(t *node) {
		p := &w.teams[t].plan
		if w.nextStop(p) == nil {
			for _, s := range p.start {
				if w.latest(s.job).Generation >= s.generation {
					continue
				}
				w.runs[s.job.name] = append(w.runs[s.job.name], Run{Generation: s.generation})
				actions = append(actions, Restart{t.name, s.job.name, s.generation})
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
func (w *world) stops(t *node) []Action {
	var actions []Action
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
func (w *world) why(t *node) string {
	st := w.teams[t]
	return fmt.Sprintf("the team %s gave up: %s ended again at %s, and more than %d restarts within %d s are not allowed",
		t.name, st.last.Member, st.last.At.UTC().Format(time.RFC3339), t.team.MaxRestarts, t.team.MaxSeconds)
}
