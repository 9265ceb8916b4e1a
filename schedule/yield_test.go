package schedule_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/schedule"
)

// market returns a run of a tenant without a contract that began so long ago.
func market(id job.ID, t job.Tenant, ago time.Duration, change ...func(*schedule.Candidate)) schedule.Candidate {
	r := schedule.Candidate{ID: id, Tenant: t, Began: midnight.Add(-ago)}
	for _, c := range change {
		c(&r)
	}
	return r
}

func TestYields(t *testing.T) {
	asked := func(r *schedule.Candidate) { r.Asked = true }
	stays := func(r *schedule.Candidate) { r.Stays = true }
	often := func(r *schedule.Candidate) { r.Uncounted = schedule.MaxYields }
	urgent := func(r *schedule.Candidate) { r.Priority = 1 }
	contract := func(t job.Tenant, share float64, inFlight, waiting int) schedule.Claimant {
		return schedule.Claimant{Tenant: t, Contracted: true, Share: share, InFlight: inFlight, Waiting: waiting}
	}
	other := func(t job.Tenant, share float64, inFlight int) schedule.Claimant {
		return schedule.Claimant{Tenant: t, Share: share, InFlight: inFlight, Waiting: 9}
	}
	three := []schedule.Candidate{market("old", "m", 3*time.Minute), market("new", "m", time.Minute), market("mid", "m", 2*time.Minute)}
	for _, tt := range []struct {
		name    string
		tenants []schedule.Claimant
		runs    []schedule.Candidate
		want    string
	}{
		{"the one that began last", []schedule.Claimant{contract("a", 3, 0, 1), other("m", 0, 3)}, three, "[{new a}]"},
		{"one for each slot that is missing", []schedule.Claimant{contract("a", 3, 1, 5), other("m", 0, 3)}, three, "[{new a} {mid a}]"},
		{"nothing waits", []schedule.Claimant{contract("a", 3, 0, 0), other("m", 0, 3)}, three, "[]"},
		{"it has its share", []schedule.Claimant{contract("a", 2, 2, 5), other("m", 0, 3)}, three, "[]"},
		{"a part of a slot is one", []schedule.Claimant{contract("a", 0.2, 0, 5), other("m", 0, 3)}, three, "[{new a}]"},
		{"a sum of parts is not", []schedule.Claimant{contract("a", 1+1e-12, 1, 5), other("m", 0, 3)}, three, "[]"},
		{"nobody has a contract", []schedule.Claimant{other("b", 3, 0), other("m", 0, 3)}, three, "[]"},
		{"two contracts, who lacks more first", []schedule.Claimant{contract("a", 1, 0, 5), contract("b", 2, 0, 5), other("m", 0, 3)}, three, "[{new b} {mid a} {old b}]"},
		{"not below its own share", []schedule.Claimant{contract("a", 2, 0, 5), other("m", 2.5, 3)}, three, "[{new a}]"},
		{"one was asked already", []schedule.Claimant{contract("a", 3, 0, 1), other("m", 0, 3)},
			[]schedule.Candidate{market("old", "m", 2), market("new", "m", 1, asked)}, "[]"},
		{"one was asked already of two", []schedule.Claimant{contract("a", 3, 0, 2), other("m", 0, 2)},
			[]schedule.Candidate{market("old", "m", 2), market("new", "m", 1, asked)}, "[{old a}]"},
		{"who cannot or has given way often stays", []schedule.Claimant{contract("a", 3, 0, 3), other("m", 0, 3)},
			[]schedule.Candidate{market("old", "m", 3), market("mid", "m", 2, often), market("new", "m", 1, stays)}, "[{old a}]"},
		{"the least priority first", []schedule.Claimant{contract("a", 3, 0, 1), other("m", 0, 2)},
			[]schedule.Candidate{market("old", "m", 2), market("new", "m", 1, urgent)}, "[{old a}]"},
		{"contracted runs stay", []schedule.Claimant{contract("a", 1, 0, 1), contract("b", 1, 2, 0)},
			[]schedule.Candidate{market("x", "b", 1), market("y", "b", 2)}, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := fmt.Sprint(schedule.Yields(tt.tenants, tt.runs)); got != tt.want {
				t.Errorf("%s give way, want %s", got, tt.want)
			}
		})
	}
}

