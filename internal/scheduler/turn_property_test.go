package scheduler_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsched/agentsched/internal/scheduler"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
	"github.com/agentsched/agentsched/queue"
	"github.com/agentsched/agentsched/queue/sched"
)

// TestNobodyStarves plays random schedules of submissions, cancellations,
// deadlines, keys, priorities, workflows and work of other programs, on a batch of
// the scheduler's own and on what is shared. Whenever a slot is free for a job that
// could run, the job runs after one round of the dispatcher; and in the end every
// job has ended.
func TestNobodyStarves(t *testing.T) {
	seeds := uint64(4) // a sample
	if os.Getenv("AGENTSCHED_SOAK") != "" {
		seeds = 500
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playSchedule(t, seed) })
		})
	}
}

// schedule is a random schedule under way.
type schedule struct {
	*world
	*rand.Rand
	own    job.BatchID // "": there is none
	slots  int
	codex  int // slots of that kind; 0: as many as there are
	kernel *sched.Kernel
	names  int
	jobs   []job.ID
	last   job.ID // in the own batch, to keep it open: it runs only after the test

	overdue map[job.ID]time.Time // queued past their deadlines: when each was seen so first
}

const afterTheTest = 24 * time.Hour

func playSchedule(t *testing.T, seed uint64) {
	s := &schedule{overdue: map[job.ID]time.Time{}, Rand: rand.New(rand.NewPCG(seed, 1))}
	s.slots, s.codex = 1+s.IntN(3), s.IntN(2)
	store := openStore(t)
	if s.IntN(3) > 0 {
		specs := s.specs()
		for i := range specs {
			if specs[i].OnDuplicate == job.Reject { // it would refuse the batch
				specs[i].OnDuplicate = job.Serialize
			}
		}
		specs = append(specs, task("last", 0, runnableIn(afterTheTest)))
		b, entries := scheduler.NewBatch("run", "d", specs, job.Workflow{}, stamp())
		b.Private, s.own = true, b.ID
		if err := store.Enqueue(t.Context(), b, entries); err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			s.jobs = append(s.jobs, entries[i].ID)
		}
		s.last = entries[len(entries)-1].ID
	}
	s.world = newWorld(t, store, 1+s.IntN(2), func(c *scheduler.Config) {
		c.Batch, c.Settings.MaxConcurrent = s.own, s.slots
		c.Settings.Workers["codex"] = job.WorkerSettings{MaxConcurrent: s.codex}
		c.Policy = policy.Default()
		c.Policy.Name = []string{policy.NamePriority, policy.NameCredit, policy.NameDeficit}[s.IntN(3)]
	})
	s.cores.play = func(c *playedCore) { c.run = failsSometimes }
	s.kernel = sched.New(store, sched.Options{Changed: s.sched.Changed})
	s.start()
	defer s.end()
	for range 30 {
		s.wait(time.Duration(s.Int64N(int64(4 * time.Second))))
		s.step()
		synctest.Wait()
		s.wantNobodyWaits()
	}
	for range 600 {
		s.wait(time.Second)
		s.endExternal()
		s.wantNobodyWaits()
		if s.allOver() {
			return
		}
	}
	for _, id := range s.jobs {
		if e := s.get(id); !e.State.Terminal() && id != s.last {
			t.Errorf("seed %d: %s has not ended: %s", seed, e.Spec.Name, describe(&e))
			all, _, _ := s.store.List(s.Context(), queue.Filter{Batch: e.Batch})
			for i := range all {
				t.Log(describe(&all[i]), all[i].Spec.Flow, all[i].Attempts)
			}
		}
	}
}

// failsSometimes is a run that fails in its first attempt in one of five jobs.
func failsSometimes(ctx context.Context, r *playedRun) job.Outcome {
	h := fnv.New32a()
	h.Write([]byte(r.Spec.Name))
	o := lasts(ctx, r)
	if h.Sum32()%5 == 0 && r.Attempt == 1 && o.Succeeded() {
		o.State, o.Class, o.Message = job.RunFailed, job.Server, "the provider failed"
	}
	return o
}

// step does one thing that may change whose turn it is.
func (s *schedule) step() {
	switch n := s.IntN(10); {
	case n < 4:
		s.enqueue(job.Workflow{}, false, s.specs()...)
	case n < 6:
		s.enqueue(job.Workflow{}, s.own != "", s.specs()...)
	case n < 7:
		first, second := s.spec(), s.spec()
		second.Flow.Needs = []job.Name{first.Name}
		first.Flow.Joined, second.Flow.Joined = true, true
		list := s.spec()
		list.Flow = job.Flow{Joined: true, Needs: []job.Name{first.Name}[:s.IntN(2)], ForEach: &job.ForEach{Items: json.RawMessage("[1,2,3]"), Max: 3, MaxParallel: s.IntN(3)}}
		last := s.spec()
		last.Flow = job.Flow{Joined: true, Needs: []job.Name{first.Name, list.Name}}
		s.enqueue(job.Workflow{}, false, []job.Spec{first, second, list, last}[:2+2*s.IntN(2)]...)
	case n < 8:
		if len(s.jobs) > 0 {
			if id := s.jobs[s.IntN(len(s.jobs))]; id != s.last {
				s.sched.Cancel(s.Context(), id) //nolint:errcheck // it may have ended
			}
		}
	case n < 9:
		key := fmt.Sprint("k", s.IntN(3))
		s.names++
		e := queue.Entry{ID: job.NewID(), State: job.Queued, CreatedAt: stamp(), RunnableAt: stamp(), Spec: job.Spec{
			Name: job.Name(fmt.Sprint("external-", s.names)), Tenant: s.tenant(), Type: job.External, Worker: "program", Key: key, OnDuplicate: job.Serialize,
		}}
		b := queue.Batch{ID: job.NewBatchID(), CreatedAt: stamp()}
		if err := s.sched.Submit(s.Context(), b, []queue.Entry{e}); err == nil {
			s.jobs = append(s.jobs, e.ID)
		}
	default:
		s.endExternal()
	}
}

