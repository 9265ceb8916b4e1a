package e2e

// Who is next, end to end: tenants with more work than there is room for, whose
// workers really use what they report.

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/agentsched/agentsched/api"
	"github.com/agentsched/agentsched/job"
	"github.com/agentsched/agentsched/policy"
)

// near wants a part of 1 within a tolerance.
func (b *bench) near(what string, got, want, tolerance float64) {
	b.t.Helper()
	b.t.Logf("%s: %.3f", what, got)
	if !(math.Abs(got-want) <= tolerance) {
		b.t.Errorf("%s: %.3f, want %.3f within %.3f", what, got, want, tolerance)
	}
}

// TestDeficitShares: weights of 3 and 1 give three quarters of the tokens,
// although the jobs of one tenant are larger than those of the other; and they do
// so over a restart, which does not forget what was used before.
func TestDeficitShares(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.config["concurrency"] = obj{"max": 2}
	b.config["policy"] = obj{"name": "deficit", "window": "24h", "tenants": obj{"heavy": obj{"weight": 3}, "light": obj{"weight": 1}}}
	const small, large, stopAt = 100, 240, 90
	r := b.serve()
	b.submit(b.jobsOf("heavy", "heavy.yaml", spenders("h", 150, small, 0.01, obj{"expect": obj{"tokens": small}})...))
	b.submit(b.jobsOf("light", "light.yaml", spenders("l", 60, large, 0.01, obj{"expect": obj{"tokens": large}})...))
	b.open()
	r.ends(stopAt)
	shares := b.status().Shares
	r.stop()
	first := b.finished()
	if len(first) < stopAt {
		b.fatalf("%d jobs have ended, %d were seen to", len(first), stopAt)
	}
	b.near("heavy's part of the tokens", part(first[:stopAt], "heavy", tokensOf), 0.75, 0.04)
	// At every point on the way, too, once one job more or less does not matter.
	for n := 30; n < stopAt; n += 15 {
		b.near(fmt.Sprintf("after %d jobs", n), part(first[:n], "heavy", tokensOf), 0.75, 0.12)
	}
	k := slices.IndexFunc(shares, func(s policy.Share) bool { return s.Tenant == "heavy" })
	if k < 0 || len(shares) != 2 || shares[k].Target != 0.75 || math.Abs(shares[k].Actual-0.75) > 0.06 {
		t.Errorf("the status tells of %s", asJSON(t, shares))
	}

	// The server that comes next knows what was used: with the weights the other
	// way round, the one that has had three quarters waits for the other.
	b.config["policy"] = obj{"name": "deficit", "window": "24h", "tenants": obj{"heavy": obj{"weight": 1}, "light": obj{"weight": 3}}}
	const further = 20
	r = b.serve()
	r.ends(further)
	r.stop()
	after := b.finished()[len(first):]
	if who := tenantsOf(after[:further]); strings.Count(who, "h") > 2 {
		t.Errorf("after the restart %s; want what was used before to count: only light until it has caught up", who)
	}
	b.soundState()
}

// TestDeficitCountsWhatIsInFlight: with more slots than one, and nothing used
// yet, the jobs in flight are shared out as well.
func TestDeficitCountsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.config["concurrency"] = obj{"max": 1}
	b.config["policy"] = obj{"name": "deficit", "tenants": obj{"heavy": obj{"weight": 3}}}
	b.config["expect"] = obj{"tokens": 1000}
	r := b.serve()
	b.submit(b.jobsOf("heavy", "heavy.yaml", spenders("h", 12, 1000, 0, nil)...))
	r.runs("heavy")
	b.submit(b.jobsOf("light", "light.yaml", spenders("l", 12, 1000, 0, nil)...))
	r.reload(t, obj{"concurrency": obj{"max": 8}})
	b.eventually("eight jobs are in flight", func() bool { return b.status().Running == 8 })
	shares := b.status().Shares
	if len(shares) != 2 || shares[0].Tenant != "heavy" || shares[0].InFlight != 6 || shares[1].InFlight != 2 {
		t.Errorf("eight slots at once were shared out as %s; want 6 and 2", asJSON(t, shares))
	}
	b.open()
	r.ends(24)
	r.stop()
	b.soundState()
}

