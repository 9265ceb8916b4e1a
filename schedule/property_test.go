package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsched/agentsched/internal/isolation"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/schedule"
)

// TestRandomSchedules plays random events and compares each rest of the machine with an
// oracle that looks through everything: what runs is within its bounds, nothing that could
// run waits, and what was started came in the policy's order.
func TestRandomSchedules(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			play(t, seed, 60, false)
		})
	}
}

// TestAnswersInPieces plays the same with answers that come one at a time, each with what
// happens meanwhile before the next. Then only what holds at every moment is compared.
func TestAnswersInPieces(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			play(t, seed, 120, true)
		})
	}
}

// TestSameAgain: the same events give the same answers, however Go orders its maps.
func TestSameAgain(t *testing.T) {
	for seed := range uint64(20) {
		first := play(t, seed, 60, false)
		for range 5 {
			if again := play(t, seed, 60, false); again != first {
				t.Fatalf("seed %d: another answer to the same events:\n%s\nand then:\n%s", seed, first, again)
			}
		}
	}
}

type story struct {
	*world
	*rand.Rand
	bounds     schedule.Bounds
	isolations schedule.Isolations
	parked     map[job.ID]bool
	names      int
	pieces     bool
	policy     string
	log        strings.Builder
}

func play(t testing.TB, seed uint64, steps int, pieces bool) string {
	s := &story{Rand: rand.New(rand.NewPCG(seed, 7)), parked: map[job.ID]bool{}, pieces: pieces}
	s.bounds = schedule.Bounds{Slots: 1 + s.IntN(4), Workers: map[job.WorkerKind]int{"codex": s.IntN(2)}, Limits: ipc.Limits{EachTenant: s.IntN(3), EachWorkspace: s.IntN(3)}}
	name := []string{policy.NamePriority, policy.NamePriority, policy.NameCredit, policy.NameDeficit, policy.NameDRF}[s.IntN(5)]
	s.policy = name
	p, err := policy.New(policy.Config{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	scopes := [][]job.BatchID{{""}, {"own", ""}}[s.IntN(2)]
	s.world = newWorld(t, schedule.Config{Policy: p, Scopes: scopes, Bounds: s.bounds})
	for range s.IntN(20) {
		s.add(s.job(scopes))
	}
	s.go_(up())
	for range steps {
		s.go_(s.event(scopes)...)
		if t.Failed() {
			t.Fatalf("seed %d, policy %s", seed, name)
		}
	}
	s.finish()
	return s.log.String()
}

// go_ feeds events and, unless answers come in pieces, lets the machine come to rest.
func (s *story) go_(events ...schedule.Event) {
	s.Helper()
	if !s.pieces {
		before := s.standing()
		started := s.rest(events...)
		s.wantOrder(before, started)
		if s.policy == policy.NamePriority {
			s.wantPriority(before, started)
		}
		s.note(started)
		s.wantBounds()
		s.wantNobodyWaits()
		return
	}
	s.stepInPieces(events...)
	s.wantBounds()
}

// stepInPieces feeds events and keeps what is asked for beside what was asked for before.
func (s *story) stepInPieces(events ...schedule.Event) {
	kept := s.ready
	s.step(events...)
	s.note(s.started())
	s.ready.Reads = append(kept.Reads, s.ready.Reads...)
	s.ready.Claims = append(kept.Claims, s.ready.Claims...)
	s.ready.Work = nil
	batches := map[job.BatchID]bool{}
	for _, r := range s.ready.Reads {
		if batches[r.Batch] {
			s.Errorf("two reads of batch %q at once", r.Batch)
		}
		batches[r.Batch] = true
	}
}

// answerOne answers what was asked for first.
func (s *story) answerOne() []schedule.Event {
	switch {
	case len(s.ready.Reads) > 0:
		spec := s.ready.Reads[0]
		s.ready.Reads = s.ready.Reads[1:]
		spec.Now = s.now
		return []schedule.Event{s.heads(spec)}
	case len(s.ready.Claims) > 0:
		c := s.ready.Claims[0]
		s.ready.Claims = s.ready.Claims[1:]
		return []schedule.Event{s.take(c)}
	}
	return []schedule.Event{schedule.Tick{}}
}

func (s *story) note(started []*schedule.Run) {
	for _, x := range started {
		fmt.Fprintf(&s.log, "%s %s after %s\n", s.now.Format("15:04:05"), x.Entry.ID, x.Waited)
	}
}

// event does something and returns how the machine hears of it.
func (s *story) event(scopes []job.BatchID) []schedule.Event {
	if s.pieces && s.IntN(2) == 0 {
		return s.answerOne()
	}
	flying := s.inState(job.Dispatched)
	if s.pieces { // what the machine does not know to be claimed has not ended yet
		flying = slices.DeleteFunc(flying, func(r *row) bool { return !strings.Contains(s.log.String(), string(r.ID)+" ") })
	}
	switch n := s.IntN(20); {
	case n < 6:
		for range 1 + s.IntN(5) {
			s.add(s.job(scopes))
		}
		return []schedule.Event{schedule.Changed{}}
	case n < 12 && len(flying) > 0:
		r := flying[s.IntN(len(flying))]
		e := s.end(r.ID, s.IntN(3) > 0, s.now.Add(time.Duration(s.IntN(5))*time.Second))
		if !e.Over && s.IntN(2) == 0 && len(s.isolations) > 0 {
			e.Parked, s.parked[r.ID] = true, true
		}
		if s.IntN(2) == 0 {
			return []schedule.Event{schedule.Changed{}, e}
		}
		return []schedule.Event{e, schedule.Changed{}}
	case n < 13:
		if waiting := s.inState(job.Queued); len(waiting) > 0 {
			r := waiting[s.IntN(len(waiting))]
			r.state = job.Cancelled
			s.touch(r.lane)
			return []schedule.Event{schedule.Changed{}, schedule.Dropped{ID: r.ID}}
		}
	case n < 14:
		s.bounds.Slots = s.IntN(5)
		s.bounds.Limits.EachTenant = s.IntN(3)
		return []schedule.Event{schedule.Bounds{Slots: s.bounds.Slots, Workers: s.bounds.Workers, Limits: s.bounds.Limits}}
	case n < 15:
		s.isolations = nil
		if s.IntN(2) == 0 {
			s.isolations = schedule.Isolations{{Scope: isolation.WorkerScope("codex"), Until: s.now.Add(time.Duration(1+s.IntN(4)) * time.Second)}}
		}
		return []schedule.Event{slices.Clone(s.isolations)}
	case n < 16:
		t := s.tenant()
		s.over[t] = !s.over[t] && s.IntN(2) == 0
		return []schedule.Event{schedule.Forget{}} // as a change of a grant is told
	case n < 17:
		s.hidden = map[string]bool{}
		if s.IntN(2) == 0 {
			s.hidden["/a"] = true
		}
	default:
		s.now = s.now.Add(time.Duration(s.IntN(4)) * time.Second)
	}
	return []schedule.Event{schedule.Tick{}}
}

func (s *story) tenant() job.Tenant { return job.Tenant("xyz"[s.IntN(3)]) }

func (s *story) job(scopes []job.BatchID) row {
	s.names++
	r := task(s.names, s.tenant(), s.IntN(3))
	r.lane.Batch = scopes[s.IntN(len(scopes))]
	r.RunnableAt = s.now.Add(time.Duration(max(s.IntN(8)-4, 0)) * time.Second)
	r.Worker = []job.WorkerKind{"shell", "codex"}[s.IntN(2)]
	switch s.IntN(4) {
	case 0:
		r.Workspace = job.Workspace{Path: []string{"/a", "/b", "/a/below"}[s.IntN(3)], Isolation: []job.Isolation{job.Direct, job.Worktree}[s.IntN(2)]}
		if s.IntN(4) == 0 {
			r.Type = job.Maintenance
		}
	case 1:
		r.deadline = s.now.Add(time.Duration(1+s.IntN(6)) * time.Second)
	}
	return r
}

// refused says naively what keeps a queued job from running; "" nothing does.
func (s *story) refused(r *row, flying []*row) string {
	tenant, kind, folder := 0, 0, 0
	for _, f := range flying {
		if f.lane.Tenant == r.lane.Tenant {
			tenant++
		}
		if f.Worker == r.Worker {
			kind++
		}
		if f.Workspace.Path != "" && f.Workspace.Path == r.Workspace.Path {
			folder++
		}
	}
	within := func(a, b string) bool { return a == b || strings.HasPrefix(a, b+"/") || strings.HasPrefix(b, a+"/") }
	switch l := s.bounds.Limits; {
	case len(flying) >= s.bounds.Slots:
		return "slots"
	case s.over[r.lane.Tenant]:
		return "grant"
	case l.EachTenant > 0 && tenant >= l.EachTenant:
		return "tenant"
	case s.bounds.Workers[r.Worker] > 0 && kind >= s.bounds.Workers[r.Worker]:
		return "kind"
	case s.parked[r.ID] && r.Worker == "codex" && len(s.isolations) > 0 && s.isolations[0].Until.After(s.now):
		return "isolation"
	case r.Workspace.Path == "":
		return ""
	case s.hidden[r.Workspace.Path]:
		return "unknown"
	case l.EachWorkspace > 0 && folder >= l.EachWorkspace:
		return "folder"
	}
	for _, f := range flying {
		if f.Workspace.Path == "" || !within(f.Workspace.Path, r.Workspace.Path) {
			continue
		}
		if r.Type == job.Maintenance || f.Type == job.Maintenance || r.Workspace.Isolation == job.Direct && f.Workspace.Isolation == job.Direct {
			return "taken"
		}
	}
	for _, q := range s.inState(job.Queued) { // of maintenance that waits, others keep away
		if q != r && q.Type == job.Maintenance && within(q.Workspace.Path, r.Workspace.Path) {
			return "reserved"
		}
	}
	return ""
}

// wantNobodyWaits: when the machine is at rest, whoever could run does.
func (s *story) wantNobodyWaits() {
	s.Helper()
	flying := s.inState(job.Dispatched)
	for _, r := range s.inState(job.Queued) {
		if !r.RunnableAt.After(s.now) && (r.deadline.IsZero() || r.deadline.After(s.now)) && s.refused(r, flying) == "" {
			s.Errorf("%s waits without a reason: %+v", r.ID, *r)
		}
		if !r.deadline.IsZero() && !r.deadline.After(s.now) {
			s.Errorf("%s has not expired", r.ID)
		}
	}
	if at := s.ready.Wake; !at.IsZero() && !at.After(s.now) {
		s.Errorf("to be woken at %s, which has passed", at)
	}
}

// wantBounds: what runs is within what it was allowed when it started.
func (s *story) wantBounds() {
	s.Helper()
	flying := s.inState(job.Dispatched)
	kinds := map[job.WorkerKind]int{}
	direct := map[string]int{}
	for _, f := range flying {
		kinds[f.Worker]++
		if f.Workspace.Isolation == job.Direct {
			direct[f.Workspace.Path]++
		}
	}
	for kind, n := range kinds {
		if most := s.bounds.Workers[kind]; most > 0 && n > most {
			s.Errorf("%d of %s run, at most %d may", n, kind, most)
		}
	}
	for path, n := range direct {
		if n > 1 {
			s.Errorf("%d jobs work directly in %s", n, path)
		}
	}
}

// standing is how the runnable jobs stand before a step.
func (s *story) standing() map[job.ID]queue.Place {
	list := map[job.ID]queue.Place{}
	for _, r := range s.inState(job.Queued) {
		list[r.ID] = r.Place()
	}
	return list
}

// wantOrder: of two jobs of a lane that nothing tells apart but their places, the one that
// stands behind does not start before the other.
func (s *story) wantOrder(before map[job.ID]queue.Place, started []*schedule.Run) {
	s.Helper()
	for _, x := range started {
		r := s.find(x.Entry.ID)
		for _, q := range s.inState(job.Queued) {
			alike := q.lane == r.lane && q.Worker == r.Worker && q.Workspace == r.Workspace && q.Type == r.Type && !s.parked[q.ID]
			if at, was := before[q.ID]; was && alike && comparePlaces(at, r.Place()) < 0 && at == q.Place() {
				s.Errorf("%s was started before %s, which stands before it: %+v %+v %q over %v hidden %v", r.ID, q.ID, *r, *q, s.refused(q, s.inState(job.Dispatched)), s.over, s.hidden)
			}
		}
	}
}

// wantPriority: nothing was started in whose place something more urgent could run.
func (s *story) wantPriority(before map[job.ID]queue.Place, started []*schedule.Run) {
	s.Helper()
	for _, x := range started {
		r := s.find(x.Entry.ID)
		others := slices.DeleteFunc(s.inState(job.Dispatched), func(f *row) bool { return f == r })
		for _, q := range s.inState(job.Queued) {
			if at, was := before[q.ID]; !was || at != q.Place() || q.RunnableAt.After(s.now) || q.lane.Priority <= r.lane.Priority {
				continue
			}
			if s.refused(q, others) == "" {
				s.Errorf("%s was started, in whose place %s could run, which is more urgent", r.ID, q.ID)
			}
		}
	}
}

// finish lets everything run to its end: nobody starves.
func (s *story) finish() {
	s.pieces, s.isolations, s.over, s.hidden = false, nil, map[job.Tenant]bool{}, map[string]bool{}
	s.bounds.Slots = 2
	for len(s.ready.Reads)+len(s.ready.Claims) > 0 {
		s.stepInPieces(s.answerOne()...)
	}
	s.go_(schedule.Forget{}, s.isolations, schedule.Bounds{Slots: 2, Workers: s.bounds.Workers, Limits: s.bounds.Limits})
	for range 1000 {
		flying := s.inState(job.Dispatched)
		if len(flying)+len(s.inState(job.Queued)) == 0 {
			if n := s.m.Notes(); n > 0 {
				s.Errorf("%d notes are kept of jobs that have ended", n)
			}
			return
		}
		if len(flying) > 0 {
			s.go_(s.end(flying[0].ID, true, s.now))
			continue
		}
		if s.ready.Wake.IsZero() {
			break
		}
		s.now = s.ready.Wake
		s.go_(schedule.Tick{})
	}
	for _, r := range s.inState(job.Queued) {
		s.Errorf("%s starves: %+v", r.ID, *r)
	}
}
