//go:build linux

package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/internal/sandbox"
)

// plan is a scenario. All of it comes from the seed.
type plan struct {
	Seed  uint64
	Cores int

	// Limits, over all cores together. The sentinel counts as any other job.
	Max       int
	PerKind   map[string]int
	PerTenant int // of each; 0: none

	Level     sandbox.Level // that holds the runs
	NoCgroup  bool          // processes are found by tag and descent alone
	SmallDisk bool          // the state is on a small file system of its own
	StopAll   bool          // a global isolation stops the running work too
	Race      bool          // the programs have the race detector, which slows them
	Dump      bool          // at the end, the scheduler dies and tells its goroutines
	Lapse     bool          // permits lapse soon, and the scheduler is frozen for longer

	Jobs   []jobPlan
	Faults []fault
	Tears  []act.Tear
}

// jobPlan is a job and what must become of it.
type jobPlan struct {
	Name        string
	Kind        string
	Tenant      string
	Fallback    string   `json:",omitempty"` // another kind, for when the first is sick
	Folder      string   `json:",omitempty"` // it works in this folder directly; else in an empty one
	Key         string   `json:",omitempty"` // shared with jobs that run one after the other
	Needs       []string `json:",omitempty"` // that must have ended, however, before it begins
	MaxAttempts int
	TimeoutMS   int   `json:",omitempty"`
	MaxTokens   int64 `json:",omitempty"`
	Acts        []act.Act
	Fate        fate
}

// fate is how a job ends, if nobody cancels it.
type fate string

const (
	heals  fate = "heals"  // sooner or later it succeeds
	doomed fate = "doomed" // it uses up its attempts
	broke  fate = "broke"  // it uses up its tokens
)

// fault is what strikes and when.
type fault struct {
	After int // marks of the scenario
	Do    faultKind
	Pick  int `json:",omitempty"` // which core, worker or job, modulo how many there are
	MS    int `json:",omitempty"` // how long it lasts, or how far the clock jumps
}

// The kinds of workers: two that speak the worker protocol, and the shell. The
// sentinel has a kind of its own, lest it suffers for what the others do.
const (
	kindA        = "alpha"
	kindB        = "beta"
	kindShell    = "shell"
	kindSentinel = "sentinel"
)

// sentinel is a job that lives until all others have ended and keeps the
// scheduler there, to be looked at when all is quiet.
const sentinel = "sentinel"

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := &plan{
		Seed: seed, Cores: 1 + r.IntN(3), Max: 3 + r.IntN(2), PerKind: map[string]int{}, NoCgroup: r.IntN(4) == 0 || !cgroups, StopAll: r.IntN(4) == 0, Dump: r.IntN(8) == 0, Race: r.IntN(3) == 0,
	}
	if r.IntN(2) == 0 {
		p.PerKind[pick(r, kindA, kindB, kindShell)] = 1 + r.IntN(2)
	}
	if r.IntN(3) == 0 {
		p.PerTenant = 1 + r.IntN(2)
	}
	tenants := []string{"red", "blue"}
	for i := range 3 + r.IntN(6) {
		p.Jobs = append(p.Jobs, newJob(r, fmt.Sprintf("job-%d", i), pick(r, tenants...)))
	}
	p.Jobs = append(p.Jobs, jobPlan{
		Name: sentinel, Kind: kindSentinel, Tenant: "white", MaxAttempts: 1000, Acts: []act.Act{{Do: act.Wait}}, Fate: heals,
	})
	p.addNeeds(rand.New(rand.NewPCG(seed, 1)))
	p.addFaults(r)
	p.addLapse(rand.New(rand.NewPCG(seed, 2)))
	p.Level = pick(rand.New(rand.NewPCG(seed, 3)), levels...)
	if p.Race { // a flood takes more than a second
		for i := range p.Jobs {
			p.Jobs[i].TimeoutMS *= 4
		}
	}
	return p
}