// TestCreditTiers: contracted work comes before that of the marketplace, which
// was there first; with weighted tiers, of which SIGHUP tells, it is paid for four
// to one and nobody starves.
func TestCreditTiers(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.config["concurrency"] = obj{"max": 2}
	tenants := obj{"gold": obj{"contracted": true}}
	b.config["policy"] = obj{"name": "credit", "tiers": "strict", "tenants": tenants}
	cost := obj{"expect": obj{"cost_usd": 0.5}}
	r := b.serve()
	b.submit(b.jobsOf("market", "market.yaml", spenders("m", 80, 100, 0.5, cost)...))
	r.runs("market")
	b.eventually("both slots are taken", func() bool { return b.status().Running == 2 })
	b.submit(b.jobsOf("gold", "gold.yaml", spenders("g", 20, 100, 0.5, cost)...))
	b.open()
	r.ends(2 + 20 + 6)
	if err := os.Remove(b.folder("go")); err != nil {
		t.Fatal(err)
	}
	if who := tenantsOf(byDispatch(b.list())[:2+20+4]); who != "mm"+strings.Repeat("g", 20)+"mmmm" {
		t.Errorf("strict tiers: %s", who)
	}

	b.eventually("both slots are taken", func() bool { return b.status().Running == 2 })
	b.submit(b.jobsOf("gold", "more.yaml", spenders("more", 60, 100, 0.5, cost)...))
	r.reload(t, obj{"policy": obj{"name": "credit", "tiers": "weighted", "tenants": tenants}})
	before := len(b.finished())
	b.open()
	const n = 50
	r.ends(before + n)
	r.stop()
	after := b.finished()[before:][:n]
	b.near("gold's part of the money", part(after, "gold", costOf), 0.8, 0.06)
	b.soundState()
}

// byDispatch returns what was ever dispatched, in that order.
func byDispatch(list []api.Job) []api.Job {
	list = slices.DeleteFunc(list, func(e api.Job) bool { return e.DispatchedAt == nil })
	slices.SortFunc(list, func(x, y api.Job) int { return x.DispatchedAt.Compare(*y.DispatchedAt) })
	return list
}

// TestPriorityOrder: one at a time, whoever's they are: priority, then
// runnable_at, then submission, exactly; also over a restart, and until SIGHUP
// puts another policy in force.
func TestPriorityOrder(t *testing.T) {
	t.Parallel()
	random := newRand(t)
	b := newBench(t)
	b.spender()
	b.config["concurrency"] = obj{"max": 1}
	tenants := []string{"alpha", "beta", "gamma"}
	const files, inFile = 9, 5
	r := b.serve()
	b.submit(b.jobsOf("first", "first.yaml", spend("first", 2, 0, nil)))
	r.runs("first")
	for i := range files {
		var jobs []obj
		for n := range inFile {
			jobs = append(jobs, spend(fmt.Sprintf("f%d-%d", i, n), 2, 0, obj{"priority": random.IntN(5) - 2}))
		}
		b.submit(b.jobsOf(tenants[random.IntN(len(tenants))], fmt.Sprintf("f%d.yaml", i), jobs...))
	}
	want := slices.DeleteFunc(b.list(), func(e api.Job) bool { return e.Spec.Name == "first" }) // none has ended: in line
	b.open()
	r.ends(1 + files*inFile/2)
	r.stop()
	r = b.serve()
	b.eventually("all have ended", func() bool { return len(b.finished()) == 1+files*inFile })
	got := b.finished()[1:]
	if g, w := namesOf(got), namesOf(want); !slices.Equal(g, w) {
		t.Errorf("order %v\n want %v", g, w)
	}
	r.stop()
	b.soundState()
}