// endExternal plays the programs that work on what is not the scheduler's.
func (s *schedule) endExternal() {
	list, err := s.kernel.Claim(s.Context(), sched.ClaimRequest{WorkerID: "program", MaxN: 10})
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range list {
		if _, err := s.kernel.Complete(s.Context(), sched.CompleteRequest{SchedID: e.SchedID, WorkerID: "program"}); err != nil {
			s.Fatal(err)
		}
	}
}

// enqueue submits jobs, to the own batch or as one that is shared. A key may
// refuse them.
func (s *schedule) enqueue(w job.Workflow, own bool, specs ...job.Spec) {
	b, entries := scheduler.NewBatch("test", "d", specs, w, stamp())
	if own {
		b.ID, b.Private = s.own, true
		for i := range entries {
			entries[i].Batch = b.ID
		}
	}
	if err := s.sched.Submit(s.Context(), b, entries); err != nil {
		return
	}
	for i := range entries {
		s.jobs = append(s.jobs, entries[i].ID)
	}
}

func (s *schedule) tenant() job.Tenant { return job.Tenant("abc"[s.IntN(3)]) }

func (s *schedule) specs() (list []job.Spec) {
	for range 1 + s.IntN(4) {
		list = append(list, s.spec())
	}
	return list
}

func (s *schedule) spec() job.Spec {
	s.names++
	j := task(fmt.Sprint("job-", s.names), time.Duration(s.Int64N(int64(8*time.Second))), priority(s.IntN(5)-2))
	j.Tenant = s.tenant()
	j.Worker = []job.WorkerKind{"shell", "codex"}[s.IntN(2)]
	if s.IntN(2) == 0 {
		j.Key = fmt.Sprint("k", s.IntN(3))
		j.OnDuplicate = []job.DuplicatePolicy{job.Serialize, job.Serialize, job.Coalesce, job.LatestWins, job.Reject}[s.IntN(5)]
	}
	if s.IntN(4) == 0 {
		deadline(time.Duration(s.Int64N(int64(10 * time.Second))))(&j)
	}
	if s.IntN(4) == 0 {
		runnableIn(time.Duration(s.Int64N(int64(10 * time.Second))))(&j)
	}
	return j
}

func (s *schedule) allOver() bool {
	for _, id := range s.jobs {
		if id != s.last && !s.get(id).State.Terminal() {
			return false
		}
	}
	return true
}

// wantNobodyWaits fails the test if a job could run, has a slot, and still does
// after a round; or if a deadline passed and nobody has noticed.
func (s *schedule) wantNobodyWaits() {
	s.Helper()
	waits := s.waiting()
	if len(waits) == 0 {
		return
	}
	s.wait(time.Millisecond) // a round takes no time here, unless somebody waits
	for id, how := range s.waiting() {
		if _, before := waits[id]; before {
			total, kinds := s.cores.running()
			s.Fatalf("%s; %d of %d slots are taken, by %v (codex has %d)", how, total, s.slots, kinds, s.codex)
		}
	}
}

// waiting returns what waits although it should not.
func (s *schedule) waiting() map[job.ID]string {
	entries, _, err := s.store.List(s.Context(), queue.Filter{States: []job.EntryState{job.Queued}, Limit: 1 << 30})
	if err != nil {
		s.Fatal(err)
	}
	at, list := stamp(), map[job.ID]string{}
	total, kinds := s.cores.running()
	for i := range entries {
		e := &entries[i]
		if e.Spec.Type == job.External {
			continue
		}
		overdue := e.Deadline != nil && !e.Deadline.After(at) && e.CoalescedWith == "" // else it may share a result that comes
		if since, seen := s.overdue[e.ID]; !overdue {
			delete(s.overdue, e.ID)
		} else if !seen {
			s.overdue[e.ID] = at
		} else if at.Sub(since) > reportTime {
			list[e.ID] = "nobody lets it expire: " + describe(e)
		}
		kind := e.Spec.Worker
		room := total < s.slots && (kind != "codex" || s.codex == 0 || kinds[kind] < s.codex)
		if room && !overdue && e.Held == "" && e.WaitsFor == "" && !e.RunnableAt.After(at) && (e.Deadline == nil || e.Deadline.After(at)) {
			list[e.ID] = "nobody claims it: " + describe(e)
		}
	}
	return list
}

// reportTime is how long nobody need look at the queue while there is no room, and
// a little more.
const reportTime = 1100 * time.Millisecond

func describe(e *queue.Entry) string {
	list := []string{fmt.Sprintf("%s of tenant %s, worker %s, priority %d, key %q, is %s, runnable at %s", e.Spec.Name, e.Spec.Tenant, e.Spec.Worker, e.Spec.Priority, e.Key, e.State, e.RunnableAt)}
	for name, value := range map[string]string{"held for ": string(e.Held), "waits for ": string(e.WaitsFor), "coalesced with ": string(e.CoalescedWith), "says ": e.Waiting} {
		if value != "" {
			list = append(list, name+value)
		}
	}
	slices.Sort(list[1:])
	return strings.Join(list, ", ")
}
