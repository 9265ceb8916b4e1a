//go:build linux

package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/agentsched/agentsched/internal/faults/act"
	"github.com/agentsched/agentsched/internal/sandbox"
	"github.com/agentsched/agentsched/ipc"
	"github.com/agentsched/agentsched/job"
)

// A fleet, and what times its leases.
const (
	fleetNodes      = 10
	fleetSchedulers = 3

	fleetLease     = 2 * time.Second // of the leader, and of each node
	fleetValidity  = 2 * time.Second
	fleetHang      = time.Second
	fleetInterrupt = 100 * time.Millisecond
	fleetKill      = time.Second
)

// fleetStop is how long the stages of a stop may take together.
var fleetStop = ipc.Stages{Interrupt: job.Duration(fleetInterrupt), Terminate: job.Duration(fleetInterrupt), Kill: job.Duration(fleetKill)}.Longest()

// fleetPlan is a scenario of a fleet. Its runs are not held by a sandbox: those of one host are.
type fleetPlan struct {
	*plan
	Slots   []int          // of each node
	Slow    []int          // nodes whose links go through a relay of the test's
	Rate    float64        // how fast the database's wall clock goes
	Weights map[string]int // of tenants; nil: the policy is the default
	Split   int            // how many of the jobs are submitted when others run already
	// Upgrades says that all machines begin with the version before; see upgradeMachine.
	Upgrades bool
}

// The faults of a fleet.
const (
	killNode      faultKind = "kill node"   // with all of its processes; it comes again
	freezeNode    faultKind = "freeze node" // likewise all of it, and it goes on later
	stallNode     faultKind = "stall node"  // its first process alone stands still
	stallCore     faultKind = "stall core of a node"
	cutNode       faultKind = "cut node off"
	deafenNode    faultKind = "node hears nothing"
	silenceNode   faultKind = "node is not heard"
	narrowNode    faultKind = "narrow link" // by tbf
	slowNode      faultKind = "slow link"   // by the relay, which also cuts connections
	jumpNode      faultKind = "jump wall clock of a node"
	killLeader    faultKind = "kill leader"
	freezeLeader  faultKind = "freeze leader"
	killStandby   faultKind = "kill standby"
	restartAll    faultKind = "restart schedulers"
	restartBase   faultKind = "restart database"
	killBase      faultKind = "kill database"
	cutCommit     faultKind = "cut a commit off" // the database makes it, and nobody is told
	cutStatement  faultKind = "cut a statement"  // the database hears a part of it
	holdBase      faultKind = "hold database"    // nothing gets through for a while
	jumpBase      faultKind = "jump wall clock of the database"
	killNodeRun   faultKind = "kill worker of a node"
	cancelOnFleet faultKind = "cancel job of a fleet"
)

// fleetFaults are all of them; the more often one is there, the more often it strikes.
var fleetFaults = []faultKind{
	killNode, killNode, freezeNode, freezeNode, stallNode, stallCore, cutNode, cutNode, deafenNode, silenceNode, narrowNode, slowNode, slowNode,
	jumpNode, killLeader, killLeader, freezeLeader, freezeLeader, killStandby, restartAll, restartBase, killBase, cutCommit, cutCommit, cutStatement,
	holdBase, jumpBase, killNodeRun, cancelOnFleet,
}

// newFleetPlan makes the plan of a seed.
func newFleetPlan(seed uint64) *fleetPlan {
	r := rand.New(rand.NewPCG(seed, 14))
	p := &fleetPlan{plan: &plan{
		Seed: seed, Cores: 1, PerKind: map[string]int{kindA: 5 + r.IntN(3)}, PerTenant: 4 + r.IntN(3), Level: sandbox.None, Lapse: true,
		NoCgroup: r.IntN(3) == 0 || !cgroups, StopAll: r.IntN(4) == 0,
	}}
	for range fleetNodes {
		p.Slots = append(p.Slots, 1+r.IntN(3))
	}
	p.Slow = r.Perm(fleetNodes)[:3]
	for i := range 36 + r.IntN(12) {
		p.Jobs = append(p.Jobs, p.newJob(r, fmt.Sprintf("job-%d", i), pick(r, "red", "blue", "green")))
	}
	p.Split = len(p.Jobs) / 2
	p.Rate = pick(r, 0.98, 1, 1.02)
	for range 4 + r.IntN(4) {
		p.Faults = append(p.Faults, newFleetFault(r, len(p.Jobs)))
	}
	slices.SortStableFunc(p.Faults, func(a, b fault) int { return a.After - b.After })
	return p
}

// newJob makes a job, which mostly works for a second or two.
func (p *fleetPlan) newJob(r *rand.Rand, name, tenant string) jobPlan {
	j := jobPlan{Name: name, Kind: pick(r, kindA, kindA, kindB, kindB, kindShell), Tenant: tenant, MaxAttempts: 1000, Fate: heals}
	if r.IntN(8) == 0 {
		j.Key = "same of " + tenant
	}
	work := func(kinds ...act.Kind) act.Act {
		a := newAct(r, &j, kinds...)
		a.Millis = 200 + r.IntN(1800)
		a.Naked = a.Naked && !p.NoCgroup // nothing would show whose it is
		return a
	}
	if r.IntN(10) == 0 {
		j.Fate, j.MaxAttempts = doomed, 1+r.IntN(3)
		j.Acts = []act.Act{work(act.Fail, act.Crash, act.Half, act.Lie)}
		return j
	}
	if r.IntN(4) == 0 {
		j.Acts = append(j.Acts, work(act.Fail, act.Crash, act.Half))
	}
	j.Acts = append(j.Acts, work(act.Succeed))
	return j
}

// newFleetFault makes a fault. What lasts is shorter than the lease, or longer than all of the sum that the
// claims of a node hold by.
func newFleetFault(r *rand.Rand, jobs int) fault {
	f := fault{After: 10 + r.IntN(16*jobs), Do: pick(r, fleetFaults...), Pick: r.IntN(100), MS: 200 + r.IntN(1200)}
	long := int((ipc.Lease{Node: fleetLease, Validity: fleetValidity, Stop: fleetStop}).Lost().Milliseconds())
	switch f.Do {
	case freezeNode, stallNode, cutNode, deafenNode, silenceNode:
		if r.IntN(3) > 0 {
			f.MS = long*3/4 + r.IntN(long)
		}
	case freezeLeader:
		f.MS = 2500 + r.IntN(2500)
	case killNode, killLeader, killStandby, narrowNode, slowNode:
		f.MS = 500 + r.IntN(long)
	case holdBase:
		f.MS = 300 + r.IntN(3000)
	case jumpNode, jumpBase:
		f.MS = pick(r, -7_200_000, -3_000, 3_000, 7_200_000)
	}
	return f
}

// String shows the plan.
func (p *fleetPlan) String() string {
	return fmt.Sprintf("a fleet: slots %v, nodes behind a relay %v, the database's clock at %g, %d jobs later, %s", p.Slots, p.Slow, p.Rate, p.Split, p.plan)
}