// TestPolicyReload: what waits already is in the order of the new policy from
// the next free slot on.
func TestPolicyReload(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.config["concurrency"] = obj{"max": 1}
	b.config["policy"] = obj{"name": "priority"}
	r := b.serve()
	b.submit(b.jobsOf("urgent", "urgent.yaml", spenders("u", 10, 2, 0, obj{"priority": 9})...))
	r.runs("urgent")
	b.submit(b.jobsOf("paying", "paying.yaml", spenders("p", 10, 2, 0, nil)...))
	r.reload(t, obj{"policy": obj{"name": "credit", "tenants": obj{"paying": obj{"contracted": true}}}})
	if st := b.status(); st.Policy != "credit" {
		t.Errorf("the status tells of policy %q", st.Policy)
	}
	// One that is not right changes nothing.
	out := len(r.stderr.String())
	b.write(b.configFile(), asJSON(t, obj{"policy": obj{"name": "fairest"}}))
	r.signal(syscall.SIGHUP)
	b.eventually("a word on the mistake", func() bool { return strings.Contains(r.stderr.String()[out:], "not reloaded") })
	if said := r.stderr.String()[out:]; !strings.Contains(said, "policy.name") || !strings.Contains(said, "deficit") {
		t.Errorf("the mistake is told as %q", said)
	}
	b.open()
	r.ends(20)
	r.stop()
	if who := tenantsOf(b.finished()); who != "u"+strings.Repeat("p", 10)+strings.Repeat("u", 9) {
		t.Errorf("order %s", who)
	}
	b.soundState()
}

// TestTenantBounds: what a policy holds a tenant back for is kept, and told.
func TestTenantBounds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.spender()
	b.config["concurrency"] = obj{"max": 4}
	b.config["policy"] = obj{"name": "deficit", "tenants": obj{
		"narrow": obj{"max_concurrent": 1}, "poor": obj{"budget": obj{"tokens": 500}},
	}}
	r := b.serve()
	b.submit(b.jobsOf("narrow", "narrow.yaml", spenders("n", 4, 200, 0, nil)...))
	b.submit(b.jobsOf("poor", "poor.yaml", spenders("p", 6, 200, 0, obj{"expect": obj{"tokens": 200}})...))
	held := func(tenant job.Tenant) policy.Share {
		for _, s := range b.status().Shares {
			if s.Tenant == tenant {
				return s
			}
		}
		return policy.Share{}
	}
	b.eventually("four jobs are in flight", func() bool { return b.status().Running == 4 })
	if s := held("narrow"); s.InFlight != 1 || !strings.Contains(s.Held, "1") {
		t.Errorf("with max_concurrent 1: %+v", s)
	}
	if s := held("poor"); s.InFlight != 3 || s.Held == "" { // the third passes the bound, the fourth may not begin
		t.Errorf("with a budget of 500 tokens: %+v", s)
	}
	b.open()
	r.ends(4 + 3)
	// The policy hears of an end after those who listen.
	b.eventually("the budget is spent, and holds the others back", func() bool {
		s := held("poor")
		return s.Used.Tokens == 600 && s.Held != "" && s.Waiting
	})
	// It holds over a restart, and more of it lets them go.
	r.stop()
	r = b.serve()
	b.eventually("the policy knows of it", func() bool { return held("poor").Waiting })
	if s := held("poor"); s.Used.Tokens != 600 || s.Held == "" || s.InFlight != 0 {
		t.Errorf("after a restart: %+v", s)
	}
	r.reload(t, obj{"policy": obj{"name": "deficit", "tenants": obj{"poor": obj{"budget": obj{"tokens": 5000}}}}})
	r.ends(3)
	r.stop()
	b.soundState()
}

func namesOf(entries []api.Job) []job.Name {
	names := make([]job.Name, len(entries))
	for i, e := range entries {
		names[i] = e.Spec.Name
	}
	return names
}