// addNeeds makes some jobs wait for earlier ones of their tenant.
func (p *plan) addNeeds(r *rand.Rand) {
	for i := range p.Jobs {
		for _, before := range p.Jobs[:i] {
			if before.Tenant == p.Jobs[i].Tenant && r.IntN(4) == 0 {
				p.Jobs[i].Needs = append(p.Jobs[i].Needs, before.Name)
			}
		}
	}
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// newJob makes a job. A third of them share two folders.
func newJob(r *rand.Rand, name, tenant string) jobPlan {
	j := jobPlan{Name: name, Kind: pick(r, kindA, kindA, kindB, kindB, kindShell), Tenant: tenant, MaxAttempts: 1000, Fate: heals}
	if r.IntN(3) == 0 {
		j.Folder = pick(r, "shared", "shared/below")
	}
	if j.Kind == kindA && r.IntN(2) == 0 {
		j.Fallback = kindB
	}
	if r.IntN(5) == 0 {
		j.Key = "same of " + tenant // a key is one within its tenant
	}
	switch r.IntN(8) {
	case 0:
		j.Fate, j.MaxAttempts = doomed, 1+r.IntN(3)
		j.Acts = []act.Act{newAct(r, &j, act.Fail, act.Crash, act.Half, act.Lie)}
	case 1:
		if j.Kind != kindShell { // which has no tokens
			j.Fate, j.MaxTokens = broke, 1000
			j.Acts = []act.Act{{Do: act.Overrun, Tokens: 120, Deaf: r.IntN(2) == 0}}
			break
		}
		fallthrough
	default:
		for range r.IntN(3) {
			j.Acts = append(j.Acts, newAct(r, &j, act.Fail, act.Crash, act.Half, act.Lie, act.Hang))
		}
		j.Acts = append(j.Acts, newAct(r, &j, act.Succeed, act.Succeed, act.Flood, act.Eat))
	}
	return j
}

func newAct(r *rand.Rand, j *jobPlan, kinds ...act.Kind) act.Act {
	a := act.Act{Do: pick(r, kinds...), Millis: 20 + r.IntN(250), Deaf: r.IntN(3) == 0}
	switch a.Do {
	case act.Fail:
		a.Class = pick(r, "SERVER", "NETWORK", "UNKNOWN", "CRASH", "TIMEOUT")
	case act.Hang:
		j.TimeoutMS = 1500
	case act.Flood:
		a.Lines = 2000 + r.IntN(8000)
	}
	if r.IntN(3) == 0 {
		a.Forks = 1 + r.IntN(2)
	}
	if r.IntN(4) == 0 {
		a.Daemons, a.Naked = 1+r.IntN(2), r.IntN(2) == 0
	}
	if r.IntN(2) == 0 {
		a.Tokens = int64(2 + r.IntN(500))
	}
	return a
}

func (p *plan) job(name string) *jobPlan {
	i := slices.IndexFunc(p.Jobs, func(j jobPlan) bool { return j.Name == name })
	if i < 0 {
		return &jobPlan{Name: name, Tenant: "nobody"}
	}
	return &p.Jobs[i]
}

// floods reports whether some worker prints more than there may be room for.
func (p *plan) floods() bool {
	return slices.ContainsFunc(p.Jobs, func(j jobPlan) bool {
		return slices.ContainsFunc(j.Acts, func(a act.Act) bool { return a.Do == act.Flood })
	})
}

// String shows the plan, one job and fault a line.
func (p *plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d cores, at most %d at once, per kind %v, per tenant %d, level %s, no cgroups %t, small disk %t, stop all %t, race %t, dump %t, lapse %t\n",
		p.Seed, p.Cores, p.Max, p.PerKind, p.PerTenant, p.Level, p.NoCgroup, p.SmallDisk, p.StopAll, p.Race, p.Dump, p.Lapse)
	show := func(what string, v any) {
		text, _ := json.Marshal(v)
		fmt.Fprintf(&b, "  %s %s\n", what, text)
	}
	for _, j := range p.Jobs {
		show("job", j)
	}
	for _, f := range p.Faults {
		show("fault", f)
	}
	for _, t := range p.Tears {
		show("tear", t)
	}
	return b.String()
}