// TestYieldsWithinBounds: of any facts, no more runs give way than contracted tenants lack
// slots, none that may not, and as many as may; in whatever order the facts come.
func TestYieldsWithinBounds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var tenants []schedule.Claimant
		var runs []schedule.Candidate
		for i := range rapid.IntRange(1, 5).Draw(r, "tenants") {
			c := schedule.Claimant{Tenant: job.Tenant(rune('a' + i)), Contracted: rapid.Bool().Draw(r, "contracted"),
				Share: float64(rapid.IntRange(0, 30).Draw(r, "share")) / 6, Waiting: rapid.IntRange(0, 4).Draw(r, "waiting"), InFlight: rapid.IntRange(0, 4).Draw(r, "in flight")}
			tenants = append(tenants, c)
			for n := range c.InFlight {
				runs = append(runs, schedule.Candidate{ID: job.ID(fmt.Sprintf("%s%d", c.Tenant, n)), Tenant: c.Tenant, Priority: rapid.IntRange(0, 1).Draw(r, "priority"),
					Began: midnight.Add(time.Duration(rapid.IntRange(0, 3).Draw(r, "began")) * time.Second), Uncounted: rapid.IntRange(0, schedule.MaxYields+1).Draw(r, "uncounted"),
					Asked: rapid.IntRange(0, 3).Draw(r, "asked") == 0, Stays: rapid.IntRange(0, 3).Draw(r, "stays") == 0})
			}
		}
		got := schedule.Yields(tenants, runs)
		shuffle := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "shuffle"), 0))
		shuffle.Shuffle(len(tenants), func(i, j int) { tenants[i], tenants[j] = tenants[j], tenants[i] })
		shuffle.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		if again := schedule.Yields(tenants, runs); !slices.Equal(got, again) {
			r.Fatalf("%v give way, and %v with the facts in another order", got, again)
		}

		lacks, missing, left := map[job.Tenant]int{}, 0, map[job.Tenant]int{}
		market := map[job.Tenant]schedule.Claimant{}
		for _, c := range tenants {
			left[c.Tenant] = c.InFlight
			if n := min(c.Waiting, int(math.Ceil(c.Share))-c.InFlight); c.Contracted && n > 0 {
				lacks[c.Tenant], missing = n, missing+n
			}
			if !c.Contracted {
				market[c.Tenant] = c
			}
		}
		for _, x := range runs {
			if x.Asked {
				missing, left[x.Tenant] = missing-1, left[x.Tenant]-1
			}
		}
		if len(got) > max(missing, 0) {
			r.Fatalf("%d runs give way for %d slots that are missing", len(got), missing)
		}
		may := func(x schedule.Candidate) bool {
			c, is := market[x.Tenant]
			return is && !x.Asked && !x.Stays && x.Uncounted < schedule.MaxYields && left[x.Tenant] > int(c.Share)
		}
		gave := map[job.ID]bool{}
		for _, y := range got {
			i := slices.IndexFunc(runs, func(x schedule.Candidate) bool { return x.ID == y.ID })
			if gave[y.ID] || !may(runs[i]) {
				r.Fatalf("%s gives way and may not: %+v", y.ID, runs[i])
			}
			if lacks[y.To]--; lacks[y.To] < 0 {
				r.Fatalf("%s gives way to %s, which lacks nothing more", y.ID, y.To)
			}
			gave[y.ID] = true
			left[runs[i].Tenant]--
		}
		if len(got) < missing && slices.ContainsFunc(runs, func(x schedule.Candidate) bool { return !gave[x.ID] && may(x) }) {
			r.Fatalf("%d runs give way for %d slots, and more of %+v may", len(got), missing, runs)
		}
	})
}
